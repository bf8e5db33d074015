"""Stages of a step: weighted sums y + h Σ a_j k_j, and the times at which a field is evaluated."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
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
