"""decaying_sum: v_t = a_t v_{t−1} + u_t over a whole sequence, with a number a_t per sequence."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def decaying_sum(terms: Tensor, decays: Tensor, first: Tensor) -> Tensor:
    """Return all v (time, batch, …) of v_t = a_t v_{t−1} + u_t.

    Args:
        terms: u, (time, batch, features).
        decays: a, (time, batch); no gradient flows to it.
        first: v before the first step, (batch, features).
    """
    return _DecayingSum.apply(terms, decays, first)  # type: ignore[return-value]


class _DecayingSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, terms: Tensor, decays: Tensor, first: Tensor) -> Tensor:
        ctx.save_for_backward(decays)
        result = torch.empty_like(terms, memory_format=torch.contiguous_format)
        value = first
        for t, decay in enumerate(decays.unsqueeze(-1)):
            value = torch.addcmul(terms[t], decay, value, out=result[t])
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        (gradient,) = gradients
        (decays,) = ctx.saved_tensors
        result = torch.empty_like(gradient, memory_format=torch.contiguous_format)
        flow = torch.zeros_like(gradient[0])
        for t in range(len(decays) - 1, -1, -1):
            torch.add(gradient[t], flow, out=result[t])
            flow = decays[t].unsqueeze(-1) * result[t]
        return result, None, flow
