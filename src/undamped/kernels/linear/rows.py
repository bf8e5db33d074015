"""Sequences as rows, for what knows neither time nor batch."""

from __future__ import annotations

from torch import Tensor


def rows_of(tensor: Tensor) -> Tensor:
    """Return the numbers of (…, features) as (rows, features), one after the other in memory."""
    return tensor.detach().reshape(-1, tensor.shape[-1]).contiguous()
