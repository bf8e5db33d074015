"""Option groups of continuous-depth models: field, depth, solver, penalty on gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from torch import nn

from undamped._base.errors import OptionError
from undamped._base.options import (
    Default,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Range,
    options_in,
)
from undamped.models.options import select
from undamped.ode.fields.perceptron import Activation
from undamped.ode.flows.gradient_keeping import Penalty
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solve_options import SolveOptions, solver_arguments

DEPTH = "Time T at the end of depth."
Cosine = Annotated[float, Range(low=0, high=1, open_low=True)]


class AugmentedOptions(TypedDict, total=False):
    """Sizes of a field and of its augmented state."""

    hidden_size: Annotated[PositiveInt, Default(32, "Width of the field.")]
    augmented_size: Annotated[
        NonNegativeInt, Default(0, "Zeros added to the input (ANODE); 0 for none.")
    ]


class FieldOptions(AugmentedOptions, total=False):
    """Sizes and activation of a field."""

    activation: Annotated[Activation, Default("tanh", "Activation of the field.")]


class KeepOptions(TypedDict, total=False):
    """A penalty of training that preserves gradients along depth."""

    keep_gradient: Annotated[
        Penalty,
        Default(
            "none",
            "What a training penalty preserves along depth: the norm of a = ∂L/∂h(t), the norm of "
            "the parameters' part y = a ∂f/∂θ, the direction of y, or the norm of gradients in "
            "every direction.",
        ),
    ]
    keep_weight: Annotated[PositiveFloat, Default(1.0, "Factor on that penalty.")]
    keep_points: Annotated[
        PositiveInt, Default(10, "Number of depths at which the gradient is penalised.")
    ]
    keep_cosine: Annotated[Cosine, Default(0.5, "For 'direction': least cosine of y(t) and y(T).")]


class DepthOptions(SolveOptions, KeepOptions, total=False):
    """Depth of a model, its solver, and the penalty on gradients."""

    depth: Annotated[PositiveFloat, Default(1.0, DEPTH)]


def flow_of(field: nn.Module, options: Mapping[str, Any], group: type = DepthOptions) -> NeuralODE:
    """Return the flow of a field over all of depth.

    Args:
        field: dh/dt.
        options: All options of a model, complete.
        group: The group that declares them.
    """
    return NeuralODE(field, times=(0.0, options["depth"]), **flow_arguments(options, group))


def flow_arguments(options: Mapping[str, Any], group: type = DepthOptions) -> dict[str, Any]:
    """Return method, gradient and tolerances or a step size, as flows take them."""
    solver: Any = select(options, SolveOptions)
    return solver_arguments(solver, group)


def check_keeping(options: Mapping[str, Any], gradient: str = "checkpoint") -> None:
    """Refuse options of the penalty that have no effect, or cannot be combined.

    Args:
        options: All options of a model, complete.
        gradient: How gradients of the solve are computed.
    """
    kind, declared = options["keep_gradient"], options_in(KeepOptions)
    for name in ("keep_weight", "keep_points", "keep_cosine"):
        unused = kind == "none" or (name == "keep_cosine" and kind != "direction")
        if unused and options[name] != declared[name].default:
            raise OptionError(
                f"{name}={options[name]:g} has no effect with keep_gradient='{kind}'. Set "
                "keep_gradient, or leave it out."
            )
    if kind not in ("none", "every-direction") and gradient in ("adjoint", "reversible"):
        raise OptionError(
            f"gradient='{gradient}' cannot be combined with keep_gradient='{kind}', which "
            "differentiates gradients and so needs the graph of every training pass. Leave it out, "
            "or choose keep_gradient='every-direction'."
        )
