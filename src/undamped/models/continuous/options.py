"""Options that continuous-depth models share: how deep, how solved, which gradients are kept."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from torch import nn

from undamped._base.errors import OptionError, explain
from undamped._base.options import Default, PositiveFloat, PositiveInt, Range, options_in
from undamped.ode.flows.gradient_keeping import Kept
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solve_options import SolveOptions, solver_arguments

DEPTH = "Time T at the end of depth."
Cosine = Annotated[float, Range(low=0, high=1, open_low=True)]


class KeepOptions(TypedDict, total=False):
    """What training is to keep of gradients along depth: which, and how much it counts."""

    keep_gradient: Annotated[
        Kept,
        Default(
            "none",
            "What training keeps along depth by a penalty: the norm of a = ∂L/∂h(t), the norm of "
            "the parameters' share y = a ∂f/∂θ, the direction of y, or the norm of gradients in "
            "every direction.",
        ),
    ]
    keep_weight: Annotated[PositiveFloat, Default(1.0, "Factor on that penalty.")]
    keep_points: Annotated[
        PositiveInt, Default(10, "Pieces of depth at whose ends it looks at the gradient.")
    ]
    keep_cosine: Annotated[Cosine, Default(0.5, "For 'direction': least cosine of y(t) and y(T).")]


class DepthOptions(SolveOptions, KeepOptions, total=False):
    """How deep a model is, how its field is solved, and what training keeps of gradients."""

    depth: Annotated[PositiveFloat, Default(1.0, DEPTH)]


def flow_of(field: nn.Module, chosen: DepthOptions, group: type = DepthOptions) -> NeuralODE:
    """Return the flow of a field over all of depth, solved as was chosen.

    Args:
        field: dh/dt.
        chosen: All options, as `checked` completes them.
        group: Which options these are.
    """
    return NeuralODE(field, times=(0.0, chosen["depth"]), **flow_arguments(chosen, group))  # type: ignore[typeddict-item]


def flow_arguments(chosen: DepthOptions, group: type = DepthOptions) -> dict[str, Any]:
    """Return method, gradient and tolerances or a step size, as flows take them."""
    said: Any = {name: chosen[name] for name in options_in(SolveOptions)}  # type: ignore[literal-required]
    return solver_arguments(said, group)


def check_keeping(chosen: KeepOptions, gradient: str = "checkpoint") -> None:
    """Refuse options of a penalty that would change nothing, or cannot be had.

    Args:
        chosen: All options, as `checked` completes them.
        gradient: How gradients of the solve are taken.
    """
    said: dict[str, Any] = dict(chosen)
    kept, declared = said["keep_gradient"], options_in(KeepOptions)
    for name in ("keep_weight", "keep_points", "keep_cosine"):
        idle = kept == "none" or (name == "keep_cosine" and kept != "direction")
        if idle and said[name] != declared[name].default:
            wanted = "'direction'" if name == "keep_cosine" else "one that keeps something"
            raise OptionError(
                explain(
                    name,
                    expected=f"to be left out unless keep_gradient is {wanted}",
                    got=f"{said[name]:g} beside keep_gradient='{kept}'",
                    remedy="Set keep_gradient, or leave it out.",
                )
            )
    if kept not in ("none", "every-direction") and gradient in ("adjoint", "reversible"):
        raise OptionError(
            explain(
                "gradient",
                expected=f"to be left out with keep_gradient='{kept}', which takes gradients of "
                "gradients and so keeps the graph of every training pass",
                got=f"'{gradient}'",
                remedy="Leave it out, or choose keep_gradient='every-direction'.",
            )
        )
