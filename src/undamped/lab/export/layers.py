"""Layers, readout and outputs of a model as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from undamped.lab.export.graph import Graph, element_kind
from undamped.lab.export.operators import apply
from undamped.lab.export.subject import Subject
from undamped.nn.bases.cell import Cell


def step_layer(
    graph: Graph, cell: Cell, x: str, state: Sequence[str], dtype: torch.dtype
) -> list[str]:
    """Advance a cell by one sample (batch, input); return its new state."""
    projected, size = _project(graph, cell, x, dtype)
    return _advance(graph, cell, projected, size, state, dtype)


def scan_layer(
    graph: Graph,
    cell: Cell,
    x: str,
    state: Sequence[str],
    running: str,
    dtype: torch.dtype,
    *,
    every: bool,
) -> tuple[str | None, list[str]]:
    """Scan a sequence with a cell.

    Args:
        graph: The graph to which nodes are added.
        cell: The cell.
        x: (time, batch, input).
        state: One (batch, size) for each part of the state.
        running: (time, batch, 1), false where a sequence is over: there the state stays as it is
            and the output is zero.
        dtype: The type of everything but `running`.
        every: Whether outputs at all steps are needed.

    Returns:
        The outputs (time, batch, output) if they are needed, and the state at the end.
    """
    flat = graph.node("Reshape", x, graph.integers(-1, cell.input_size))
    projected, size = _project(graph, cell, flat, dtype)
    times = graph.node("Shape", x, start=0, end=2)
    sizes = graph.node("Concat", times, graph.integers(size), axis=0)
    sequence = graph.node("Reshape", projected, sizes)
    names = cell.state_names

    def step(inner: Graph, values: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        old = [values[name] for name in names]
        advanced = _advance(inner, cell, values["projected"], size, old, dtype)
        state_after = [
            inner.node("Where", values["running"], new, before)
            for new, before in zip(advanced, old, strict=True)
        ]
        step_outputs = []
        if every:
            zero = inner.constant(torch.zeros((), dtype=dtype))
            output = output_of(inner, cell, state_after, dtype)
            step_outputs = [inner.node("Where", values["running"], output, zero)]
        return dict(zip(names, state_after, strict=True)), step_outputs

    last, outputs = graph.scan(
        {name: (value, dtype) for name, value in zip(names, state, strict=True)},
        {"projected": (sequence, dtype), "running": (running, torch.bool)},
        step,
        [dtype] if every else [],
    )
    return (outputs[0] if every else None), [last[name] for name in names]


def sizes_of(cell: Cell) -> list[int]:
    """Return the number of features of each part of a state of constant size."""
    sizes = [size for size in cell.state_sizes if size is not None]
    assert len(sizes) == len(cell.state_sizes)
    return sizes


def output_of(graph: Graph, cell: Cell, state: Sequence[str], dtype: torch.dtype) -> str:
    """Return the output of a cell for a state."""
    inputs = list(zip(state, sizes_of(cell), strict=True))
    return apply(graph, lambda *parts: cell.output(parts), inputs, dtype)[0]


def _project(graph: Graph, cell: Cell, x: str, dtype: torch.dtype) -> tuple[str, int]:
    (projected,) = apply(graph, cell.project, [(x, cell.input_size)], dtype)
    with torch.inference_mode():
        size = cell.project(torch.zeros(1, cell.input_size, dtype=dtype)).shape[-1]
    return projected, size


def _advance(
    graph: Graph, cell: Cell, projected: str, size: int, state: Sequence[str], dtype: torch.dtype
) -> list[str]:
    with torch.no_grad():
        constants = cell.constants()

    def advance(into: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        return cell.advance(into, parts, constants)

    inputs = [(projected, size), *zip(state, sizes_of(cell), strict=True)]
    return apply(graph, advance, inputs, dtype)


def head(graph: Graph, subject: Subject, features: str) -> str:
    """Apply the readout to rows (rows, features)."""
    layer = subject.model.head
    return apply(graph, layer, [(features, layer.in_features)], subject.dtype)[0]


def declare_answers(graph: Graph, subject: Subject, outputs: str, leading: tuple[str, ...]) -> None:
    """Declare the outputs of the file: scores and probabilities of classes, or numbers.

    Args:
        graph: The graph to which nodes are added.
        subject: The model.
        outputs: The outputs of the head, (*leading, output).
        leading: The names of the dimensions before the last one.
    """
    size, dtype = subject.model.head.out_features, subject.dtype
    if subject.classes is not None:
        graph.output("scores", outputs, dtype, (*leading, size))
        probabilities = graph.node("Softmax", outputs, axis=-1)
        graph.output("probabilities", probabilities, dtype, (*leading, size))
        return
    prepared = subject.preparation
    if prepared is None:
        graph.output("values", outputs, dtype, (*leading, size))
        return
    shape: tuple[int | str, ...] = (*leading, size)
    mean, std = np.array(prepared.target_mean), np.array(prepared.target_std)
    if prepared.kind == "forecast":
        shape = (*leading, prepared.horizon, len(prepared.forecast))
        if prepared.quantiles:  # in the order of the network's outputs
            shape, mean, std = (*shape, len(prepared.quantiles)), mean[:, None], std[:, None]
        leading_sizes = graph.node("Shape", outputs, start=0, end=len(leading))
        steps = graph.integers(*shape[len(leading) :])  # type: ignore[arg-type]
        outputs = graph.node("Reshape", outputs, graph.node("Concat", leading_sizes, steps, axis=0))
    # In float64, because the mean may be large compared with the variation.
    wide = graph.node("Cast", outputs, to=element_kind(torch.float64))
    wide = graph.node("Mul", wide, graph.constant(std))
    wide = graph.node("Add", wide, graph.constant(mean))
    graph.output("values", wide, torch.float64, shape)
