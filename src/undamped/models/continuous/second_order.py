"""Second-order continuous-depth models: HBNODE, GHBNODE, SONODE."""

from __future__ import annotations

from typing import Literal, Unpack

from torch import Tensor, nn

from undamped._base.checked import checked, with_fixed
from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.heavy_ball import (
    GENERAL_HEAVY_BALL,
    HEAVY_BALL,
    NO_SHARE,
    HeavyBall,
)
from undamped.models.continuous.options import DepthOptions, flow_of
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.heavy_ball import HeavyBallField, InitialMomentum, SecondOrderField
from undamped.ode.fields.perceptron import Activation, PerceptronField


class _SecondOrder(ContinuousModel):
    def _build(
        self,
        field: nn.Module,
        size: int,
        output_size: int,
        momentum: Literal["zero", "learned"],
        augmented_size: int,
        solve: DepthOptions,
    ) -> None:
        begin = InitialMomentum(size, momentum)
        self.start = (
            nn.Sequential(Augmentation(size - augmented_size, augmented_size), begin)
            if augmented_size
            else begin
        )
        self.flow = flow_of(field, solve)
        self.keep(solve, **NO_SHARE)
        self.size = size
        self.head = nn.Linear(size, output_size)
        self.input_size = size - augmented_size

    def features(self, x: Tensor) -> Tensor:
        """Return the position at the end of depth, (batch, size)."""
        return super().features(x)[..., : self.size]


@models.register("hbnode")
class HBNODE(HeavyBall, _SecondOrder):
    """Heavy-ball neural ODE, plain or general.

    Equation:
        ḣ = m,  ṁ = −γ m + f(t, h);  general: ḣ = tanh(m),  ṁ = −γ m + f(t, h) − ξ h

    Symbols:
        h position, m momentum, γ learned damping, ξ learned restoring force, f a perceptron.

    Promise:
        The adjoint of m is a heavy-ball equation with the same γ: eigenvalues of the Jacobian come
        in pairs of sum −γ, and the determinant of the flow is exp(−γ n T) for n positions, whatever
        the force. So gradients cannot vanish faster than exp(−γ(T − t)/2) in every direction.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the force.
        general: Whether it is GHBNODE.
        damping: γ at the start, below 1.
        momentum: Whether the momentum starts at zero or is learned from the input.
        augmented_size: Zeros added to the input.
        activation: Activation of the force.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

    Example:
        >>> model = undamped.models.HBNODE(2, 2, hidden_size=32)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """

    usual_choice = True
    promises = HEAVY_BALL

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
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        size = input_size + augmented_size
        force = PerceptronField(size, hidden_size, activation=activation)
        field = HeavyBallField(force, damping=damping, general=general)
        if general:
            self.promises = GENERAL_HEAVY_BALL
        self._build(field, size, output_size, momentum, augmented_size, solve)


@models.register("ghbnode")
class GHBNODE(HBNODE):
    """Generalised heavy-ball neural ODE: bounded velocity and a learned restoring force.

    Equation:
        ḣ = tanh(m),  ṁ = −γ m + f(t, h) − ξ h

    Symbols:
        As for HBNODE.

    Promise:
        |ḣ| ≤ 1, so that positions cannot run away in a fixed time; and those of HBNODE.

    Args:
        options: Those of HBNODE but `general`, which is true.

    Example:
        >>> model = undamped.models.GHBNODE(2, 2, hidden_size=32)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """

    promises = GENERAL_HEAVY_BALL
    __init__ = with_fixed(HBNODE.__init__, general=True)


@models.register("sonode")
class SONODE(_SecondOrder):
    """Second-order neural ODE: a force on position and velocity.

    Equation:
        ḧ = f(t, [h, ḣ])

    Symbols:
        h position, f a perceptron.

    Promise:
        The flow of position and velocity together is a homeomorphism, that of positions alone is
        none: two may pass through each other with different velocities.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width of the force.
        momentum: Whether the velocity starts at zero or is learned from the input.
        augmented_size: Zeros added to the input.
        activation: Activation of the force.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

    Example:
        >>> model = undamped.models.SONODE(2, 2, hidden_size=32)

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
        **solve: Unpack[DepthOptions],
    ) -> None:
        super().__init__()
        size = input_size + augmented_size
        force = PerceptronField(size, hidden_size, input_size=2 * size, activation=activation)
        field = SecondOrderField(force)
        self._build(field, size, output_size, momentum, augmented_size, solve)
