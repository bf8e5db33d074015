"""Transforms of `torch.func` and forward differentiation, which have to see every operation.

A solve whose gradient evaluates the field again hides what it does from them, and so do the
equations of implicit methods: tangents would be lost without a word.
"""

from __future__ import annotations

from torch import Tensor
from torch.autograd import forward_ad

from undamped._base.errors import OptionError, explain
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
            explain(
                f"'{solver.name}' inside a transform of torch.func or forward differentiation",
                expected="an explicit method",
                got="one that solves equations, which these cannot see through",
                remedy="Differentiate with torch.autograd.grad, or choose 'dopri5' or 'rk4'.",
            )
        )


def refuse_vmap(value: Tensor, solver: Solver) -> None:
    """Refuse step control where errors are not numbers that can be looked at.

    Args:
        value: The start, or the field there.
        solver: The method.
    """
    try:
        value.detach().sum().item()
    except RuntimeError:
        raise OptionError(
            explain(
                f"solve with '{solver.name}' inside torch.func.vmap",
                expected="fixed steps, since each of many solves would choose its own",
                got="a method that chooses its steps",
                remedy="Set options={'step_size': …}, or solve the batch at once with "
                "steps='sample'.",
            )
        ) from None


def needs_graph(gradient: str) -> NeedsGraphError:
    """Return the error for a gradient that hides the steps of a solve."""
    return NeedsGraphError(
        explain(
            f"gradient='{gradient}' inside a transform of torch.func or forward differentiation",
            expected="gradient='backprop', which shows them every step",
            got=f"'{gradient}', which evaluates the field again",
            remedy="Choose gradient='backprop'.",
        )
    )
