"""Gradient norms over time and memory against length, after training on denoise: figure 4.2.

The hidden state of a step is used by the next step and is stored besides. The gradient with respect
to a zero that is added to the state before either contains both paths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from undamped._base.memory import peak_memory
from undamped._base.registry import tasks
from undamped.lab.papers.recall_networks import NetworkSetup, TrainedNetwork
from undamped.lab.report.charts import draw_lines, label, line_style, panels
from undamped.lab.report.table import Report, Table
from undamped.lab.tasks.copying import RECALLED
from undamped.models.sequence_model import SequenceModel

GRADIENT_SEQUENCES = 4
MEMORY_SEQUENCES = 10
SHORTEST = 21
"""The shortest sequence of the denoise task."""


def hidden_gradients(
    model: SequenceModel, task_name: str, delay: int, sequences: int
) -> list[float]:
    """Return ‖∂L/∂h_t‖ for every step t, with L the loss on the recalled symbols.

    Args:
        model: A model with one layer in one direction.
        task_name: "copy" or "denoise".
        delay: The delay of the sequences.
        sequences: Number of sequences that the norm is averaged over.
    """
    task: Any = tasks.build(task_name, delay=delay, seed=0)
    batch = task.batch("test", 0, sequences)
    model.eval()
    prediction, zeros = _forward_with_zeros(model, batch.inputs)
    recalled, targets = prediction[-RECALLED:], batch.targets[-RECALLED:]
    loss = cross_entropy(recalled.flatten(0, 1), targets.flatten())
    gradients = torch.autograd.grad(loss, zeros)
    # The loss is a mean over sequences; the norm is that of a single sequence.
    return [float(gradient.norm(dim=1).mean()) * sequences for gradient in gradients]


def _forward_with_zeros(model: SequenceModel, inputs: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Run step by step; return the outputs and the zeros that were added to the hidden states."""
    cell: Any = model.network.cell(0)
    inner = getattr(cell, "recurrence", cell)
    advance, zeros, outputs = inner.advance, [], []

    def advance_with_zero(projected: Tensor, state: Any, constants: Any) -> Any:
        hidden, *rest = advance(projected, state, constants)
        if len(zeros) > len(outputs):  # a second call within a step, for a hypothetical state
            return hidden, *rest
        zeros.append(torch.zeros_like(hidden, requires_grad=True))
        return hidden + zeros[-1], *rest

    x = model.encode(inputs)
    state, constants = cell.initial_state(x.shape[1], x), cell.constants()
    inner.advance = advance_with_zero
    try:
        for projected in cell.project(x):
            state = cell.advance(projected, state, constants)
            outputs.append(cell.output(state))
    finally:
        del inner.advance
    return model.head(torch.stack(outputs)), zeros


def decades(norms: Sequence[float]) -> float:
    """Return log₁₀ of the norm at the first step over that at the last step before the answers."""
    end = max(1, len(norms) - 11)
    first, last = (sum(norms[start : start + 5]) for start in (0, max(0, end - 5)))
    return math.log10(first / last) if first > 0 and last > 0 else -math.inf


def add_gradients_and_memory(
    report: Report,
    networks: Sequence[tuple[TrainedNetwork, NetworkSetup]],
    delay: int,
    lengths: Sequence[int],
    budget: Mapping[str, Any],
) -> Report:
    """Measure the gradients of trained networks and the memory of a training step.

    Args:
        report: The report to add the measurements to.
        networks: The networks and their settings.
        delay: The delay of the sequences whose gradients are measured.
        lengths: The lengths at which memory is measured.
        budget: All options of `RecallOptions`.
    """
    gradients: dict[str, list[float]] = {}
    peaks: dict[str, list[int]] = {}
    for trained, setup in networks:
        name = trained.network
        budget["progress"](f"{name}: gradients and memory")
        gradients[name] = hidden_gradients(trained.model(), "denoise", delay, GRADIENT_SEQUENCES)
        options = {"hidden_size": budget["units"], **setup.options}
        peaks[name] = [
            peak_memory(_training_step, setup.model, options, length) for length in lengths
        ]
    title = (
        f"Gradients of the loss on the ten symbols, T = {delay}: change of ‖∂L/∂h‖ in decades from "
        "the last step of the noise to the first. Memory of a forward and backward pass of "
        f"{MEMORY_SEQUENCES} sequences."
    )
    rows = [
        (name, f"{decades(norms):+.1f}", *(f"{peak / 1e6:.0f}" for peak in peaks[name]))
        for name, norms in gradients.items()
    ]
    header = ("network", "decades", *(f"MB at {length}" for length in lengths))
    measured = {"delay": delay, "gradients": gradients, "lengths": list(lengths), "peaks": peaks}
    return replace(
        report,
        tables=[*report.tables, Table(header, rows, title)],
        plots={**report.plots, "gradients-and-memory": lambda: _figure(gradients, lengths, peaks)},
        numbers={**report.numbers, "gradients_and_memory": measured},
    )


def _figure(
    gradients: Mapping[str, list[float]], lengths: Sequence[int], peaks: Mapping[str, list[int]]
) -> Any:
    figure, (decay, memory) = panels(11, 4.2, columns=2)
    draw_lines(
        decay,
        {
            name: (range(len(norms)), [norm if norm > 0 else math.nan for norm in norms])
            for name, norms in gradients.items()
        },
    )
    title = "A line that falls to the left: vanishing gradients"
    label(decay, "step t", "‖∂L/∂h(t)‖", title, log="y", legend=False)
    for index, (name, sizes) in enumerate(peaks.items()):
        megabytes = [size / 1e6 for size in sizes]
        memory.plot(lengths, megabytes, "o", label=name, **line_style(index))
    title = "A slope of two is quadratic growth"
    label(memory, "steps T of a sequence", "memory of a training step (MB)", title, log="xy")
    return figure


def _training_step(model: str, options: dict[str, Any], length: int) -> Callable[[], None]:
    """Prepare a pass in a new process; libraries and kernels are loaded before the measurement."""
    from undamped.models.for_task import model_for

    task: Any = tasks.build("denoise", delay=length - 20)
    network = model_for(task.task_shape, model, options)
    network.train()

    def step(delay: int) -> None:
        task: Any = tasks.build("denoise", delay=delay)
        batch = task.batch("train", 0, MEMORY_SEQUENCES)
        task.loss(network.run(batch)[0], batch).backward()

    step(1)
    return partial(step, length - 20)
