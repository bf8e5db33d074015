"""Option groups that models of moving systems share: perceptrons, solvers, fixed steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from undamped._base.options import Default, PositiveFloat, PositiveInt
from undamped.models.options import select
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.ode.flows.solve_options import TOLERANCE, SolveOptions
from undamped.ode.settings import Gradient

Angles = Literal["plain", "embedded"]
Width = Annotated[PositiveInt, Default(200, "Width of the hidden layers.")]
Softplus = Annotated[SmoothActivation, Default("softplus", "Activation of the perceptrons.")]
Embedded = Annotated[
    Angles, Default("embedded", "Whether perceptrons read angles as numbers or by cosine and sine.")
]
STEP = "Size of all steps; readings that lie further apart are reached in several steps."


class LayerOptions(TypedDict, total=False):
    """Sizes and activation of the perceptrons of a model."""

    hidden_size: Annotated[PositiveInt, Default(64, "Width of the hidden layers.")]
    hidden_layers: Annotated[PositiveInt, Default(2, "Number of hidden layers.")]
    activation: Annotated[
        SmoothActivation,
        Default("tanh", "Activation of the perceptrons; it has to have two derivatives."),
    ]


class PerceptronOptions(LayerOptions, total=False):
    """Sizes and activation of the perceptrons of a model, and how they read angles."""

    angles: Annotated[
        Angles,
        Default("plain", "Whether perceptrons read angles as numbers or by cosine and sine."),
    ]


def perceptron_arguments(coordinates: Coordinates, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return layers and embedded angles, as keyword arguments of a field.

    Args:
        coordinates: Which positions are angles.
        options: All options of a model, those of `PerceptronOptions` among them.
    """
    angles = coordinates.angles if options["angles"] == "embedded" else ()
    return {**select(options, LayerOptions), "angles": angles}


class MotionSolveOptions(SolveOptions, total=False):
    """How the field of a moving system is solved: with a tolerance fine enough for energies."""

    tolerance: Annotated[PositiveFloat, Default(1e-6, TOLERANCE)]


class StepOptions(TypedDict, total=False):
    """How the steps of a symplectic model are taken: method, size, gradient."""

    method: Annotated[str, Default("leapfrog", "Solver: leapfrog, yoshida4, symplectic-euler, …")]
    step_size: Annotated[PositiveFloat, Default(0.1, STEP)]
    gradient: Annotated[
        Gradient,
        Default(
            "reversible",
            "How gradients are computed; 'reversible' undoes the steps, so that memory does not "
            "grow with their number.",
        ),
    ]


class FourthOrderOptions(StepOptions, total=False):
    """How models of few steps take them: by a method of order four, with backpropagation."""

    method: Annotated[str, Default("yoshida4", "Solver: yoshida4, leapfrog, symplectic-euler, …")]
    gradient: Annotated[
        Gradient, Default("backprop", "How gradients are computed; 'reversible' for long windows.")
    ]
