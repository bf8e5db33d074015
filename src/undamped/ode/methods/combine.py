"""Weighted sums of stages: y + h Σ a_j k_j, differentiably."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

Row = tuple[float, ...]


class Terms(tuple[tuple[int, float], ...]):
    """The coefficients of a row that are not zero, with their places."""

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
