"""A pole on a cart."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace
from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.drawing import Drawing
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, levels, uniform
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.ports import ConstantInput, Ports


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
        """Return L."""
        angle, (along, turning) = q[..., 1], v.unbind(-1)
        m, half = self.pole, self.half_length
        kinetic = (self.cart + m) * along**2 / 2 + m * half * angle.cos() * along * turning
        return kinetic + 2 / 3 * m * half**2 * turning**2 - m * self.gravity * half * angle.cos()

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return ẍ and θ̈, by the inverse of a matrix of two rows."""
        cosine, sine = q[..., 1].cos(), q[..., 1].sin()
        m, half = self.pole, self.half_length
        a, b, c = self.cart + m, m * half * cosine, 4 / 3 * m * half**2
        right = torch.stack(
            (m * half * sine * v[..., 1] ** 2, m * self.gravity * half * sine), dim=-1
        )
        first, second = (right + force).unbind(-1)
        found = torch.stack((c * first - b * second, a * second - b * first), dim=-1)
        return found / (a * c - b * b).unsqueeze(-1)


class CartPoleSystem(System[CartPoleField]):
    """A cart that starts anywhere near the middle, and a pole at any angle.

    Args:
        force: Largest input; inputs take five values evenly.
        constants: Those of `CartPoleField`.
    """

    space = StateSpace(
        ("x", "θ", "ẋ", "θ̇"), ("position", "angle", "velocity", "velocity"), inputs=("u",)
    )
    trajectories: ClassVar[int] = 64
    readings: ClassVar[int] = 20
    span: ClassVar[float] = 0.95

    def __init__(self, force: float = 2.0, **constants: float) -> None:
        self.field = CartPoleField(**constants)
        self.force = force

    def constants(self) -> dict[str, Any]:
        """Return masses, length and gravity."""
        of = self.field
        return {
            "cart": of.cart,
            "pole": of.pole,
            "half_length": of.half_length,
            "gravity": of.gravity,
        }

    def picture(self, states: Tensor) -> Drawing:
        """Draw the cart as a point of a line, and the pole."""
        place, angle = states[..., 0], states[..., 1]
        cart = torch.stack((place, torch.zeros_like(place)), dim=-1)
        pole = torch.stack((angle.sin(), angle.cos()), dim=-1)
        tip = cart + 2 * self.field.half_length * pole
        return Drawing(torch.stack((cart, tip), dim=-2), ((1, 2),))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw places, angles, velocities and a force."""
        place = uniform(generator, -1, 1, count, 1)
        angle = uniform(generator, -math.pi, math.pi, count, 1)
        velocity = uniform(generator, -1, 1, count, 2)
        return torch.cat((place, angle, velocity, levels(generator, self.force, count)), dim=1)


@tasks.register("cart-pole")
class CartPole(MotionTask):
    """A pole on a cart.

    True to its energy, with a force of any size on the cart and no walls; gymnasium's CartPole has
    two forces, steps of the first order, and ends at 12°. 64 trajectories of 20 readings 0.05
    apart, each with a force that stays, over the whole circle.

    Args:
        cart: Mass of the cart.
        pole: Mass of the pole.
        half_length: Half the length of the pole.
        gravity: g.
        force: Largest force; five values evenly between it and its opposite are drawn.
        seed: Where the order of training comes from.

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
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        system = CartPoleSystem(
            force, cart=cart, pole=pole, half_length=half_length, gravity=gravity
        )
        super().__init__(system, seed, options)
