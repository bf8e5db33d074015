"""Neural ODE with parameters that change with depth, and a linear readout."""

from __future__ import annotations

from typing import Literal

from torch import nn

from undamped.checked import checked
from undamped.fields.augmented import Augmentation
from undamped.fields.depth_variant import Basis, GalerkinField
from undamped.fields.perceptron import PerceptronField
from undamped.flows.neural_ode import NeuralODE
from undamped.flows.stacked import StackedODE
from undamped.networks.continuous.base import ContinuousModel
from undamped.networks.continuous.steps import chosen_steps
from undamped.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.registry import models
from undamped.solvers.settings import Gradient


@models.register("depth-variant-node")
class DepthVariantNODE(ContinuousModel):
    """A neural ODE whose parameters change with depth.

    Equation:
        ḣ = f_{θ(t)}(h),  θ(t) = Σ_j α_j ψ_j(t);  stacked: θ constant on each piece

    Symbols:
        ψ_j basis functions, α_j coefficients.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        basis: Fourier, Chebyshev, Legendre polynomials or piecewise constant; `stacked` builds a
            field of its own for each piece and never steps across a border.
        terms: Basis functions, or pieces.
        augmented_size: Zeros added to the input.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Size of all steps, instead of a tolerance; methods without step control, such as
            rk4, need it.
        gradient: How gradients are taken.

    Example:
        >>> model = undamped.DepthVariantNODE(2, 2, basis="chebyshev", terms=4)

    Reference:
        S. Massaroli and others. Dissecting neural ODEs. NeurIPS, 2020.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        basis: Literal["fourier", "chebyshev", "polynomial", "piecewise", "stacked"] = "fourier",
        terms: PositiveInt = 5,
        augmented_size: NonNegativeInt = 0,
        method: str = "dopri5",
        tolerance: PositiveFloat = 1e-3,
        step_size: PositiveFloat | None = None,
        gradient: Gradient = "checkpoint",
    ) -> None:
        super().__init__()
        size = input_size + augmented_size
        self.start = Augmentation(input_size, augmented_size) if augmented_size else nn.Identity()
        steps = chosen_steps(DepthVariantNODE, tolerance, step_size)
        if basis == "stacked":
            fields = [PerceptronField(size, hidden_size, time=False) for _ in range(terms)]
            self.flow = StackedODE(fields, method=method, gradient=gradient, **steps)
        else:
            kind: Basis = basis
            self.flow = NeuralODE(
                GalerkinField(size, hidden_size, basis=kind, terms=terms),
                method=method,
                gradient=gradient,
                **steps,
            )
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
