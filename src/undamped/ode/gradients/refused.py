"""Values without a gradient: asking for it is an error, never a gradient that is missing.

A gradient that can be taken once is such a value: PyTorch's own guard notices only where the
incoming gradient has a graph. Where it is a constant, a result without a graph would pass for one
that depends on nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError


class _Refused(torch.autograd.Function):
    """The first `count` tensors as they are, depending on all others, with no derivative."""

    @staticmethod
    def forward(ctx: Any, message: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.message = message
        # Copies: a view that a function returns beside others cannot be changed in place.
        return tuple(tensor.clone() for tensor in tensors[:count])

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        raise OptionError(ctx.message)


def refuse_gradients(
    values: Sequence[Tensor | None], roots: Sequence[Tensor], message: str
) -> list[Tensor | None]:
    """Return values that raise an error when they are differentiated, where a graph is being built.

    Args:
        values: Some tensors, or None.
        roots: What they depend on; a path to them has to exist for the guard to be met.
        message: The message of the error.
    """
    tensors = [value for value in values if value is not None]
    if not torch.is_grad_enabled() or not tensors:
        return list(values)
    guarded = iter(_Refused.apply(message, len(tensors), *tensors, *roots))
    return [None if value is None else next(guarded) for value in values]
