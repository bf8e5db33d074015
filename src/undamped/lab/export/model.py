"""A model as an ONNX file that reads whole sequences, or one sample with state in and out."""

from __future__ import annotations

import numpy as np
import onnx
import torch

from undamped._base.errors import OptionError
from undamped.lab.export.bank_model import raw_inputs, scan_bank, step_bank
from undamped.lab.export.graph import Graph
from undamped.lab.export.layers import (
    WIDE,
    declare_answers,
    encode,
    head,
    output_of,
    prepare_sample,
    prepare_sequence,
    scan_layer,
    sizes_of,
    step_layer,
)
from undamped.lab.export.subject import Subject, export_form

SHARED = "batch or 1"
"""A dimension that is either the batch or 1, for values that the whole batch shares."""


def sequence_model(subject: Subject) -> onnx.ModelProto:
    """Return the ONNX model of whole sequences.

    Inputs: `samples` (batch, time, channels), or (batch, time) for symbols; `times`
    (batch, time) if the model uses timestamps. Optional inputs: `lengths` (batch,), the true length
    of each sequence, if not all of them are full; the initial state (cells, batch, size), one input
    for each part of it.

    Outputs: `scores` and `probabilities`, or `values`, at the end of each sequence or at each of
    its steps; the state at the end, `…_out`.
    """
    subject = export_form(subject)
    graph, dtype = Graph(), subject.dtype
    shape = ("batch", "time", *subject.sample_shape)
    samples = graph.input("samples", subject.sample_dtype, shape)
    x = _time_first(graph, samples, len(shape))
    prepared = subject.preparation
    times = None
    if prepared is not None and prepared.timestamps:
        raw_times = graph.input("times", torch.float64, ("batch", "time"))
        times = _time_first(graph, raw_times, 2)
    lengths, running = _lengths(graph, x)
    if prepared is not None:
        vectors = prepare_sequence(graph, subject, x, times, running)
    elif subject.is_bank:
        vectors = raw_inputs(graph, subject, x)
    else:
        symbols = subject.model.input_kind == "symbols"
        over = graph.node("Squeeze", running, graph.integers(2)) if symbols else running
        zero = graph.constant(torch.zeros((), dtype=subject.sample_dtype))
        vectors = encode(graph, subject, graph.node("Where", over, x, zero))
    clean = graph.node("Where", running, vectors, graph.constant(torch.zeros((), dtype=dtype)))
    if subject.is_bank:
        return scan_bank(graph, subject, clean, running)
    output, ends, finals = _network(graph, subject, clean, lengths, running)
    if subject.model.readout == "every":
        assert output is not None
        size = subject.model.head.in_features
        flat = head(graph, subject, graph.node("Reshape", output, graph.integers(-1, size)))
        leading = graph.node("Shape", output, start=0, end=2)
        ending = graph.integers(subject.model.head.out_features)
        answers = graph.node("Reshape", flat, graph.node("Concat", leading, ending, axis=0))
        batch_first = graph.node("Transpose", answers, perm=[1, 0, 2])
        declare_answers(graph, subject, batch_first, ("batch", "time"))
    else:
        if subject.model.readout == "mean":
            assert output is not None
            total = graph.node("ReduceSum", output, graph.integers(0), keepdims=0)
            count = graph.node(
                "CastLike", graph.node("Unsqueeze", lengths, graph.integers(1)), total
            )
            ends = graph.node("Div", total, count)
        declare_answers(graph, subject, head(graph, subject, ends), ("batch",))
    cells = len(subject.network.cells)
    sizes = sizes_of(subject.network.cell(0))
    for (name, value), size in zip(finals.items(), sizes, strict=True):
        graph.output(f"{name}_out", value, dtype, (cells, "batch", size))
    return graph.model(subject.metadata())


def _network(
    graph: Graph, subject: Subject, x: str, lengths: str, running: str
) -> tuple[str | None, str, dict[str, str]]:
    """Run all layers; return all outputs (or None), the last outputs, and the states."""
    network, dtype = subject.network, subject.dtype
    batch = graph.node("Shape", x, start=1, end=2)
    starts = _states(graph, subject, batch)
    finals: dict[str, list[str]] = {name: [] for name in starts}
    outputs: list[str] = [x]
    ends: list[str] = []
    for layer in range(network.num_layers):
        source = _concatenated(graph, [outputs[i] for i in subject.sources(layer)])
        top = layer == network.num_layers - 1
        every, both, ends = not top or subject.model.readout != "last", [], []
        for direction in range(network.directions):
            cell, index = network.cell(layer, direction), layer * network.directions + direction
            sequence = _reversed(graph, source, lengths) if direction else source
            state = [parts[index] for parts in starts.values()]
            output, final = scan_layer(graph, cell, sequence, state, running, dtype, every=every)
            if output is not None:
                both.append(_reversed(graph, output, lengths) if direction else output)
            ends.append(output_of(graph, cell, final, dtype))
            for name, value in zip(finals, final, strict=True):
                finals[name].append(graph.node("Unsqueeze", value, graph.integers(0)))
        if both:
            outputs.append(_concatenated(graph, both))
    joined = {name: graph.node("Concat", *values, axis=0) for name, values in finals.items()}
    every_output = None if subject.model.readout == "last" else outputs[-1]
    return every_output, _concatenated(graph, ends), joined


def _states(graph: Graph, subject: Subject, batch: str) -> dict[str, list[str]]:
    """Declare the initial state as inputs; return it for each cell, (batch, size) each."""
    network, states = subject.network, {}
    cells = len(network.cells)
    for name, start in subject.starts().items():
        size = start.shape[-1]
        shape = graph.node("Concat", batch, graph.integers(size), axis=0)
        initial = graph.optional_input(name, start, (cells, SHARED, size))
        parts = [
            graph.node("Gather", initial, graph.constant(np.array(i)), axis=0) for i in range(cells)
        ]
        states[name] = [graph.node("Expand", part, shape) for part in parts]
    return states


def _lengths(graph: Graph, x: str) -> tuple[str, str]:
    """Declare lengths; return (batch,) and which steps are running, (time, batch, 1)."""
    longest = torch.tensor([torch.iinfo(torch.int64).max])
    true_lengths = graph.optional_input("lengths", longest, (SHARED,))
    time = graph.node("Shape", x, start=0, end=1)
    batch = graph.node("Shape", x, start=1, end=2)
    lengths = graph.node("Expand", graph.node("Min", true_lengths, time), batch)
    start, increment = graph.constant(np.array(0)), graph.constant(np.array(1))
    steps = graph.node("Range", start, graph.node("Squeeze", time, graph.integers(0)), increment)
    column = graph.node("Unsqueeze", steps, graph.integers(1))
    running = graph.node("Less", column, lengths)
    return lengths, graph.node("Unsqueeze", running, graph.integers(2))


def _reversed(graph: Graph, x: str, lengths: str) -> str:
    return graph.node("ReverseSequence", x, lengths, time_axis=0, batch_axis=1)


def _time_first(graph: Graph, x: str, dimensions: int) -> str:
    return graph.node("Transpose", x, perm=[1, 0, 2][:dimensions])


def _concatenated(graph: Graph, parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else graph.node("Concat", *parts, axis=-1)


def step_model(subject: Subject) -> onnx.ModelProto:
    """Return the ONNX model of a single step.

    Inputs: `samples` (batch, channels), or (batch,) for symbols; `times` (batch,) if the time
    between steps is a feature. Optional inputs, which are omitted at the first step: the state
    (cells, batch, size), the last observed values (`held`), the time of the previous step
    (`time_before`), the sum and the number of outputs if the readout is their mean (`total`,
    `count`).

    Outputs: the answer so far, and for every optional input its next value, `…_out`.
    """
    subject = export_form(subject)
    if not subject.is_bank and subject.network.bidirectional:
        raise OptionError(
            "A bidirectional network cannot be exported as a single step. Export whole sequences."
        )
    graph = Graph()
    samples = graph.input("samples", subject.sample_dtype, ("batch", *subject.sample_shape))
    batch = graph.node("Shape", samples, start=0, end=1)
    feedback = _Feedback(graph, batch)
    vectors = _vectors(graph, subject, samples, feedback)
    if subject.is_bank:
        return step_bank(graph, subject, vectors, feedback)
    network, dtype = subject.network, subject.dtype
    cells = network.num_layers
    starts = {
        name: feedback.take(name, start, (cells, SHARED, start.shape[-1]))
        for name, start in subject.starts().items()
    }
    outputs, finals = [vectors], {name: [] for name in starts}
    for layer in range(cells):
        cell, index = network.cell(layer), graph.constant(np.array(layer))
        source = _concatenated(graph, [outputs[i] for i in subject.sources(layer)])
        state = [graph.node("Gather", part, index, axis=0) for part in starts.values()]
        final = step_layer(graph, cell, source, state, dtype)
        outputs.append(output_of(graph, cell, final, dtype))
        for name, value in zip(finals, final, strict=True):
            finals[name].append(graph.node("Unsqueeze", value, graph.integers(0)))
    features = outputs[-1]
    if subject.model.readout == "mean":
        features = _running_mean(graph, subject, features, feedback)
    declare_answers(graph, subject, head(graph, subject, features), ("batch",))
    for (name, values), size in zip(finals.items(), sizes_of(network.cell(0)), strict=True):
        joined = graph.node("Concat", *values, axis=0)
        graph.output(f"{name}_out", joined, dtype, (cells, "batch", size))
    feedback.declare_outputs()
    return graph.model(subject.metadata())


class _Feedback:
    """Outputs of a step that are inputs of the next one."""

    def __init__(self, graph: Graph, batch: str) -> None:
        self._graph = graph
        self._batch = batch
        self._next: list[tuple[str, str, torch.dtype, tuple[int | str, ...]]] = []

    def take(self, name: str, start: torch.Tensor, shape: tuple[int | str, ...]) -> str:
        """Declare an input; return it expanded to the batch size."""
        initial = self._graph.optional_input(name, start, shape)
        unit = self._graph.integers(1)
        parts = [self._batch if part == SHARED else unit for part in shape]
        return self._graph.node("Expand", initial, self._graph.node("Concat", *parts, axis=0))

    def give(self, name: str, value: str, dtype: torch.dtype, shape: tuple[int | str, ...]) -> None:
        """Set the value for the next step."""
        shape = tuple("batch" if part == SHARED else part for part in shape)
        self._next.append((f"{name}_out", value, dtype, shape))

    def declare_outputs(self) -> None:
        """Declare the outputs, after answers and states."""
        for name, value, dtype, shape in self._next:
            self._graph.output(name, value, dtype, shape)


def _vectors(graph: Graph, subject: Subject, samples: str, feedback: _Feedback) -> str:
    prepared = subject.preparation
    if prepared is None:
        return (raw_inputs if subject.is_bank else encode)(graph, subject, samples)
    shape = (SHARED, len(prepared.channels))
    last_values = feedback.take("held", torch.zeros(1, shape[1], dtype=WIDE), shape)
    time = before = None
    if prepared.timestamps:
        time = graph.input("times", WIDE, ("batch",))
        missing = torch.tensor([torch.nan], dtype=WIDE)
        before = feedback.take("time_before", missing, (SHARED,))
        feedback.give("time_before", time, WIDE, (SHARED,))
    vectors, filled = prepare_sample(graph, subject, samples, time, last_values, before)
    feedback.give("held", filled, WIDE, shape)
    return vectors


def _running_mean(graph: Graph, subject: Subject, features: str, feedback: _Feedback) -> str:
    # In float64, because float32 cannot count the steps of a long stream.
    size = subject.model.head.in_features
    total = feedback.take("total", torch.zeros(1, size, dtype=WIDE), (SHARED, size))
    count = feedback.take("count", torch.zeros(1, 1, dtype=WIDE), (SHARED, 1))
    total = graph.node("Add", total, graph.node("CastLike", features, total))
    count = graph.node("Add", count, graph.constant(torch.ones((), dtype=WIDE)))
    feedback.give("total", total, WIDE, (SHARED, size))
    feedback.give("count", count, WIDE, (SHARED, 1))
    return graph.node("CastLike", graph.node("Div", total, count), features)
