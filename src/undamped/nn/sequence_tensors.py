"""Operations on sequences and states: masks, concatenation, reversal, last outputs."""

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
    """Return whether no sequence ends before the last step."""
    return bool((lengths == x.shape[0]).all())


def join_features(parts: list[Tensor]) -> Tensor:
    """Concatenate features."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def map_state(state: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to every tensor of a state, which is a tensor, a tuple of them, or None."""
    if state is None:
        return None
    return function(state) if isinstance(state, Tensor) else tuple(map(function, state))


def reverse_time(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse each sequence within its length; padding stays at the end."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    index = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, index.unsqueeze(-1).expand(x.shape))


def mask_and_last(output: Tensor, first: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return outputs that are zero beyond the lengths, and the last output of each sequence.

    Args:
        output: (time, batch, features).
        first: (batch, features), the result for sequences of length 0.
        lengths: (batch,), from 0 on; None if all sequences have the full length.
    """
    if lengths is None:
        return output, output[-1].clone()
    output = output.masked_fill(padding_mask(output, lengths), 0)
    last = output[(lengths - 1).clamp(min=0), torch.arange(len(lengths), device=output.device)]
    return output, torch.where((lengths > 0).unsqueeze(-1), last, first)
