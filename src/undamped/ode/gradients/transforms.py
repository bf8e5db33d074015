"""Transforms of `torch.func` and forward differentiation, which have to see every operation.

A solve whose gradient evaluates the field again hides what it does from them, and so do the
equations of implicit methods: tangents would be lost without a word.
"""

from __future__ import annotations

from torch import Tensor
from torch.autograd import forward_ad

from undamped._base.errors import OptionError
from undamped._base.torch_internals import forward_mode_open, inside_functional_transform
from undamped.ode.dependencies import NeedsGraphError
from undamped.ode.methods.solver import Solver


def transformed(*tensors: Tensor) -> bool:
    """Whether a transform of `torch.func` is going on, or a tensor carries a tangent.

    A level of forward differentiation alone says nothing: another thread may have opened it.
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
