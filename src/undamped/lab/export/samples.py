"""From raw samples to what the network reads, as ONNX nodes."""

from __future__ import annotations

import numpy as np
import torch

from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.export.graph import Graph, element_kind
from undamped.lab.export.subject import Subject

WIDE = torch.float64
"""Samples are prepared in double precision, as `Preparation` does."""


def encode(graph: Graph, subject: Subject, x: str) -> str:
    """Turn symbols, pixels or vectors that need no preparation into vectors."""
    model, to = subject.model, element_kind(subject.dtype)
    if model.input_kind == "pixels":
        pixels = graph.node("Cast", x, to=to)
        return graph.node("Div", pixels, graph.constant(torch.tensor(255, dtype=subject.dtype)))
    if model.input_kind != "symbols":
        return x
    if model.embedding is not None:
        return graph.node("Gather", graph.constant(model.embedding.weight), x, axis=0)
    # OneHot takes any number in silence. Looking it up in a list of zeros refuses what is not a
    # symbol, and changes nothing otherwise.
    zeros = graph.constant(np.zeros(model.input_size, dtype=np.int64))
    known = graph.node("Add", x, graph.node("Gather", zeros, x, axis=0))
    values = graph.constant(torch.tensor([0, 1], dtype=subject.dtype))
    return graph.node("OneHot", known, graph.whole(model.input_size), values, axis=-1)


def standardise(graph: Graph, prepared: Preparation, x: str) -> str:
    """Pick the channels that are used and bring them to scale; (…, channels) in double."""
    if prepared.channels != prepared.raw_channels:
        places = [prepared.raw_channels.index(name) for name in prepared.channels]
        x = graph.node("Gather", x, graph.whole(*places), axis=-1)
    wide = graph.node("Cast", x, to=element_kind(WIDE))
    wide = graph.node("Sub", wide, graph.constant(np.array(prepared.mean)))
    return graph.node("Div", wide, graph.constant(np.array(prepared.std)))


def features(graph: Graph, subject: Subject, parts: list[str]) -> str:
    """Put the features side by side, in the type of the network."""
    to = element_kind(subject.dtype)
    cast = [graph.node("Cast", part, to=to) for part in parts]
    return cast[0] if len(cast) == 1 else graph.node("Concat", *cast, axis=-1)


def is_there(graph: Graph, x: str) -> str:
    """Whether a value is not missing."""
    return graph.node("Not", graph.node("IsNaN", x))


def gap_feature(graph: Graph, subject: Subject, gap: str) -> str:
    """A time between steps as the network sees it: ln(1 + gap/usual)."""
    assert subject.preparation is not None
    usual = graph.constant(np.array(subject.preparation.typical_gap * subject.model.gap))
    one = graph.constant(np.array(1.0))
    return graph.node("Log", graph.node("Add", one, graph.node("Div", gap, usual)))


def prepare_sequence(
    graph: Graph, subject: Subject, x: str, times: str | None, running: str
) -> str:
    """Prepare whole sequences (time, batch, channels); padding may be anything.

    Args:
        graph: Where the nodes go.
        subject: The model with its preparation.
        x: (time, batch, channels).
        times: (time, batch), if the model is told when the steps were.
        running: (time, batch, 1), false where a sequence is over.
    """
    prepared = subject.preparation
    assert prepared is not None
    missing = graph.constant(np.array(np.nan))
    values = graph.node("Where", running, standardise(graph, prepared, x), missing)
    there = is_there(graph, values)
    if prepared.missing == "mask":
        parts = [_held(graph, values, there, _steps(graph, values))[0], there]
    elif times is None:
        parts = [_interpolated(graph, values, there, _steps(graph, values))]
    else:
        first = graph.node("Slice", times, graph.whole(0), graph.whole(1), graph.whole(0))
        since = graph.node("Unsqueeze", graph.node("Sub", times, first), graph.whole(2))
        parts = [_interpolated(graph, values, there, since)]
    if times is not None:
        whole = graph.whole
        later = graph.node("Slice", times, whole(1), whole(np.iinfo(np.int64).max), whole(0))
        sooner = graph.node("Slice", times, whole(0), whole(-1), whole(0))
        gaps = gap_feature(graph, subject, graph.node("Sub", later, sooner))
        pads = whole(1, 0, 0, 0)  # the first step has no gap before it: 0
        padded = graph.node("Pad", gaps, pads)
        parts.append(graph.node("Unsqueeze", padded, whole(2)))
    return features(graph, subject, parts)


def _held(
    graph: Graph, values: str, there: str, steps: str, *, backwards: bool = False
) -> list[str]:
    """Return the last value that was there, and when; 0 and −1 if there was none.

    Args:
        graph: Where the nodes go.
        values: (time, batch, channels).
        there: Which of them are.
        steps: (time, 1, 1) or (time, batch, 1) when they were.
        backwards: Whether to look from the end.
    """
    shape = graph.node("Shape", values, start=1)
    zeros = graph.node("Expand", graph.constant(np.array(0.0)), shape)
    none = graph.node("Expand", graph.constant(np.array(-1.0)), shape)

    def step(inner: Graph, now: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        value = inner.node("Where", now["there"], now["values"], now["value"])
        place = inner.node("Where", now["there"], now["step"], now["place"])
        return {"value": value, "place": place}, [value, place]

    sequences = {
        "values": (values, WIDE),
        "there": (there, torch.bool),
        "step": (steps, WIDE),
    }
    states = {"value": (zeros, WIDE), "place": (none, WIDE)}
    return graph.scan(states, sequences, step, [WIDE, WIDE], backwards=backwards)[1]


def _interpolated(graph: Graph, values: str, there: str, steps: str) -> str:
    """Fill gaps along lines; at the ends with the nearest value; all missing, with 0."""
    left, left_place = _held(graph, values, there, steps)
    right, right_place = _held(graph, values, there, steps, backwards=True)
    zero = graph.constant(np.array(0.0))
    no_left = graph.node("Less", left_place, zero)
    no_right = graph.node("Less", right_place, zero)
    # Where a side is missing the other one stands on both; where both are, both are 0.
    from_left = graph.node("Where", no_left, right, left)
    from_right = graph.node("Where", no_right, left, right)
    width = graph.node("Sub", right_place, left_place)
    # Where a side is missing there is no slope, and no width to divide by.
    level = graph.node("Or", no_left, no_right)
    width = graph.node(
        "Where", graph.node("Or", level, there), graph.constant(np.array(1.0)), width
    )
    slope = graph.node("Div", graph.node("Sub", from_right, from_left), width)
    line = graph.node(
        "Add", from_left, graph.node("Mul", slope, graph.node("Sub", steps, left_place))
    )
    return graph.node("Where", there, values, line)


def _steps(graph: Graph, values: str) -> str:
    """0, 1, 2, … for each step of a sequence, (time, 1, 1)."""
    count = graph.node("Squeeze", graph.node("Shape", values, start=0, end=1), graph.whole(0))
    zero, one = graph.constant(np.array(0)), graph.constant(np.array(1))
    steps = graph.node("Cast", graph.node("Range", zero, count, one), to=element_kind(WIDE))
    return graph.node("Unsqueeze", steps, graph.whole(1, 2))


def prepare_sample(
    graph: Graph, subject: Subject, x: str, time: str | None, held: str, before: str | None
) -> tuple[str, str]:
    """Prepare one sample (batch, channels) with what is known so far.

    Args:
        graph: Where the nodes go.
        subject: The model with its preparation.
        x: (batch, channels).
        time: (batch,) the time of the sample, if the model is told it.
        held: (batch, channels) the last values that were there, standardised.
        before: (batch,) the time of the sample before; NaN if there was none.

    Returns:
        The features (batch, features), and the values to hold.
    """
    prepared = subject.preparation
    assert prepared is not None
    values = standardise(graph, prepared, x)
    there = is_there(graph, values)
    filled = graph.node("Where", there, values, held)
    parts = [filled, there] if prepared.missing == "mask" else [filled]
    if time is not None and before is not None:
        gap = gap_feature(graph, subject, graph.node("Sub", time, before))
        first = graph.node("IsNaN", before)
        chosen = graph.node("Where", first, graph.constant(np.array(0.0)), gap)
        parts.append(graph.node("Unsqueeze", chosen, graph.whole(1)))
    return features(graph, subject, parts), filled
