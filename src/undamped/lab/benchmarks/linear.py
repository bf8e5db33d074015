"""Linear recurrences: the scan beside torch's, a stack of LinOSS blocks beside its floor and JAX.

The floor of a stack is what nobody can leave out: its matrix products, forward and backward, and
its scans. Memory is measured in processes of their own, with the mean of all outputs as the answer.

    undamped bench linear
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from undamped._base.memory import peak_memory
from undamped._base.registry import benchmarks, models
from undamped._base.torch_internals import associative_scan
from undamped.kernels import linear_oscillator_scan, linear_scan
from undamped.lab.benchmarks.linear_jax import jax_step, require_jax
from undamped.lab.benchmarks.tables import markdown_table, step_bars, terminal_table
from undamped.lab.benchmarks.timing import Timing, interleaved
from undamped.nn.recurrent import Recurrent

SCAN, THEIRS = "linear_scan", "torch associative_scan"
STACK, FLOOR = "linoss, 2 blocks", "its products and scans"
LOSS, JAX = "linoss, 2 blocks, and a loss", "the same in JAX"
HEADER = ("forward and backward", "ms", "as a multiple")
BLOCKS, WIDTH, OSCILLATORS, INPUTS = 2, 128, 64, 6
TIMES_TORCH, TIMES_FLOOR, TIMES_JAX, TIMES_MEMORY = 20.0, 1.4, 3.0, 1.5
"""What is wanted: torch's scan at least so many times ours, the stack at most so many times its
floor, JAX at least so many times ours, memory of a long sequence at most so many times that of a
sixteenth of it."""


@dataclass(frozen=True)
class LinearBenchmark:
    """All measurements of one run.

    Args:
        threads: How many torch had.
        scan: The size of the scan: steps, batch, complex units.
        stack: The size of the stack's input: steps, batch.
        scans: Seconds of the scans by candidate.
        stacks: Seconds of a training step of the stack by candidate.
        lengths: The lengths at which memory was measured.
        peaks: Peak memory in bytes, at both lengths.
        apart: The largest difference between our outputs and torch's, and between our loss and
            JAX's, as a share of it.
    """

    threads: int
    scan: tuple[int, int, int]
    stack: tuple[int, int]
    scans: dict[str, Timing]
    stacks: dict[str, Timing]
    lengths: tuple[int, int]
    peaks: tuple[int, int]
    apart: tuple[float, float | None]

    def times(self, name: str) -> float:
        """How many times as long a candidate takes as ours."""
        base = SCAN if name in self.scans else LOSS if name == JAX else STACK
        return self._all[name].over(self._all[base])

    @property
    def _all(self) -> dict[str, Timing]:
        return {**self.scans, **self.stacks}

    @property
    def over_floor(self) -> float:
        """How many times its floor the stack takes."""
        return self.stacks[STACK].over(self.stacks[FLOOR])

    @property
    def memory_ratio(self) -> float:
        """Memory at the longer length over that at the shorter."""
        return self.peaks[1] / max(1, self.peaks[0])

    def to_dict(self) -> dict[str, Any]:
        """Return all numbers for JSON."""
        return {
            "threads": self.threads,
            "scan": list(self.scan),
            "stack": list(self.stack),
            "timings": {name: timing.to_dict() for name, timing in self._all.items()},
            "torch_over_ours": self.times(THEIRS),
            "stack_over_floor": self.over_floor,
            "jax_over_ours": self.times(JAX) if JAX in self.stacks else None,
            "lengths": list(self.lengths),
            "peak_bytes": list(self.peaks),
            "memory_ratio": self.memory_ratio,
            "apart": list(self.apart),
        }

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the timings as a table."""
        return [
            (name, f"{1000 * timing.median:.0f}", f"{self.times(name):.2f}")
            for name, timing in self._all.items()
        ]

    @property
    def _about(self) -> str:
        steps, batch, units = self.scan
        return (
            f"A scan of {steps:,} × {batch} × {units} complex numbers, and {BLOCKS} LinOSS blocks "
            f"({WIDTH} features, {OSCILLATORS} oscillators) over {self.stack[0]:,} × "
            f"{self.stack[1]}; {self.threads} threads"
        )

    def sentences(self) -> list[str]:
        """Return what the numbers say."""
        said = [
            f"torch's scan takes {self.times(THEIRS):.0f} times ours (at least {TIMES_TORCH:g} "
            f"wanted); the stack takes {self.over_floor:.2f} times its floor (at most "
            f"{TIMES_FLOOR:g} wanted).",
            f"Peak memory of a training step, batch {self.stack[1]}, mean readout: "
            + " and ".join(
                f"{peak / 1e6:.0f} MB at {length:,} steps"
                for length, peak in zip(self.lengths, self.peaks, strict=True)
            )
            + f", {self.memory_ratio:.2f} times (at most {TIMES_MEMORY:g} wanted).",
            f"Our scan and torch's differ by at most {self.apart[0]:.1e}.",
        ]
        if JAX in self.stacks:
            said.insert(
                1,
                f"JAX takes {self.times(JAX):.1f} times ours (at least {TIMES_JAX:g} wanted); the "
                f"losses differ by {self.apart[1]:.1e} of their value.",
            )
        return said

    def markdown(self) -> str:
        """Return table and sentences for a page."""
        table = markdown_table(HEADER, self.rows())
        return "\n\n".join([f"{self._about}.", table, *self.sentences()]) + "\n"

    def summary(self) -> Any:
        """Return the same for a terminal."""
        from rich.console import Group

        return Group(terminal_table(HEADER, self.rows(), self._about), *self.sentences())

    def figures(self) -> dict[str, Any]:
        """Return the picture: one bar for each candidate."""
        return {"steps": step_bars(self._all, self._about, log=True)}


@benchmarks.register("linear")
def run(
    *,
    rounds: int = 5,
    quick: bool = False,
    jax: bool = True,
    tick: Callable[[str], None] | None = None,
) -> LinearBenchmark:
    """Linear recurrences beside torch's associative scan, their floor and JAX: speed and memory.

    Args:
        rounds: How often each candidate is timed.
        quick: Short sequences, to see that it works.
        jax: Whether the same stack in JAX is timed too.
        tick: Called with a candidate's name after every run.

    Example:
        >>> result = run(rounds=1, quick=True, jax=False)
        >>> result.times("torch associative_scan")
    """
    if jax:
        require_jax()
    scan, stack = ((200, 2, 8), (100, 2)) if quick else ((17_984, 8, 64), (17_984, 4))
    lengths = (64, 1024) if quick else (4096, 65_536)
    ours, theirs, apart = _scans(*scan)
    scans = interleaved({SCAN: ours, THEIRS: theirs}, rounds=rounds, tick=tick)
    network, x = _stack(), torch.randn(*stack, INPUTS)
    candidates: dict[str, Callable[[], Any]] = {
        STACK: _back(network, x),
        FLOOR: _floor(*stack),
    }
    loss_apart = None
    if jax:
        candidates[LOSS] = partial(_train, network, x)
        candidates[JAX] = jax_step(network, x)
        value = float(_train(network, x))
        loss_apart = abs(candidates[JAX]()[0] - value) / value
    stacks = interleaved(candidates, rounds=rounds, tick=tick)
    low, high = (peak_memory(_memory_work, length, stack[1]) for length in lengths)
    if tick is not None:
        tick("memory")
    return LinearBenchmark(
        torch.get_num_threads(),
        scan,
        stack,
        scans,
        stacks,
        lengths,
        (low, high),
        (apart, loss_apart),
    )


def _scans(
    steps: int, batch: int, units: int
) -> tuple[Callable[[], Any], Callable[[], Any], float]:
    """Return our scan and torch's, forward and backward, and how far apart their outputs are."""
    torch.manual_seed(0)
    kind = torch.complex64
    inputs = torch.randn(steps, batch, units, dtype=kind, requires_grad=True)
    turns = torch.polar(0.9 + 0.1 * torch.rand(units), 3 * torch.rand(units)).requires_grad_()
    weights = torch.randn(steps, batch, units, dtype=kind)
    start = torch.zeros(batch, units, dtype=kind)

    def combine(i: tuple[Tensor, Tensor], j: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        return i[0] * j[0], j[0] * i[1] + j[1]

    def ours() -> Tensor:
        return linear_scan(inputs, turns, start)[0]

    def theirs() -> Tensor:
        # Coefficients have to be there at every step, as in every associative scan.
        return associative_scan(combine, (turns.expand_as(inputs).clone(), inputs))[1]

    with torch.no_grad():
        apart = float((ours() - theirs()).abs().max())

    def both(scan: Callable[[], Tensor]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(scan(), (inputs, turns), weights)

    return both(ours), both(theirs), apart


def _stack(blocks: int = BLOCKS) -> Recurrent:
    torch.manual_seed(0)
    return models.build(
        "linoss",
        input_size=INPUTS,
        hidden_size=WIDTH,
        num_layers=blocks,
        oscillators=OSCILLATORS,
        block="layer-norm",
    )


def _back(network: Recurrent, x: Tensor) -> Callable[[], None]:
    """Return both passes, given the gradient of the outputs, as the floor is given its own."""
    weights = torch.randn(*x.shape[:2], WIDTH)

    def run() -> None:
        network.zero_grad()
        network(x)[0].backward(weights)

    return run


def _train(network: Recurrent, x: Tensor) -> Tensor:
    """A training step without its update."""
    network.zero_grad()
    loss = network(x)[0].square().mean()
    loss.backward()
    return loss.detach()


def _floor(steps: int, batch: int) -> Callable[[], None]:
    """Return all products of the stack and all scans, with nothing between them."""
    rows, shown = steps * batch, 2 * OSCILLATORS
    shapes = [(INPUTS, WIDTH), *[(WIDTH, shown), (shown, WIDTH), (WIDTH, 2 * WIDTH)] * BLOCKS]
    given = {width: torch.randn(rows, width) for width in {w for shape in shapes for w in shape}}
    matrices = [torch.randn(shape) for shape in shapes]
    drive = torch.randn(steps, batch, shown, requires_grad=True)
    keep, pull, step = (torch.rand(shown).requires_grad_() for _ in range(3))
    state = (torch.zeros(batch, shown), torch.zeros(batch, shown))
    weights = torch.randn(steps, batch, shown)

    def run() -> None:
        for matrix in matrices:
            read, made = matrix.shape
            torch.mm(given[read], matrix)
            torch.mm(given[read].t(), given[made])
            if read != INPUTS:  # nobody asks for the gradient of the input
                torch.mm(given[made], matrix.t())
        for _ in range(BLOCKS):
            output, _ = linear_oscillator_scan(drive, keep, pull, step, step, state)
            torch.autograd.grad(output, (drive, keep, pull, step), weights)

    return run


def _memory_work(steps: int, batch: int) -> Callable[[], None]:
    """Prepare a pass in a fresh process: libraries, kernels and input are in place before."""
    network = _stack()

    def train(x: Tensor) -> None:
        network.zero_grad()
        network.mean(x)[0].square().mean().backward()

    train(torch.randn(4, batch, INPUTS))
    return partial(train, torch.randn(steps, batch, INPUTS))
