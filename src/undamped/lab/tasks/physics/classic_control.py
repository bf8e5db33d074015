"""Systems of Gymnasium's classic control: a pole on a cart, and an acrobot."""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import NonNegativeFloat, PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import DataSize, Drawing, System, hanging, levels, uniform
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.ports import ConstantInput, Ports


def _solve(first: Tensor | float, mixed: Tensor, last: Tensor | float, right: Tensor) -> Tensor:
    """Return x with [[first, mixed], [mixed, last]] x = right, (…, 2)."""
    r1, r2 = right.unbind(-1)
    cofactors = torch.stack((last * r1 - mixed * r2, first * r2 - mixed * r1), dim=-1)
    return cofactors / (first * last - mixed * mixed).unsqueeze(-1)


class CartPoleField(LagrangianField):
    """A uniform pole that turns about a cart on a line, pushed by a force on the cart.

    Equation:
        L = ½ (m_c + m_p) ẋ² + m_p l cos θ ẋ θ̇ + ⅔ m_p l² θ̇² − m_p g l cos θ

    Symbols:
        θ from upright, l half the length of the pole.

    Args:
        cart: m_c.
        pole: m_p.
        half_length: l.
        gravity: g.
    """

    def __init__(
        self, cart: float = 1.0, pole: float = 0.1, half_length: float = 0.5, gravity: float = 9.8
    ) -> None:
        super().__init__(2, Ports(ConstantInput(2, (0,))))
        self.cart, self.pole = cart, pole
        self.half_length, self.gravity = half_length, gravity

    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        angle, (along, turning) = q[..., 1], v.unbind(-1)
        m, half = self.pole, self.half_length
        kinetic = (self.cart + m) * along**2 / 2 + m * half * angle.cos() * along * turning
        return kinetic + 2 / 3 * m * half**2 * turning**2 - m * self.gravity * half * angle.cos()

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return ẍ and θ̈, by the inverse of the mass matrix."""
        cosine, sine = q[..., 1].cos(), q[..., 1].sin()
        m, half = self.pole, self.half_length
        a, b, c = self.cart + m, m * half * cosine, 4 / 3 * m * half**2
        right = torch.stack(
            (m * half * sine * v[..., 1] ** 2, m * self.gravity * half * sine), dim=-1
        )
        return _solve(a, b, c, right + force)


class CartPoleSystem(System[CartPoleField]):
    """A cart that starts near the origin, and a pole at any angle.

    Args:
        force: The largest input; inputs have five evenly spaced values.
        constants: Options of `CartPoleField`.
    """

    space = StateSpace(
        ("x", "θ", "ẋ", "θ̇"), ("position", "angle", "velocity", "velocity"), inputs=("u",)
    )
    data_size = DataSize(64, 20, 0.95)
    constant_names = ("cart", "pole", "half_length", "gravity")

    def __init__(self, force: float = 2.0, **constants: float) -> None:
        self.field = CartPoleField(**constants)
        self.force = force

    def drawing(self, states: Tensor) -> Drawing:
        """Draw the cart as a point of a line, and the pole."""
        position, angle = states[..., 0], states[..., 1]
        cart = torch.stack((position, torch.zeros_like(position)), dim=-1)
        pole = torch.stack((angle.sin(), angle.cos()), dim=-1)
        tip = cart + 2 * self.field.half_length * pole
        return Drawing(torch.stack((cart, tip), dim=-2), ((1, 2),))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        position = uniform(generator, -1, 1, count, 1)
        angle = uniform(generator, -math.pi, math.pi, count, 1)
        velocity = uniform(generator, -1, 1, count, 2)
        return torch.cat((position, angle, velocity, levels(generator, self.force, count)), dim=1)


@tasks.register("cart-pole")
class CartPole(MotionTask):
    """A pole on a cart.

    The motion conserves energy, with a force of any size on the cart and no walls; gymnasium's
    CartPole has two forces, first-order steps, and ends at 12°. 64 trajectories of 20 readings
    every 0.05, each with a constant force, from any angle.

    Args:
        cart: Mass of the cart.
        pole: Mass of the pole.
        half_length: Half the length of the pole.
        gravity: g.
        force: The largest force; forces have five evenly spaced values between ± this.

    Example:
        >>> build("cart-pole", cart=0.5, pole=0.5)

    Reference:
        A. Barto, R. Sutton, C. Anderson. Neuronlike adaptive elements that can solve difficult
        learning control problems. IEEE Transactions on Systems, Man, and Cybernetics, 1983.
        Sizes of the data set as in Y. D. Zhong, B. Dey, A. Chakraborty. Symplectic ODE-net. ICLR,
        2020.
    """

    @checked
    def __init__(
        self,
        *,
        cart: PositiveFloat = 1.0,
        pole: PositiveFloat = 0.1,
        half_length: PositiveFloat = 0.5,
        gravity: PositiveFloat = 9.8,
        force: NonNegativeFloat = 2.0,
        **options: Unpack[MotionOptions],
    ) -> None:
        system = CartPoleSystem(
            force, cart=cart, pole=pole, half_length=half_length, gravity=gravity
        )
        super().__init__(system, options)


class AcrobotField(LagrangianField):
    """Two links of mass and length one, with centres of mass at their middles.

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
        (first, mixed, last), (a, b) = self.masses(q), v.unbind(-1)
        weight = self.mass * self.gravity
        height = (self.centre + self.length) * q[..., 0].cos() + self.centre * q.sum(-1).cos()
        return first * a**2 / 2 + mixed * a * b + last * b**2 / 2 + weight * height

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return θ̈, by the inverse of the mass matrix."""
        (first, mixed, last), (a, b) = self.masses(q), v.unbind(-1)
        bend = self.mass * self.length * self.centre * q[..., 1].sin()
        weight = self.mass * self.gravity
        lower = weight * self.centre * q.sum(-1).sin()
        upper = weight * (self.centre + self.length) * q[..., 0].sin()
        right = torch.stack((bend * (2 * a * b + b**2) - upper - lower, -bend * a**2 - lower), -1)
        return _solve(first, mixed, last, right + force)


class AcrobotSystem(System[AcrobotField]):
    """Two links at any angle, with torques at the elbow, or at elbow and shoulder.

    Args:
        gravity: g.
        inertia: Moment of inertia of each link.
        torque: The largest torque; torques have five evenly spaced values.
        shoulder: Whether the shoulder has a motor, too.
    """

    data_size = DataSize(64, 20, 0.95)
    constant_names = ("mass", "length", "centre", "inertia", "gravity")

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

    def drawing(self, states: Tensor) -> Drawing:
        return hanging(states[..., :2].cumsum(-1))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        angles = uniform(generator, -math.pi, math.pi, count, 2)
        velocity = uniform(generator, -1, 1, count, 2)
        torques = [levels(generator, self.torque, count) for _ in range(self.inputs)]
        return torch.cat((angles, velocity, *torques), dim=1)


@tasks.register("acrobot")
class Acrobot(MotionTask):
    """An arm of two links with a motor at its elbow.

    The motion conserves energy, with torques of any size; gymnasium's Acrobot has three torques,
    steps of 0.2, and clips speeds. 64 trajectories of 20 readings every 0.05, each with a constant
    torque, from any angles.

    Args:
        gravity: g.
        inertia: Moment of inertia of each link about its centre: 1 as in gymnasium; a rod has 1/12.
        torque: The largest torque; torques have five evenly spaced values between ± this.
        shoulder: Whether the shoulder has a motor, too.

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
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(AcrobotSystem(gravity, inertia, torque, shoulder=shoulder), options)
