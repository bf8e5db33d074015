"""An arm of two links that hangs free and is driven at its elbow."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.drawing import Drawing, hanging
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, levels, uniform
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.ports import ConstantInput, Ports


class AcrobotField(LagrangianField):
    """Two links of mass and length one with their middles as centres of mass.

    Equation:
        L = ½ θ̇ᵀ M(θ₂) θ̇ + (m₁ c₁ + m₂ l₁) g cos θ₁ + m₂ c₂ g cos(θ₁ + θ₂)
        M₁₁ = m₁ c₁² + m₂ (l₁² + c₂² + 2 l₁ c₂ cos θ₂) + I₁ + I₂
        M₁₂ = m₂ (c₂² + l₁ c₂ cos θ₂) + I₂,  M₂₂ = m₂ c₂² + I₂

    Symbols:
        θ₁ from hanging, θ₂ of the elbow; m masses, l₁ length, c distances to centres of mass, I
        moments of inertia.

    Args:
        gravity: g.
        inertia: I of each link; gymnasium has 1, a rod has 1/12.
        elbow_only: Whether only the elbow is driven; otherwise the shoulder is, too.
    """

    mass, length, centre = 1.0, 1.0, 0.5

    def __init__(
        self, gravity: float = 9.8, inertia: float = 1.0, *, elbow_only: bool = True
    ) -> None:
        super().__init__(2, Ports(ConstantInput(2, (1,) if elbow_only else (0, 1))))
        self.gravity, self.inertia = gravity, inertia

    def masses(self, q: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return M₁₁, M₁₂ and M₂₂, (…,)."""
        m, long, c, inertia = self.mass, self.length, self.centre, self.inertia
        cosine = q[..., 1].cos()
        first = m * c**2 + m * (long**2 + c**2 + 2 * long * c * cosine) + 2 * inertia
        last = torch.full_like(cosine, m * c**2 + inertia)
        return first, m * (c**2 + long * c * cosine) + inertia, last

    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        """Return L."""
        (first, mixed, last), (a, b) = self.masses(q), v.unbind(-1)
        weight = self.mass * self.gravity
        height = (self.centre + self.length) * q[..., 0].cos() + self.centre * q.sum(-1).cos()
        return first * a**2 / 2 + mixed * a * b + last * b**2 / 2 + weight * height

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return θ̈, by the inverse of a matrix of two rows."""
        (first, mixed, last), (a, b) = self.masses(q), v.unbind(-1)
        bend = self.mass * self.length * self.centre * q[..., 1].sin()
        weight = self.mass * self.gravity
        below = weight * self.centre * q.sum(-1).sin()
        above = weight * (self.centre + self.length) * q[..., 0].sin()
        right = torch.stack((bend * (2 * a * b + b**2) - above - below, -bend * a**2 - below), -1)
        one, two = (right + force).unbind(-1)
        found = torch.stack((last * one - mixed * two, first * two - mixed * one), dim=-1)
        return found / (first * last - mixed**2).unsqueeze(-1)


class AcrobotSystem(System[AcrobotField]):
    """Links at any angle, with torques at the elbow, or at elbow and shoulder.

    Args:
        gravity: g.
        inertia: Moment of inertia of each link.
        torque: Largest torque; torques take five values evenly.
        shoulder: Whether there is a motor in the shoulder, too.
    """

    trajectories: ClassVar[int] = 64
    readings: ClassVar[int] = 20
    span: ClassVar[float] = 0.95

    def __init__(
        self,
        gravity: float = 9.8,
        inertia: float = 1.0,
        torque: float = 1.0,
        *,
        shoulder: bool = False,
    ) -> None:
        self.field = AcrobotField(gravity, inertia, elbow_only=not shoulder)
        self.torque, self.inputs = torque, 2 if shoulder else 1
        names = ("τ1", "τ2") if shoulder else ("τ2",)
        kinds = ("angle", "angle", "velocity", "velocity")
        self.space = StateSpace(("θ1", "θ2", "θ̇1", "θ̇2"), kinds, inputs=names)

    def constants(self) -> dict[str, Any]:
        """Return masses, lengths, inertia and gravity."""
        of = self.field
        return {
            "mass": of.mass,
            "length": of.length,
            "centre": of.centre,
            "inertia": of.inertia,
            "gravity": of.gravity,
        }

    def picture(self, states: Tensor) -> Drawing:
        """Draw both links."""
        return hanging(states[..., :2].cumsum(-1))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw angles, velocities and torques."""
        angles = uniform(generator, -math.pi, math.pi, count, 2)
        velocity = uniform(generator, -1, 1, count, 2)
        torques = [levels(generator, self.torque, count) for _ in range(self.inputs)]
        return torch.cat((angles, velocity, *torques), dim=1)


@tasks.register("acrobot")
class Acrobot(MotionTask):
    """An arm of two links that hangs free and is driven at its elbow.

    True to its energy, with torques of any size; gymnasium's Acrobot has three torques, steps of
    0.2, and clips speeds. 64 trajectories of 20 readings 0.05 apart, each with a torque that
    stays, over the whole circle.

    Args:
        gravity: g.
        inertia: Moment of inertia of each link about its centre: 1 as in gymnasium; a rod has 1/12.
        torque: Largest torque; five values evenly between it and its opposite are drawn.
        shoulder: Whether there is a motor in the shoulder, too.
        seed: Where the order of training comes from.

    Example:
        >>> build("acrobot", shoulder=True)

    Reference:
        R. Sutton, A. Barto. Reinforcement learning: an introduction, 1998: equations of the book,
        which belong to a Lagrangian; those of the 1996 paper do not. Sizes of the data set as in
        Y. D. Zhong, B. Dey, A. Chakraborty. Symplectic ODE-net. ICLR, 2020.
    """

    @checked
    def __init__(
        self,
        *,
        gravity: PositiveFloat = 9.8,
        inertia: PositiveFloat = 1.0,
        torque: NonNegativeFloat = 1.0,
        shoulder: bool = False,
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(AcrobotSystem(gravity, inertia, torque, shoulder=shoulder), seed, options)
