"""Inputs, layers, readout and outputs of a model as ONNX nodes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.export.graph import Graph, element_kind
from undamped.lab.export.operators import apply
from undamped.lab.export.subject import Subject
from undamped.nn.bases.cell import Cell

WIDE = torch.float64
"""Samples are prepared in double precision, as `Preparation` does."""


def encode(graph: Graph, subject: Subject, x: str) -> str:
    """Convert symbols or pixels to vectors; vectors without preparation stay the same."""
    model, to = subject.model, element_kind(subject.dtype)
    if model.input_kind == "pixels":
        pixels = graph.node("Cast", x, to=to)
        return graph.node("Div", pixels, graph.constant(torch.tensor(255, dtype=subject.dtype)))
    if model.input_kind != "symbols":
        return x
    if model.embedding is not None:
        return graph.node("Gather", graph.constant(model.embedding.weight), x, axis=0)
    # OneHot accepts any integer. The lookup in a list of zeros raises an error for integers that
    # are not symbols, and changes nothing otherwise.
    zeros = graph.constant(np.zeros(model.input_size, dtype=np.int64))
    symbols = graph.node("Add", x, graph.node("Gather", zeros, x, axis=0))
    values = graph.constant(torch.tensor([0, 1], dtype=subject.dtype))
    return graph.node("OneHot", symbols, graph.integers(model.input_size), values, axis=-1)


def standardise(graph: Graph, prepared: Preparation, x: str) -> str:
    """Select the channels of the model and standardise them, (…, channels) in float64."""
    if prepared.channels != prepared.raw_channels:
        indices = [prepared.raw_channels.index(name) for name in prepared.channels]
        x = graph.node("Gather", x, graph.integers(*indices), axis=-1)
    wide = graph.node("Cast", x, to=element_kind(WIDE))
    wide = graph.node("Sub", wide, graph.constant(np.array(prepared.mean)))
    return graph.node("Div", wide, graph.constant(np.array(prepared.std)))


def features(graph: Graph, subject: Subject, parts: list[str]) -> str:
    """Concatenate features in the type of the network."""
    to = element_kind(subject.dtype)
    cast = [graph.node("Cast", part, to=to) for part in parts]
    return cast[0] if len(cast) == 1 else graph.node("Concat", *cast, axis=-1)


def is_observed(graph: Graph, x: str) -> str:
    """Return where values are not missing."""
    return graph.node("Not", graph.node("IsNaN", x))


def gap_feature(graph: Graph, subject: Subject, gap: str) -> str:
    """Return the feature of a time between steps: ln(1 + gap/typical), for a bank gap/typical."""
    assert subject.preparation is not None
    unit_gap = subject.model.dynamics.gap if subject.is_bank else subject.model.gap
    typical = graph.constant(np.array(subject.preparation.typical_gap * unit_gap))
    if subject.is_bank:
        return graph.node("Div", gap, typical)
    unit = graph.constant(np.array(1.0))
    return graph.node("Log", graph.node("Add", unit, graph.node("Div", gap, typical)))


def prepare_sequence(
    graph: Graph, subject: Subject, x: str, times: str | None, running: str
) -> str:
    """Prepare whole sequences (time, batch, channels); the values of padding are ignored.

    Args:
        graph: The graph to which nodes are added.
        subject: The model with its preparation.
        x: (time, batch, channels).
        times: (time, batch), if the model uses timestamps.
        running: (time, batch, 1), false where a sequence is over.
    """
    prepared = subject.preparation
    assert prepared is not None
    missing = graph.constant(np.array(np.nan))
    values = graph.node("Where", running, standardise(graph, prepared, x), missing)
    observed = is_observed(graph, values)
    if prepared.missing == "mask":
        parts = [_fill_forward(graph, values, observed, _steps(graph, values))[0], observed]
    elif times is None:
        parts = [_interpolated(graph, values, observed, _steps(graph, values))]
        parts += _all_observed(graph, subject, observed)
    else:
        first = graph.node("Slice", times, graph.integers(0), graph.integers(1), graph.integers(0))
        since = graph.node("Unsqueeze", graph.node("Sub", times, first), graph.integers(2))
        parts = [_interpolated(graph, values, observed, since)]
        parts += _all_observed(graph, subject, observed)
    if times is not None:
        integers, end = graph.integers, np.iinfo(np.int64).max
        later = graph.node("Slice", times, integers(1), integers(end), integers(0))
        earlier = graph.node("Slice", times, integers(0), integers(-1), integers(0))
        gaps = gap_feature(graph, subject, graph.node("Sub", later, earlier))
        pads = integers(1, 0, 0, 0)  # the first step has no gap before it: 0
        padded = graph.node("Pad", gaps, pads)
        parts.append(graph.node("Unsqueeze", padded, integers(2)))
    return features(graph, subject, parts)


def _all_observed(graph: Graph, subject: Subject, observed: str) -> list[str]:
    """Return the mask of a bank where gaps are filled: true everywhere; nothing for a network."""
    return [graph.node("Or", observed, graph.node("Not", observed))] if subject.is_bank else []


def _fill_forward(
    graph: Graph, values: str, observed: str, steps: str, *, backwards: bool = False
) -> list[str]:
    """Return the last observed value and its time; 0 and −1 if there is none.

    Args:
        graph: The graph to which nodes are added.
        values: (time, batch, channels).
        observed: Which of them are observed.
        steps: (time, 1, 1) or (time, batch, 1), the time of each step.
        backwards: Whether to start at the end.
    """
    shape = graph.node("Shape", values, start=1)
    zeros = graph.node("Expand", graph.constant(np.array(0.0)), shape)
    none = graph.node("Expand", graph.constant(np.array(-1.0)), shape)

    def step(inner: Graph, now: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        value = inner.node("Where", now["observed"], now["values"], now["value"])
        when = inner.node("Where", now["observed"], now["step"], now["when"])
        return {"value": value, "when": when}, [value, when]

    sequences = {
        "values": (values, WIDE),
        "observed": (observed, torch.bool),
        "step": (steps, WIDE),
    }
    states = {"value": (zeros, WIDE), "when": (none, WIDE)}
    return graph.scan(states, sequences, step, [WIDE, WIDE], backwards=backwards)[1]


def _interpolated(graph: Graph, values: str, observed: str, steps: str) -> str:
    """Interpolate missing values linearly; use the nearest value at the ends, 0 without any."""
    last, last_time = _fill_forward(graph, values, observed, steps)
    next_, next_time = _fill_forward(graph, values, observed, steps, backwards=True)
    zero = graph.constant(np.array(0.0))
    no_last, no_next = (graph.node("Less", time, zero) for time in (last_time, next_time))
    # Where one side is missing, the other one is used for both; where both are, both are 0.
    start = graph.node("Where", no_last, next_, last)
    end = graph.node("Where", no_next, last, next_)
    # Where a side is missing there is no slope, and no width to divide by.
    undefined = graph.node("Or", graph.node("Or", no_last, no_next), observed)
    width = graph.node("Sub", next_time, last_time)
    width = graph.node("Where", undefined, graph.constant(np.array(1.0)), width)
    slope = graph.node("Div", graph.node("Sub", end, start), width)
    rise = graph.node("Mul", slope, graph.node("Sub", steps, last_time))
    return graph.node("Where", observed, values, graph.node("Add", start, rise))


def _steps(graph: Graph, values: str) -> str:
    """0, 1, 2, … for each step of a sequence, (time, 1, 1)."""
    count = graph.node("Squeeze", graph.node("Shape", values, start=0, end=1), graph.integers(0))
    start, increment = graph.constant(np.array(0)), graph.constant(np.array(1))
    steps = graph.node("Cast", graph.node("Range", start, count, increment), to=element_kind(WIDE))
    return graph.node("Unsqueeze", steps, graph.integers(1, 2))


def prepare_sample(
    graph: Graph, subject: Subject, x: str, time: str | None, last_values: str, before: str | None
) -> tuple[str, str]:
    """Prepare one sample (batch, channels) of a stream.

    Args:
        graph: The graph to which nodes are added.
        subject: The model with its preparation.
        x: (batch, channels).
        time: (batch,) the time of the sample, if the model uses timestamps.
        last_values: (batch, channels) the last observed values, standardised.
        before: (batch,) the time of the previous sample; NaN if there is none.

    Returns:
        The features (batch, features), and the last observed values.
    """
    prepared = subject.preparation
    assert prepared is not None
    values = standardise(graph, prepared, x)
    observed = is_observed(graph, values)
    filled = graph.node("Where", observed, values, last_values)
    parts = [filled, observed]
    if prepared.missing != "mask":
        parts[1:] = _all_observed(graph, subject, observed)
    if time is not None and before is not None:
        gap = gap_feature(graph, subject, graph.node("Sub", time, before))
        first = graph.node("IsNaN", before)
        gap_or_zero = graph.node("Where", first, graph.constant(np.array(0.0)), gap)
        parts.append(graph.node("Unsqueeze", gap_or_zero, graph.integers(1)))
    return features(graph, subject, parts), filled


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
    size, dtype = subject.output_size, subject.dtype
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
