"""From the network's features to the outputs of the file."""

from __future__ import annotations

import numpy as np
import torch

from undamped.lab.export.graph import Graph, element_kind
from undamped.lab.export.operators import apply
from undamped.lab.export.subject import Subject


def head(graph: Graph, subject: Subject, features: str) -> str:
    """Apply the readout to rows (rows, features)."""
    layer = subject.model.head
    return apply(graph, layer, [(features, layer.in_features)], subject.dtype)[0]


def declare_answers(graph: Graph, subject: Subject, outputs: str, leading: tuple[str, ...]) -> None:
    """Declare what the file answers: scores and probabilities of classes, or numbers.

    Args:
        graph: Where the nodes go.
        subject: The model.
        outputs: What the head made, (*leading, output).
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
    zero, one = np.array(prepared.target_mean), np.array(prepared.target_std)
    if prepared.kind == "forecast":
        shape = (*leading, prepared.horizon, len(prepared.forecast))
        if prepared.quantiles:  # as the network says them
            shape, zero, one = (*shape, len(prepared.quantiles)), zero[:, None], one[:, None]
        places = graph.node("Shape", outputs, start=0, end=len(leading))
        steps = graph.whole(*shape[len(leading) :])  # type: ignore[arg-type]
        outputs = graph.node("Reshape", outputs, graph.node("Concat", places, steps, axis=0))
    # In double precision, since a mean may be large beside what varies.
    wide = graph.node("Cast", outputs, to=element_kind(torch.float64))
    wide = graph.node("Mul", wide, graph.constant(one))
    wide = graph.node("Add", wide, graph.constant(zero))
    graph.output("values", wide, torch.float64, shape)
