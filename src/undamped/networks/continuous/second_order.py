"""Second-order continuous-depth models: HBNODE, GHBNODE, SONODE."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from undamped.checked import checked
from undamped.fields.augmented import Augmentation
from undamped.fields.heavy_ball import HeavyBallField, InitialMomentum, SecondOrderField
from undamped.fields.perceptron import Activation, PerceptronField
from undamped.flows.neural_ode import NeuralODE
from undamped.networks.continuous.base import ContinuousModel
from undamped.networks.continuous.steps import chosen_steps
from undamped.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped.registry import models
from undamped.solvers.settings import Gradient


class _SecondOrder(ContinuousModel):
    def _build(
        self,
        field: nn.Module,
        size: int,
        output_size: int,
        momentum: Literal["zero", "learned"],
        augmented_size: int,
        method: str,
        steps: dict[str, Any],
        gradient: Gradient,
    ) -> None:
        begin = InitialMomentum(size, momentum)
        self.start = (
            nn.Sequential(Augmentation(size - augmented_size, augmented_size), begin)
            if augmented_size
            else begin
        )
        self.flow = NeuralODE(field, method=method, gradient=gradient, **steps)
        self.size = size
        self.head = nn.Linear(size, output_size)
        self.input_size = size - augmented_size

    def features(self, x: Tensor) -> Tensor:
        """Return the position at the end of depth, (batch, size)."""
        return super().features(x)[..., : self.size]


@models.register("hbnode")
class HBNODE(_SecondOrder):
    """Heavy-ball neural ODE, plain or general.

    Equation:
        ḣ = m,  ṁ = −γ m + f(t, h);  general: ḣ = tanh(m),  ṁ = −γ m + f(t, h) − ξ h

    Symbols:
        h position, m momentum, γ learned damping, ξ learned restoring force, f a perceptron.

    Promise:
        The adjoint of m is a heavy-ball equation with the same γ.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the force.
        general: Whether it is GHBNODE.
        damping: γ at the start, below 1.
        momentum: Whether the momentum starts at zero or is learned from the input.
        augmented_size: Zeros added to the input.
        activation: Activation of the force.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Size of all steps, instead of a tolerance; methods without step control, such as
            rk4, need it.
        gradient: How gradients are taken.

    Example:
        >>> model = undamped.HBNODE(2, 2, hidden_size=32)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        general: bool = False,
        damping: PositiveFloat = 0.0474,
        momentum: Literal["zero", "learned"] = "learned",
        augmented_size: NonNegativeInt = 0,
        activation: Activation = "tanh",
        method: str = "dopri5",
        tolerance: PositiveFloat = 1e-3,
        step_size: PositiveFloat | None = None,
        gradient: Gradient = "checkpoint",
    ) -> None:
        super().__init__()
        size = input_size + augmented_size
        force = PerceptronField(size, hidden_size, activation=activation)
        field = HeavyBallField(force, damping=damping, general=general)
        steps = chosen_steps(HBNODE, tolerance, step_size)
        self._build(field, size, output_size, momentum, augmented_size, method, steps, gradient)


@models.register("ghbnode")
class GHBNODE(HBNODE):
    """Generalised heavy-ball neural ODE: bounded velocity and a learned restoring force.

    Equation:
        ḣ = tanh(m),  ṁ = −γ m + f(t, h) − ξ h

    Symbols:
        As for HBNODE.

    Promise:
        |ḣ| ≤ 1, so that positions cannot run away in a fixed time.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the force.
        damping: γ at the start, below 1.
        momentum: Whether the momentum starts at zero or is learned from the input.
        augmented_size: Zeros added to the input.
        activation: Activation of the force.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Size of all steps, instead of a tolerance; methods without step control, such as
            rk4, need it.
        gradient: How gradients are taken.

    Example:
        >>> model = undamped.GHBNODE(2, 2, hidden_size=32)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        damping: PositiveFloat = 0.0474,
        momentum: Literal["zero", "learned"] = "learned",
        augmented_size: NonNegativeInt = 0,
        activation: Activation = "tanh",
        method: str = "dopri5",
        tolerance: PositiveFloat = 1e-3,
        step_size: PositiveFloat | None = None,
        gradient: Gradient = "checkpoint",
    ) -> None:
        super().__init__(
            input_size,
            output_size,
            hidden_size=hidden_size,
            general=True,
            damping=damping,
            momentum=momentum,
            augmented_size=augmented_size,
            activation=activation,
            method=method,
            tolerance=tolerance,
            step_size=step_size,
            gradient=gradient,
        )


@models.register("sonode")
class SONODE(_SecondOrder):
    """Second-order neural ODE: a force on position and velocity.

    Equation:
        ḧ = f(t, [h, ḣ])

    Symbols:
        h position, f a perceptron.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the force.
        momentum: Whether the velocity starts at zero or is learned from the input.
        augmented_size: Zeros added to the input.
        activation: Activation of the force.
        method: Solver.
        tolerance: Relative and absolute tolerance.
        step_size: Size of all steps, instead of a tolerance; methods without step control, such as
            rk4, need it.
        gradient: How gradients are taken.

    Example:
        >>> model = undamped.SONODE(2, 2, hidden_size=32)

    Reference:
        A. Norcliffe and others. On second order behaviour in augmented neural ODEs. NeurIPS,
        2020.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        momentum: Literal["zero", "learned"] = "learned",
        augmented_size: NonNegativeInt = 0,
        activation: Activation = "tanh",
        method: str = "dopri5",
        tolerance: PositiveFloat = 1e-3,
        step_size: PositiveFloat | None = None,
        gradient: Gradient = "checkpoint",
    ) -> None:
        super().__init__()
        size = input_size + augmented_size
        force = PerceptronField(size, hidden_size, input_size=2 * size, activation=activation)
        self._build(
            SecondOrderField(force),
            size,
            output_size,
            momentum,
            augmented_size,
            method,
            chosen_steps(SONODE, tolerance, step_size),
            gradient,
        )
