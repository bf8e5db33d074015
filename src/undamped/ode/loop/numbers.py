"""Formulas for one number or one for every sample: what floats and tensors do not share."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

Number = float | Tensor


def choose(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds, else `no`."""
    if not isinstance(condition, Tensor):
        return yes if condition else no
    like = next((x for x in (yes, no) if isinstance(x, Tensor)), None)
    if like is None:
        yes = torch.full(condition.shape, yes, dtype=torch.float64, device=condition.device)
    elif not isinstance(yes, Tensor):
        yes = torch.full_like(like, yes)
    return torch.where(condition, yes, no)


def clip(value: Any, low: float, high: Any) -> Any:
    """Return the value within limits, the lower one for what is no number."""
    if not isinstance(value, Tensor):
        return high if value > high else (value if value > low else low)
    return choose(value > high, high, choose(value > low, value, low))


def larger(value: Any, other: Any) -> Any:
    """Return the larger of two numbers, NaN if one is."""
    return choose(value >= other, value, choose(value < other, other, math.nan))


def finite(value: Any) -> Any:
    """Whether a number is finite."""
    return torch.isfinite(value) if isinstance(value, Tensor) else math.isfinite(value)
