"""A model as an ONNX file that takes one sample of a stream, with state in and out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from undamped._base.errors import OptionError, explain
from undamped.lab.export.answers import declare_answers, head
from undamped.lab.export.graph import Graph
from undamped.lab.export.layers import output_of, sizes_of, step_layer
from undamped.lab.export.samples import WIDE, encode, prepare_sample
from undamped.lab.export.sequence import SHARED
from undamped.lab.export.subject import Subject, export_form

if TYPE_CHECKING:
    import onnx


def step_model(subject: Subject) -> onnx.ModelProto:
    """Return the ONNX model of a single step.

    Inputs: `samples` (batch, channels), or (batch,) for symbols; `times` (batch,) if the time
    between steps is a feature; and everything that is carried from step to step, which is left
    out at the first step: the state (cells, batch, size), the last values that were there
    (`held`), the time of the step before (`time_before`), the sum and the number of outputs
    where the readout is their mean (`total`, `count`).

    Outputs: the answer so far, and everything that is carried, `…_out`: give it back as the
    input of the same name at the next step.
    """
    subject = export_form(subject)
    network, dtype = subject.network, subject.dtype
    if network.bidirectional:
        raise OptionError(
            explain(
                "export of a single step",
                expected="a network with one direction",
                got="a bidirectional one",
                remedy="A stream has no end to start from; export whole sequences.",
            )
        )
    graph = Graph()
    samples = graph.input("samples", subject.sample_dtype, ("batch", *subject.sample_shape))
    batch = graph.node("Shape", samples, start=0, end=1)
    carried = _Carried(graph, batch)
    vectors = _vectors(graph, subject, samples, carried)
    cells = network.num_layers
    starts = {
        name: carried.take(name, start, (cells, SHARED, start.shape[-1]))
        for name, start in subject.starts().items()
    }
    outputs, finals = [vectors], {name: [] for name in starts}
    for layer in range(cells):
        cell, place = network.cell(layer), graph.constant(np.array(layer))
        sources = [outputs[i] for i in subject.sources(layer)]
        source = sources[0] if len(sources) == 1 else graph.node("Concat", *sources, axis=-1)
        state = [graph.node("Gather", part, place, axis=0) for part in starts.values()]
        final = step_layer(graph, cell, source, state, dtype)
        outputs.append(output_of(graph, cell, final, dtype))
        for name, value in zip(finals, final, strict=True):
            finals[name].append(graph.node("Unsqueeze", value, graph.whole(0)))
    features = outputs[-1]
    if subject.model.readout == "mean":
        features = _running_mean(graph, subject, features, carried)
    declare_answers(graph, subject, head(graph, subject, features), ("batch",))
    for (name, values), size in zip(finals.items(), sizes_of(network.cell(0)), strict=True):
        joined = graph.node("Concat", *values, axis=0)
        graph.output(f"{name}_out", joined, dtype, (cells, "batch", size))
    carried.declare_outputs()
    return graph.model(subject.metadata())


class _Carried:
    """Inputs that are given back at the next step."""

    def __init__(self, graph: Graph, batch: str) -> None:
        self._graph = graph
        self._batch = batch
        self._next: list[tuple[str, str, torch.dtype, tuple[int | str, ...]]] = []

    def take(self, name: str, start: torch.Tensor, shape: tuple[int | str, ...]) -> str:
        """Declare an input; return it with as many rows as the batch has."""
        given = self._graph.optional_input(name, start, shape)
        one = self._graph.whole(1)
        parts = [self._batch if part == SHARED else one for part in shape]
        return self._graph.node("Expand", given, self._graph.node("Concat", *parts, axis=0))

    def give(self, name: str, value: str, dtype: torch.dtype, shape: tuple[int | str, ...]) -> None:
        """Say what the next step is given."""
        shape = tuple("batch" if part == SHARED else part for part in shape)
        self._next.append((f"{name}_out", value, dtype, shape))

    def declare_outputs(self) -> None:
        """Declare everything that was given; answers and states come before it."""
        for name, value, dtype, shape in self._next:
            self._graph.output(name, value, dtype, shape)


def _vectors(graph: Graph, subject: Subject, samples: str, carried: _Carried) -> str:
    prepared = subject.preparation
    if prepared is None:
        return encode(graph, subject, samples)
    shape = (SHARED, len(prepared.channels))
    held = carried.take("held", torch.zeros(1, shape[1], dtype=WIDE), shape)
    time = before = None
    if prepared.stamps:
        time = graph.input("times", WIDE, ("batch",))
        nothing = torch.tensor([torch.nan], dtype=WIDE)
        before = carried.take("time_before", nothing, (SHARED,))
        carried.give("time_before", time, WIDE, (SHARED,))
    vectors, filled = prepare_sample(graph, subject, samples, time, held, before)
    carried.give("held", filled, WIDE, shape)
    return vectors


def _running_mean(graph: Graph, subject: Subject, features: str, carried: _Carried) -> str:
    # In double precision: a stream may go on for longer than single precision can count.
    size = subject.model.head.in_features
    total = carried.take("total", torch.zeros(1, size, dtype=WIDE), (SHARED, size))
    count = carried.take("count", torch.zeros(1, 1, dtype=WIDE), (SHARED, 1))
    total = graph.node("Add", total, graph.node("CastLike", features, total))
    count = graph.node("Add", count, graph.constant(torch.ones((), dtype=WIDE)))
    carried.give("total", total, WIDE, (SHARED, size))
    carried.give("count", count, WIDE, (SHARED, 1))
    return graph.node("CastLike", graph.node("Div", total, count), features)
