"""A model as an ONNX file that takes one sample of a stream, with state in and out."""

from __future__ import annotations

import numpy as np
import onnx
import torch

from undamped._base.errors import OptionError
from undamped.lab.export.graph import Graph
from undamped.lab.export.layers import declare_answers, head, output_of, sizes_of, step_layer
from undamped.lab.export.samples import WIDE, encode, prepare_sample
from undamped.lab.export.sequence import SHARED
from undamped.lab.export.subject import Subject, export_form


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
    network, dtype = subject.network, subject.dtype
    if network.bidirectional:
        raise OptionError(
            "A bidirectional network cannot be exported as a single step. Export whole sequences."
        )
    graph = Graph()
    samples = graph.input("samples", subject.sample_dtype, ("batch", *subject.sample_shape))
    batch = graph.node("Shape", samples, start=0, end=1)
    feedback = _Feedback(graph, batch)
    vectors = _vectors(graph, subject, samples, feedback)
    cells = network.num_layers
    starts = {
        name: feedback.take(name, start, (cells, SHARED, start.shape[-1]))
        for name, start in subject.starts().items()
    }
    outputs, finals = [vectors], {name: [] for name in starts}
    for layer in range(cells):
        cell, index = network.cell(layer), graph.constant(np.array(layer))
        sources = [outputs[i] for i in subject.sources(layer)]
        source = sources[0] if len(sources) == 1 else graph.node("Concat", *sources, axis=-1)
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
        return encode(graph, subject, samples)
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
