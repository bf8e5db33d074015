"""Second-order continuous-depth models: HBNODE, GHBNODE, SONODE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked, with_fixed
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel, flow_of
from undamped.models.continuous.node import NODEOptions
from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.heavy_ball import HeavyBallField, InitialMomentum, SecondOrderField
from undamped.ode.fields.perceptron import PerceptronField

HEAVY_BALL = (
    *ContinuousModel.promises,
    Promise(Kind.PAIRED_SPECTRUM, "Jacobian eigenvalues come in pairs of sum −γ"),
    Promise(Kind.VOLUME_RATE, "the flow's determinant is exp(−γ n T), whatever the force"),
)
GENERAL_HEAVY_BALL = (
    *HEAVY_BALL,
    Promise(Kind.BOUNDED_VELOCITY, "|ḣ| ≤ 1: no position moves further than T"),
)
_AT_THE_END = (
    "A force acts on momenta, which the readout does not read: at the end of depth y is zero."
)
NO_PARAMETERS = {"parameters": _AT_THE_END, "direction": _AT_THE_END}
"""Penalties that second-order models do not support, and why."""


class HeavyBall(ContinuousModel):
    """A model whose flow is the heavy-ball equation."""

    @property
    def _ball(self) -> HeavyBallField:
        field = self.flow.field
        assert isinstance(field, HeavyBallField)
        return field

    @property
    def damping(self) -> Tensor:
        """γ."""
        return self._ball.damping

    def volume_rate(self, numbers: int) -> Tensor:
        """Return d log det/dt of the flow: −γ for each position, half of the state."""
        return -self.damping * numbers / 2

    def derivative(self, t: float, state: Tensor) -> Tensor:
        """Return (ḣ, ṁ) at a time and state."""
        return self._ball(torch.tensor(t, dtype=state.dtype), state)


class _SecondOrder(ContinuousModel):
    def _build(
        self,
        field: nn.Module,
        size: int,
        output_size: int,
        momentum: Literal["zero", "learned"],
        options: Mapping[str, Any],
    ) -> None:
        input_size = size - options["augmented_size"]
        start: nn.Module = InitialMomentum(size, momentum)
        if input_size < size:
            start = nn.Sequential(Augmentation(input_size, size - input_size), start)
        self.size, sizes = size, (input_size, size, output_size)
        self._assemble(start, flow_of(field, options), sizes, options, NO_PARAMETERS)

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
        general: Whether it is GHBNODE.
        damping: Initial γ, below 1.
        momentum: Whether the momentum starts at zero or is learned from the input.
        options: See `FieldOptions` and `DepthOptions`.

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
        general: bool = False,
        damping: PositiveFloat = 0.0474,
        momentum: Literal["zero", "learned"] = "learned",
        **options: Unpack[NODEOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        size = input_size + values["augmented_size"]
        force = PerceptronField(size, values["hidden_size"], activation=values["activation"])
        field = HeavyBallField(force, damping=damping, general=general)
        if general:
            self.promises = GENERAL_HEAVY_BALL
        self._build(field, size, output_size, momentum, options)


@models.register("ghbnode")
class GHBNODE(HBNODE):
    """Generalised heavy-ball neural ODE: bounded velocity and a learned restoring force.

    Equation:
        ḣ = tanh(m),  ṁ = −γ m + f(t, h) − ξ h

    Promise:
        |ḣ| ≤ 1, so that positions stay bounded in a fixed time; and those of HBNODE.

    Args:
        options: Those of HBNODE but `general`, which is true.
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
        The flow of position and velocity together is a homeomorphism; that of positions alone is
        not: two may pass through each other with different velocities.

    Args:
        momentum: Whether the velocity starts at zero or is learned from the input.
        options: See `FieldOptions` and `DepthOptions`.

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
        momentum: Literal["zero", "learned"] = "learned",
        **options: Unpack[NODEOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        size = input_size + values["augmented_size"]
        force = PerceptronField(
            size, values["hidden_size"], input_size=2 * size, activation=values["activation"]
        )
        field = SecondOrderField(force)
        self._build(field, size, output_size, momentum, options)
