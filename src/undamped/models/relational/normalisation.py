"""Temporal context normalisation: every feature has mean zero and variance one over a sequence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.torch_internals import inside_functional_transform

EPSILON = 1e-8


class TemporalContextNorm(nn.Module):
    """z = γ (u − mean u) / √(var u + 1e-8) + β, over the steps of a sequence or of each segment.

    The variance is the unbiased one, so that a segment needs two steps. All steps have to be
    there: what comes behind it cannot answer sample by sample.

    Args:
        features: Features of a step.
        segments: Steps of each part that is normalised on its own; none for the whole sequence.

    Reference:
        T. W. Webb and others. Learning representations that support extrapolation. ICML, 2020.
    """

    def __init__(self, features: int, segments: Sequence[int] = ()) -> None:
        super().__init__()
        self.segments = tuple(segments)
        self.gamma = nn.Parameter(torch.ones(features))
        self.beta = nn.Parameter(torch.zeros(features))

    def scaled(self, centred: Tensor, variance: Tensor) -> Tensor:
        """Return γ c / √(variance + 1e-8) + β for codes c whose mean is taken off."""
        gamma, beta = self.gamma.to(centred.dtype), self.beta.to(centred.dtype)
        return torch.addcmul(beta, centred, gamma * torch.rsqrt(variance + EPSILON))

    def forward(self, codes: Tensor) -> Tensor:
        """Return (time, batch, features) with mean zero and variance one in time."""
        gamma, beta = self.gamma.to(codes.dtype), self.beta.to(codes.dtype)
        if len(self.segments) > 1:
            parts = codes.split(self.segments)
            return torch.cat([_standardise(part, gamma, beta) for part in parts])
        return _standardise(codes, gamma, beta)


class _Standardise(torch.autograd.Function):
    """The same in fewer passes over memory, which is where its time goes."""

    @staticmethod
    def forward(ctx: Any, codes: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        centred = codes - codes.mean(0)
        scale = torch.rsqrt(centred.square().sum(0) / (len(codes) - 1) + EPSILON)
        ctx.save_for_backward(codes, gamma, beta, centred, scale)
        return torch.addcmul(beta, centred, scale * gamma)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        (gradient,) = gradients
        *inputs, centred, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient is to be differentiated again
            return torch.autograd.grad(_plainly(*inputs), inputs, gradient, create_graph=True)
        along = (gradient * centred).sum(0) * scale
        slope = scale * inputs[1]
        back = gradient * slope
        back -= centred * (slope * scale * along / (len(centred) - 1))
        back -= back.mean(0)
        return back, along.sum(0), gradient.sum((0, 1))


def _plainly(codes: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    centred = codes - codes.mean(0)
    return gamma * centred / torch.sqrt(centred.square().sum(0) / (len(codes) - 1) + EPSILON) + beta


def _standardise(codes: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    if inside_functional_transform():  # which knows nothing of functions of ours
        return _plainly(codes, gamma, beta)
    return _Standardise.apply(codes, gamma, beta)  # type: ignore[return-value]
