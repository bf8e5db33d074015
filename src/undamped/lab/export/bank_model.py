"""A bank of oscillators as an ONNX model of whole sequences, or of single steps."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.lab.baselines.bank.dynamics import Oscillators
from undamped.lab.baselines.bank.early import FULL
from undamped.lab.baselines.bank.oscillator_bank import LIMIT
from undamped.lab.export.graph import Graph, element_kind
from undamped.lab.export.layers import WIDE, declare_answers
from undamped.lab.export.operators import apply
from undamped.lab.export.subject import Subject

States = dict[str, int]
"""The size of every part of the state, by name."""


class BankGraph:
    """The step and the readouts of a bank, as operators of ONNX.

    Args:
        subject: The model with its preparation.
    """

    def __init__(self, subject: Subject) -> None:
        self.bank: Any = subject.model
        self.dynamics: Any = self.bank.dynamics
        if not isinstance(self.dynamics, Oscillators):
            raise OptionError(
                "A bank with the dynamics of a recurrent network cannot be exported. Train it with "
                "model.dynamics=oscillators."
            )
        prepared = subject.preparation
        self.dtype = subject.dtype
        self.with_gaps = prepared is not None and prepared.timestamps
        self.levels = subject.classes is None
        count, channels = self.dynamics.count, self.dynamics.channels
        pools = len(self.dynamics.thresholds) * count
        self.states: States = {"last": channels, "has_last": channels, "samples": 1}
        for name in ("real", "imaginary", "total", "current", "peak", "trough"):
            self.states[name] = count
        self.states |= dict.fromkeys(("above", "streak", "longest"), pools)
        if self.dynamics.locations:
            self.states |= dict.fromkeys(("peak_location", "trough_location"), count)
        self.input_size = 2 * channels + self.with_gaps

    def step(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Return the state after a sample: values, whether they are observed, and the gap."""
        last, has_last, samples, real, imaginary, total, _, peak, trough = state[:9]
        above, streak, longest, *locations = state[9:]
        bank, channels = self.dynamics, self.dynamics.channels
        values, observed = x[:, :channels], x[:, channels : 2 * channels] > 0.5
        has_change = observed & (has_last > 0.5)
        shift = (values - last) - bank.centre[channels:]
        signals = (
            torch.where(observed, (values - bank.centre[:channels]) / bank.scale[:channels], 0.0),
            torch.where(has_change, shift / bank.scale[channels:], 0.0),
        )
        drive = nn.functional.linear(torch.cat(signals, 1), bank.drivers.to(x.dtype))
        damping, frequency, phase = bank.rates().to(x.dtype)
        if self.with_gaps:
            gap = x[:, 2 * channels :]
            size, angle = torch.exp(gap * -damping), gap * frequency
            cosine, sine = size * angle.cos(), size * angle.sin()
        else:
            cosine, sine = (-damping).exp() * frequency.cos(), (-damping).exp() * frequency.sin()
        moved = cosine * real - sine * imaginary + drive
        imaginary = sine * real + cosine * imaginary
        y = moved * phase.cos() - imaginary * phase.sin()
        first = samples < 0.5
        repeated = torch.cat([y] * len(bank.thresholds), 1)
        over = repeated > bank.thresholds.flatten()
        streak = torch.where(over, streak + 1, 0.0)
        at, extremes = samples + 1, (y > peak, trough > y)
        return (
            torch.where(observed, values, last),
            torch.where(observed, 1.0, has_last),
            samples + 1,
            moved,
            imaginary,
            total + y,
            y,
            torch.where(first, y, torch.where(y > peak, y, peak)),
            torch.where(first, y, torch.where(trough > y, y, trough)),
            torch.where(over, above + 1, above),
            streak,
            torch.where(streak > longest, streak, longest),
            *(
                torch.where(first, at, torch.where(new, at, location))
                for new, location in zip(extremes, locations, strict=False)
            ),
        )

    def features(self, *state: Tensor) -> Tensor:
        """Return the features of a state, as `Pools.features` does."""
        parts = dict(zip(self.states, state, strict=True))
        samples = parts["samples"]
        averages = [parts["total"] / samples, parts["current"]] if self.levels else []
        counts = [parts["above"] / samples, parts["longest"] / samples]
        names = [name for name in ("peak_location", "trough_location") if name in parts]
        locations = [parts[name] / samples for name in names]
        return torch.cat([*averages, parts["peak"], parts["trough"], *counts, *locations], 1)

    def read(self, features: Tensor, readout: int = FULL) -> Tensor:
        """Return the outputs of a readout."""
        bank, early = self.bank, self.bank.early
        centre, scale = bank.centre, bank.scale
        weight, bias = bank.readout.weight, bank.readout.bias
        if readout != FULL:
            parts = (early.centre, early.scale, early.weight, early.bias)
            centre, scale, weight, bias = (part[readout] for part in parts)
        standard = ((features - centre) / scale).clamp(-LIMIT, LIMIT)
        return nn.functional.linear(standard, weight, bias)

    def read_complete(self, *state: Tensor) -> Tensor:
        """Return the outputs for complete sequences."""
        return self.read(self.features(*state))

    def read_early(self, *state: Tensor) -> Tensor:
        """Return the outputs for sequences that may continue, as a stream does."""
        samples, features = state[list(self.states).index("samples")], self.features(*state)
        early = self.bank.early
        knots = [(stop, at) for at, stop in enumerate(early.counts.tolist()) if stop > 0]
        if not knots:
            return self.read(features)

        def since(stop: int) -> Tensor:
            return torch.where(samples > stop - 0.5, 1.0, 0.0)

        outputs = (1 - since(knots[0][0])) * early.prior + since(knots[-1][0]) * self.read(features)
        for (low, first), (high, second) in pairwise(knots):
            inside, part = since(low) - since(high), (samples - low) / (high - low)
            second = FULL if high == knots[-1][0] else second
            outputs = outputs + inside * (1 - part) * self.read(features, first)
            outputs = outputs + inside * part * self.read(features, second)
        return outputs

    def sizes(self, values: dict[str, str]) -> list[tuple[str, int]]:
        """Return the names of the state's values with their sizes, for `apply`."""
        return [(values[name], size) for name, size in self.states.items()]


def bank_inputs(graph: Graph, subject: Subject, values: str, observed: str, gaps: list[str]) -> str:
    """Return the input of `BankGraph.step`: values, whether they are observed, and the gap."""
    to = element_kind(subject.dtype)
    return graph.node(
        "Concat", *[graph.node("Cast", x, to=to) for x in (values, observed, *gaps)], axis=-1
    )


def scan_bank(graph: Graph, subject: Subject, x: str, running: str) -> onnx.ModelProto:
    """Return the model of whole sequences, whose inputs are (time, batch, input)."""
    bank = BankGraph(subject)
    batch = graph.node("Shape", x, start=1, end=2)
    states = {}
    for name, size in bank.states.items():
        shape = graph.node("Concat", batch, graph.integers(size), axis=0)
        zero = graph.constant(torch.zeros((), dtype=bank.dtype))
        states[name] = (graph.node("Expand", zero, shape), bank.dtype)

    def step(inner: Graph, now: dict[str, str]) -> tuple[dict[str, str], list[str]]:
        inputs = [(now["x"], bank.input_size), *bank.sizes(now)]
        after = apply(inner, bank.step, inputs, bank.dtype)
        return {
            name: inner.node("Where", now["running"], value, now[name])
            for name, value in zip(bank.states, after, strict=True)
        }, []

    sequences = {"x": (x, bank.dtype), "running": (running, torch.bool)}
    last, _ = graph.scan(states, sequences, step, [])
    (outputs,) = apply(graph, bank.read_complete, bank.sizes(last), bank.dtype)
    declare_answers(graph, subject, outputs, ("batch",))
    return graph.model(subject.metadata())


def step_bank(graph: Graph, subject: Subject, x: str, feedback: Any) -> onnx.ModelProto:
    """Return the model of a single step, whose inputs are (batch, input)."""
    bank = BankGraph(subject)
    shapes = {name: ("batch or 1", size) for name, size in bank.states.items()}
    states = {
        name: feedback.take(f"bank_{name}", torch.zeros(1, size, dtype=bank.dtype), shapes[name])
        for name, size in bank.states.items()
    }
    after = apply(graph, bank.step, [(x, bank.input_size), *bank.sizes(states)], bank.dtype)
    values = dict(zip(bank.states, after, strict=True))
    (outputs,) = apply(graph, bank.read_early, bank.sizes(values), bank.dtype)
    declare_answers(graph, subject, outputs, ("batch",))
    for name, value in values.items():
        feedback.give(f"bank_{name}", value, bank.dtype, shapes[name])
    feedback.declare_outputs()
    return graph.model(subject.metadata())


def raw_inputs(graph: Graph, subject: Subject, x: str) -> str:
    """Return the input of a bank without preparation: missing values are NaN."""
    wide = graph.node("Cast", x, to=element_kind(WIDE))
    missing = graph.node("IsNaN", wide)
    values = graph.node("Where", missing, graph.constant(np.array(0.0)), wide)
    return bank_inputs(graph, subject, values, graph.node("Not", missing), [])
