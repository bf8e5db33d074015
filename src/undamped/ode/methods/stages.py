"""Stages of a step: weighted sums y + h Σ a_j k_j, times of evaluations, and Butcher tableaux."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Row = tuple[float, ...]
Code = Literal["f", "d"]
CODES: dict[torch.dtype, Code] = {torch.float32: "f", torch.float64: "d"}
FEW, MANY = 4, 64
"""Steps whose times are made at once: in the first block, and at most."""


class Terms(tuple[tuple[int, float], ...]):
    """The coefficients of a row that are not zero, with their indices."""

    @cached_property
    def row(self) -> np.ndarray:
        """All coefficients up to the last of these, as an array for a kernel."""
        dense = np.zeros(1 + max((j for j, _ in self), default=-1))
        for j, a in self:
            dense[j] = a
        return dense


def terms_of(row: Row) -> Terms:
    """Return the terms of a row."""
    return Terms((j, a) for j, a in enumerate(row) if a != 0)


def table(text: str) -> tuple[Row, ...]:
    """Return the rows of a printed table of fractions, each ending in a semicolon.

    Fractions are divided in double precision, as Python's literals would be.
    """
    rows = [[entry.partition("/") for entry in row.split()] for row in text.split(";")[:-1]]
    return tuple(tuple(float(a) / float(b or 1) for a, _, b in row) for row in rows)


def combine(
    y: Tensor | None, h: float | Tensor, row: Sequence[float], stages: Sequence[Tensor]
) -> Tensor:
    """Return y + h Σ a_j k_j, differentiable any number of times where gradients are on."""
    return combine_terms(y, h, terms_of(tuple(row)), stages)


def combine_terms(
    y: Tensor | None, h: float | Tensor, terms: Terms, stages: Sequence[Tensor]
) -> Tensor:
    """Return y + h Σ a_j k_j over the terms of a row that are not zero."""
    if isinstance(h, Tensor):
        (j, a), *rest = terms
        total = torch.mul(stages[j], a)
        for j, a in rest:
            total = torch.add(total, stages[j], alpha=a)
        total = h.to(total.dtype) * total
        return total if y is None else y + total
    graph, total = torch.is_grad_enabled(), y
    for j, a in terms:
        if total is None:
            total = torch.mul(stages[j], a * h)
        elif graph or total is y:
            total = torch.add(total, stages[j], alpha=a * h)
        else:
            total.add_(stages[j], alpha=a * h)
    assert total is not None
    return total


def stage_times(t: float | Tensor, h: float | Tensor, nodes: Row, y: Tensor) -> Sequence[Tensor]:
    """Return t + c h for every node.

    Args:
        t: Time at the start of the step; a column where steps differ between samples.
        h: Step size, of the same kind as t.
        nodes: The c.
        y: The state, for its device and type.
    """
    if isinstance(t, Tensor):
        return [(t + h * node).to(y.dtype) for node in nodes]
    # In NumPy, where operations on a few numbers cost a third of what they do in torch.
    times = _node_array(nodes) * h + t
    if y.dtype == torch.float32:
        times = times.astype(np.float32)
    tensor = torch.from_numpy(times)
    if tensor.dtype != y.dtype or not y.is_cpu:
        tensor = tensor.to(y.device, y.dtype)
    return tensor.unbind()


@lru_cache(maxsize=64)
def _node_array(nodes: Row) -> np.ndarray:
    return np.array(nodes)


class StageClock:
    """The stage times of one solve, made for many steps at once.

    Making a small tensor costs as much as adding up a small state. So tensors come in blocks of
    steps, and a step only writes its numbers. No number is written twice: a field, or a graph
    through it, may refer to the times of earlier steps.

    Args:
        nodes: The c.
        y: The state, for its device and type.
    """

    def __init__(self, nodes: Row, y: Tensor) -> None:
        self._nodes, self._like = nodes, y
        self._code: Code | None = CODES.get(y.dtype) if y.is_cpu else None
        self._numbers = array(self._code or "d")
        self._tensors: Sequence[Tensor] = ()
        self._used = 0

    def __call__(self, t: float | Tensor, h: float | Tensor) -> Sequence[Tensor]:
        """Return t + c h for every node."""
        if self._code is None or isinstance(t, Tensor) or isinstance(h, Tensor):
            return stage_times(t, h, self._nodes, self._like)
        if self._used == len(self._numbers):
            steps = min(MANY, 2 * len(self._tensors) // len(self._nodes) or FEW)
            self._numbers, self._used = array(self._code, [0.0]) * (steps * len(self._nodes)), 0
            self._tensors = torch.frombuffer(self._numbers, dtype=self._like.dtype).unbind()
        low, high = self._used, self._used + len(self._nodes)
        self._used = high
        # Plain numbers: for so few, less work than an operation on arrays.
        for index, node in enumerate(self._nodes, low):
            self._numbers[index] = t + node * h
        return self._tensors[low:high]


@dataclass(frozen=True)
class Tableau:
    """The numbers of an explicit Runge–Kutta method.

    Equation:
        k_i = f(t + c_i h, y + h Σ_{j<i} a_ij k_j),  y' = y + h Σ b_i k_i

    Args:
        nodes: The c_i.
        rows: The a_ij, a row for each stage but the first.
        weights: The b_i.
        error: Weights of the error estimate, y' minus its companion, over h; may need one stage
            more than y' does: f at the end of the step.
        inside: Polynomials in the fraction θ of the step, one row a stage, powers from θ¹ up.
    """

    nodes: Row
    rows: tuple[Row, ...]
    weights: Row
    error: Row | None = None
    inside: tuple[Row, ...] | None = None

    @cached_property
    def reuses_last(self) -> bool:
        """Whether the estimate evaluates f at the end, which is the next step's first stage."""
        return self.error is not None and len(self.error) == len(self.weights) + 1

    @cached_property
    def all_nodes(self) -> Row:
        """The nodes, with the end of the step where f is evaluated there too."""
        return (*self.nodes, 1.0) if self.reuses_last else self.nodes

    @cached_property
    def row_terms(self) -> tuple[Terms, ...]:
        """The rows without their zeros."""
        return tuple(terms_of(row) for row in self.rows)

    @cached_property
    def weight_terms(self) -> Terms:
        """The weights without their zeros."""
        return terms_of(self.weights)

    @cached_property
    def error_terms(self) -> Terms:
        """The weights of the error estimate without their zeros."""
        return terms_of(self.error or ())

    @cached_property
    def end_pair(self) -> tuple[Terms, Terms] | None:
        """Two differences between f at the end and the last stage, where that is at the end too.

        That of f, and that of the values it was taken at, over h.
        """
        count = len(self.weights)
        if not self.reuses_last or self.nodes[-1] != 1.0:
            return None
        values = tuple(b - a for b, a in zip(self.weights, (*self.rows[-1], 0.0), strict=True))
        return Terms(((count - 1, -1.0), (count, 1.0))), terms_of(values)

    @cached_property
    def stability_limit(self) -> float:
        """Largest z for which a step of size z of ẏ = −y does not grow, nor any shorter one."""
        stages = len(self.weights)
        matrix = np.zeros((stages, stages))
        for number, row in enumerate(self.rows):
            matrix[number + 1, : len(row)] = row
        power, growth = np.ones(stages), [1.0]
        for _ in range(stages):
            growth.append(float(np.dot(self.weights, power)))
            power = matrix @ power
        z = np.arange(1, 2000) / 100
        grows = np.abs(np.polynomial.polynomial.polyval(-z, growth)) > 1 + 1e-9
        return float(z[grows.argmax()]) if grows.any() else math.inf

    def inside_weights(self, fraction: float) -> Row:
        """Return the weights of the stages for the value at a fraction of the step."""
        assert self.inside is not None
        return tuple(
            sum(p * fraction ** (power + 1) for power, p in enumerate(row)) for row in self.inside
        )
