"""Derivatives that are refused: an error takes the place of a gradient that would be missing.

A gradient that can be taken once has no gradient: PyTorch's own guard notices this only where the
incoming gradient has a graph. Where it is a constant, a result without a graph would look like one
that depends on nothing.

Transforms of `torch.func` and forward differentiation have to see every operation. A solve whose
gradient evaluates the field again hides its operations from them, and so do the equations of
implicit methods: tangents would be lost silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from undamped._base.errors import OptionError
from undamped._base.torch_internals import forward_mode_open, inside_functional_transform
from undamped.ode.dependencies import NeedsGraphError

if TYPE_CHECKING:
    from undamped.ode.methods.solver import Solver


class _Refused(torch.autograd.Function):
    """The first `count` tensors as they are, depending on all others, with no derivative."""

    @staticmethod
    def forward(ctx: Any, message: str, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.message = message
        # Copies: a view that a function returns with others cannot be changed in place.
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


def transformed(*tensors: Tensor) -> bool:
    """Whether a transform of `torch.func` is active, or a tensor carries a tangent.

    An open level of forward differentiation says nothing: another thread may have opened it.
    """
    if inside_functional_transform():
        return True
    if not forward_mode_open():
        return False
    return any(forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def refuse_implicit(solver: Solver) -> None:
    """Refuse a method whose steps solve equations inside a transform."""
    if solver.implicit and not solver.switches:
        raise OptionError(
            f"'{solver.name}' solves equations and does not work inside a transform of torch.func "
            "or forward-mode differentiation. Differentiate with torch.autograd.grad, or choose an "
            "explicit method such as 'dopri5' or 'rk4'."
        )


def refuse_vmap(value: Tensor, solver: Solver) -> None:
    """Refuse step control where the values of errors cannot be read.

    Args:
        value: The start, or the field there.
        solver: The method.
    """
    try:
        value.detach().sum().item()
    except RuntimeError:
        raise OptionError(
            f"'{solver.name}' cannot choose its steps inside torch.func.vmap, where each of many "
            f"solves would need its own. Set options={{'step_size': …}}, or solve the batch at "
            "once with steps='sample'."
        ) from None


def needs_graph(gradient: str) -> NeedsGraphError:
    """Return the error for a gradient that hides the steps of a solve."""
    return NeedsGraphError(
        f"gradient='{gradient}' does not work inside a transform of torch.func or forward-mode "
        "differentiation, since it evaluates the field again. Choose gradient='backprop'."
    )
