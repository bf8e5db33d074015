"""Gradient norms over time and memory against length, after training on denoise: figure 4.2."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from undamped.lab.papers.contenders import Contender
from undamped.lab.papers.drawing import line_of
from undamped.lab.papers.hidden_gradients import hidden_gradients
from undamped.lab.papers.recall import Trained, model_of

GRADIENT_SEQUENCES = 4
MEMORY_SEQUENCES = 10


@dataclass(frozen=True)
class GradientsAndMemory:
    """What was measured.

    Args:
        delay: The delay of the sequences whose gradients were measured.
        gradients: ‖∂L/∂h_t‖ by network, one number for every step t.
        lengths: The lengths at which memory was measured.
        peaks: Bytes that a forward and backward pass needs, by network, for each length.
    """

    delay: int
    gradients: dict[str, list[float]]
    lengths: tuple[int, ...]
    peaks: dict[str, list[int]]

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return vars(self)

    def lines(self) -> list[str]:
        """Say how far gradients fall and how memory grows, as a table."""
        heads = " | ".join(f"MB at {length}" for length in self.lengths)
        lines = [
            f"Gradients of the loss on the ten symbols, T = {self.delay}: how many decades "
            "‖∂L/∂h‖ changes from the last step of the noise back to the first. Memory of a "
            f"forward and backward pass of {MEMORY_SEQUENCES} sequences.",
            "",
            f"| network | decades | {heads} |",
            "|---|---:|" + "---:|" * len(self.lengths),
        ]
        for name, norms in self.gradients.items():
            peaks = " | ".join(f"{peak / 1e6:.0f}" for peak in self.peaks.get(name, []))
            lines.append(f"| {name} | {decades(norms):+.1f} | {peaks} |")
        return lines

    def figures(self) -> dict[str, Any]:
        """Return figure 4.2: gradients left, memory right."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(11, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        for index, (name, norms) in enumerate(self.gradients.items()):
            shown = [norm if norm > 0 else math.nan for norm in norms]
            left.plot(range(len(shown)), shown, label=name, **line_of(index))
        left.set_yscale("log")
        left.set_xlabel("step t")
        left.set_ylabel("‖∂L/∂h(t)‖")
        left.set_title("A line that falls to the left has no error signal there", fontsize=10)
        for index, (name, peaks) in enumerate(self.peaks.items()):
            right.plot(self.lengths, [p / 1e6 for p in peaks], "o", label=name, **line_of(index))
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xlabel("steps T of a sequence")
        right.set_ylabel("memory of a training step (MB)")
        right.set_title("Twice as steep is quadratic", fontsize=10)
        right.legend(fontsize="small")
        return {"gradients-and-memory": figure}


def decades(norms: Sequence[float]) -> float:
    """Return log₁₀ of the norm at the first step over that at the last but the ten answers."""
    end = max(1, len(norms) - 11)
    first, last = (sum(norms[at : at + 5]) for at in (0, max(0, end - 5)))
    return math.log10(first / last) if first > 0 and last > 0 else -math.inf


def gradients_and_memory(
    trained: Sequence[Trained],
    contenders: dict[str, Contender],
    *,
    delay: int,
    lengths: Sequence[int],
    units: int,
    tick: Callable[[str], None] | None = None,
) -> GradientsAndMemory:
    """Measure the gradients of trained networks and the memory that such networks need.

    Args:
        trained: The networks.
        contenders: Their settings, by name.
        delay: The delay of the sequences whose gradients are measured.
        lengths: The lengths at which memory is measured.
        units: Hidden units.
        tick: Told what is measured.
    """
    from undamped._base.memory import peak_memory

    gradients, peaks = {}, {}
    for one in trained:
        if tick is not None:
            tick(f"{one.network}: gradients and memory")
        found = hidden_gradients(model_of(one), "denoise", delay, GRADIENT_SEQUENCES)
        gradients[one.network] = found
        contender = contenders[one.network]
        options = {"hidden_size": units, **contender.options}
        peaks[one.network] = [
            peak_memory(_training_step, contender.model, options, length) for length in lengths
        ]
    return GradientsAndMemory(delay, gradients, tuple(lengths), peaks)


def _training_step(model: str, options: dict[str, Any], length: int) -> Callable[[], None]:
    """Prepare a pass in a fresh process: libraries and kernels are there before it is measured."""
    from undamped._base.registry import tasks
    from undamped.models.for_task import model_for

    task: Any = tasks.build("denoise", delay=length - 20)
    built = model_for(task.task_shape, model, options)
    built.train()

    def step(delay: int) -> None:
        task: Any = tasks.build("denoise", delay=delay)
        batch = task.batch("train", 0, MEMORY_SEQUENCES)
        task.loss(built.run(batch)[0], batch).backward()

    step(1)
    return partial(step, length - 20)
