"""Whole continuous-depth models: input, a flow in depth, a linear readout.

All are used alike: (batch, input) in, (batch, output) out, for classes or targets; after a
forward pass `evaluations` holds the number of field evaluations, after a backward pass
`evaluations_backward` holds those.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from undamped.checked import checked
from undamped.errors import OptionError, explain
from undamped.fields.augmented import Augmentation
from undamped.fields.data_controlled import Controlled, DepthNetwork
from undamped.fields.depth_variant import Basis, GalerkinField, StackedODE
from undamped.fields.inputs import fitting, type_of
from undamped.fields.neural_ode import NeuralODE
from undamped.fields.perceptron import Activation, PerceptronField
from undamped.networks.steps import chosen_steps
from undamped.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.registry import models
from undamped.solvers.settings import Gradient, choose_solver


class ContinuousModel(nn.Module):
    """A flow in depth with a linear readout; subclasses build `start` and `flow`."""

    start: nn.Module
    flow: NeuralODE | StackedODE
    head: nn.Linear
    input_size: int | None = None

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the end of depth, (batch, state)."""
        return self.flow(self.start(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return scores or values, (batch, output)."""
        return self.head(self.features(self.fitting(x)))

    def fitting(self, x: Tensor) -> Tensor:
        """Return the input as the model takes it, or say what it expects instead."""
        return fitting(x, self.input_size, type_of(self), f"{type(self).__name__} input")

    @property
    def evaluations(self) -> int:
        """Field evaluations of the last forward pass (NFE)."""
        return self.flow.evaluations

    @property
    def evaluations_backward(self) -> int:
        """Field evaluations of its gradients."""
        return self.flow.evaluations_backward


@models.register("node")
class NODE(ContinuousModel):
    """A neural ODE between the input and a linear readout, augmented if wished.

    Equation:
        ḣ = f(t, h),  h(0) = [x, 0],  ŷ = W h(1) + b

    Symbols:
        x input, h state, f a perceptron, W and b readout.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        augmented_size: Zeros added to the input (ANODE); 0 is the plain neural ODE.
        augmentation: Whether the added features are zeros or computed from the input.
        activation: Activation of the field.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Size of all steps, instead of a tolerance; methods without step control, such as
            rk4, need it.
        gradient: How gradients are taken.

    Example:
        >>> model = undamped.NODE(2, 2, hidden_size=32, augmented_size=1)

    Reference:
        R. Chen and others. NeurIPS, 2018. E. Dupont and others. Augmented neural ODEs. NeurIPS,
        2019.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        augmented_size: NonNegativeInt = 0,
        augmentation: Literal["zero", "input"] = "zero",
        activation: Activation = "tanh",
        method: str = "dopri5",
        tolerance: PositiveFloat = 1e-3,
        step_size: PositiveFloat | None = None,
        gradient: Gradient = "checkpoint",
    ) -> None:
        super().__init__()
        if augmentation != "zero" and not augmented_size:
            raise OptionError(
                explain(
                    "augmentation",
                    expected="to be left out with augmented_size=0, which adds nothing",
                    got=f"'{augmentation}'",
                    remedy="Set augmented_size to the number of features to add.",
                )
            )
        size = input_size + augmented_size
        self.start = (
            Augmentation(input_size, augmented_size, augmentation)
            if augmented_size
            else nn.Identity()
        )
        field = PerceptronField(size, hidden_size, activation=activation)
        steps = chosen_steps(NODE, tolerance, step_size)
        self.flow = NeuralODE(field, method=method, gradient=gradient, **steps)
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size


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


@models.register("data-controlled-node")
class DataControlledNODE(ContinuousModel):
    """A neural ODE whose field keeps seeing the input, to a depth that may depend on it.

    Equation:
        ż = f(t, [z, x]),  z(0) = x,  ŷ = W z(g(x)) + b;  g = 1 unless adaptive

    Symbols:
        x input, z state, g learned depth.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        adaptive_depth: Whether every sample is integrated to a depth g(x) of its own.
        activation: Activation of the field.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Size of all steps, instead of a tolerance; methods without step control, such as
            rk4, need it.
        gradient: How gradients are taken; with adaptive depth all but `reversible`.

    Example:
        >>> model = undamped.DataControlledNODE(2, 2, adaptive_depth=True)

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
        adaptive_depth: bool = False,
        activation: Activation = "tanh",
        method: str = "dopri5",
        tolerance: PositiveFloat = 1e-3,
        step_size: PositiveFloat | None = None,
        gradient: Gradient = "checkpoint",
    ) -> None:
        super().__init__()
        field = PerceptronField(
            input_size, hidden_size, input_size=2 * input_size, activation=activation
        )
        self.start = nn.Identity()
        steps = chosen_steps(DataControlledNODE, tolerance, step_size)
        self.flow = NeuralODE(field, method=method, gradient=gradient, **steps)
        if adaptive_depth:
            _check_adaptive(self.flow)
        self.depth = DepthNetwork(input_size) if adaptive_depth else None
        self.head = nn.Linear(input_size, output_size)
        self.input_size = input_size

    def features(self, x: Tensor) -> Tensor:
        """Return the state at the sample's depth, (batch, input)."""
        times = None if self.depth is None else self.depth.times(x)
        assert isinstance(self.flow, NeuralODE)
        return self.flow.solve(x, times, field=Controlled(self.flow.field, x)).final


def _check_adaptive(flow: NeuralODE) -> None:
    solver = choose_solver(flow.method)
    if flow.gradient == "reversible":
        wrong, got = "gradient", "'reversible', which undoes the steps of all samples together"
    elif flow.step_size is not None:
        wrong, got = "step_size", f"{flow.step_size:g} for all samples"
    elif not (solver.per_sample and solver.adaptive):
        wrong, got = "method", f"'{solver.name}'"
    else:
        return
    raise OptionError(
        explain(
            f"DataControlledNODE.{wrong}",
            expected="with adaptive_depth, steps of its own for every sample",
            got=got,
            remedy="Use 'dopri5', 'tsit5', 'bosh3', 'heun' or 'dopri8' with another gradient and "
            "no step_size, or leave out adaptive_depth.",
        )
    )


@models.register("rk-net")
class RKNet(ContinuousModel):
    """A neural ODE with fixed Runge–Kutta steps, trained by back-propagation through them.

    Equation:
        h' = h + Ψ_{1/n}(t, h), n times

    Symbols:
        Ψ a step of the classical method of order four.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the field.
        steps: n.
        augmented_size: Zeros added to the input.
        method: Explicit method.

    Example:
        >>> model = undamped.RKNet(2, 2, steps=6)

    Reference:
        R. Chen and others. Neural ordinary differential equations. NeurIPS, 2018, table 1.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        steps: PositiveInt = 6,
        augmented_size: NonNegativeInt = 0,
        method: str = "rk4",
    ) -> None:
        super().__init__()
        size = input_size + augmented_size
        self.start = Augmentation(input_size, augmented_size) if augmented_size else nn.Identity()
        field = PerceptronField(size, hidden_size)
        self.flow = NeuralODE(field, method=method, step_size=1 / steps, gradient="backprop")
        self.head = nn.Linear(size, output_size)
        self.input_size = input_size
