"""Gradients that can be taken once: asking for the gradient of such a gradient is an error.

PyTorch's own guard notices only where the incoming gradient has a graph. Where it is a constant,
a result without a graph would pass for one that depends on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undamped.errors import OptionError


class _Once(torch.autograd.Function):
    """Values as they are, which nothing can be pulled back through."""

    @staticmethod
    def forward(ctx: Any, message: str, *values: Tensor) -> tuple[Tensor, ...]:
        ctx.message = message
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        raise OptionError(ctx.message)


def only_once(values: Sequence[Tensor | None], message: str) -> list[Tensor | None]:
    """Return what a backward pass found, guarded if a graph through it is being built.

    Args:
        values: Gradients; None where there is none.
        message: What to say to whoever differentiates them.
    """
    there = [value.detach().requires_grad_() for value in values if value is not None]
    if not torch.is_grad_enabled() or not there:
        return list(values)
    guarded = iter(_Once.apply(message, *there))
    return [None if value is None else next(guarded) for value in values]
