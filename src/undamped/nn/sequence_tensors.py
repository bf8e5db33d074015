"""What networks do to sequences and states: masks, joining features, turning time around."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def padding_mask(x: Tensor, lengths: Tensor) -> Tensor:
    """Return (time, batch, 1), true where a sequence is over."""
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    return (steps >= lengths).unsqueeze(-1)


def all_full(lengths: Tensor, x: Tensor) -> bool:
    """Say whether no sequence ends before the last step."""
    return bool((lengths == x.shape[0]).all())


def join_features(parts: list[Tensor]) -> Tensor:
    """Put features side by side."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def map_state(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Change every tensor of a state, which is one tensor, a tuple of them, or None."""
    if state is None:
        return None
    return change(state) if isinstance(state, Tensor) else tuple(change(part) for part in state)


def reverse_time(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Turn each sequence around within its own length; padding stays where it is."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    index = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, index.unsqueeze(-1).expand(x.shape))
