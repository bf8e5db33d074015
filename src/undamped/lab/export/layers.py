"""One layer of a network as ONNX nodes: over a whole sequence, and for a single step."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from undamped.lab.export.graph import Graph
from undamped.lab.export.operators import apply
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
        graph: Where the nodes go.
        cell: The cell.
        x: (time, batch, input).
        state: One (batch, size) for each part of the state.
        running: (time, batch, 1), false where a sequence is over: there the state stays as it is
            and the output is zero.
        dtype: The type of everything but `running`.
        every: Whether outputs are wanted.

    Returns:
        The outputs (time, batch, output) if they are wanted, and the state at the end.
    """
    flat = graph.node("Reshape", x, graph.whole(-1, cell.input_size))
    projected, size = _project(graph, cell, flat, dtype)
    times = graph.node("Shape", x, start=0, end=2)
    places = graph.node("Concat", times, graph.whole(size), axis=0)
    sequence = graph.node("Reshape", projected, places)
    names = cell.state_names

    def step(inner: Graph, values: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        old = [values[name] for name in names]
        advanced = _advance(inner, cell, values["projected"], size, old, dtype)
        kept = [
            inner.node("Where", values["running"], new, before)
            for new, before in zip(advanced, old, strict=True)
        ]
        written = []
        if every:
            zero = inner.constant(torch.zeros((), dtype=dtype))
            seen = output_of(inner, cell, kept, dtype)
            written = [inner.node("Where", values["running"], seen, zero)]
        return dict(zip(names, kept, strict=True)), written

    last, outputs = graph.scan(
        {name: (value, dtype) for name, value in zip(names, state, strict=True)},
        {"projected": (sequence, dtype), "running": (running, torch.bool)},
        step,
        [dtype] if every else [],
    )
    return (outputs[0] if every else None), [last[name] for name in names]


def sizes_of(cell: Cell) -> list[int]:
    """Return the number of features of each part of a state; networks whose state grows are refused
    before."""
    sizes = [size for size in cell.state_sizes if size is not None]
    assert len(sizes) == len(cell.state_sizes)
    return sizes


def output_of(graph: Graph, cell: Cell, state: Sequence[str], dtype: torch.dtype) -> str:
    """Return what the next layer sees of a state."""
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
