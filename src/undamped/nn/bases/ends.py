"""Outputs that are part of a state: what is left of them where sequences end."""

from __future__ import annotations

import torch
from torch import Tensor


def cut_off(output: Tensor, first: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return outputs with zeros beyond the ends, and the last one of each sequence.

    Args:
        output: (time, batch, features).
        first: (batch, features), the last output of a sequence that is over before it begins.
        lengths: (batch,), from 0 on; None if all sequences are as long as the time.
    """
    if lengths is None:
        return output, output[-1].clone()
    steps, batch = output.shape[:2]
    over = torch.arange(steps, device=output.device).unsqueeze(1) >= lengths  # (time, batch)
    output = output.masked_fill(over.unsqueeze(-1), 0)
    last = output[(lengths - 1).clamp(min=0), torch.arange(batch, device=output.device)]
    return output, torch.where((lengths > 0).unsqueeze(-1), last, first)
