"""A pendulum that hangs from a pendulum."""

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
from undamped.lab.tasks.physics.partners import Exchange
from undamped.lab.tasks.physics.system import System, uniform
from undamped.models.physics.fields.hamiltonian import HamiltonianField


class DoublePendulumField(HamiltonianField):
    """Two point masses on massless rods.

    Equation:
        H = (m₂ l₂² p₁² + (m₁+m₂) l₁² p₂² − 2 m₂ l₁ l₂ p₁ p₂ cos(q₁−q₂))
        / (2 m₂ l₁² l₂² (m₁ + m₂ sin²(q₁−q₂))) − (m₁+m₂) g l₁ cos q₁ − m₂ g l₂ cos q₂

    Args:
        masses: m₁ and m₂.
        lengths: l₁ and l₂.
        gravity: g.
    """

    def __init__(
        self,
        masses: tuple[float, float] = (1.0, 1.0),
        lengths: tuple[float, float] = (1.0, 1.0),
        gravity: float = 9.8,
    ) -> None:
        super().__init__(2)
        self.masses, self.lengths, self.gravity = masses, lengths, gravity

    def _kinetic(self, q: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        """Return numerator and denominator of the kinetic energy, and cos and sin of q₁ − q₂."""
        (m1, m2), (l1, l2) = self.masses, self.lengths
        p1, p2 = p.unbind(-1)
        apart = q[..., 0] - q[..., 1]
        cosine, sine = apart.cos(), apart.sin()
        above = m2 * l2**2 * p1**2 + (m1 + m2) * l1**2 * p2**2
        above = above - 2 * m2 * l1 * l2 * p1 * p2 * cosine
        below = 2 * m2 * l1**2 * l2**2 * (m1 + m2 * sine**2)
        return above, below, cosine, sine

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H."""
        (m1, m2), (l1, l2), g = self.masses, self.lengths, self.gravity
        above, below, _, _ = self._kinetic(q, p)
        weights = (m1 + m2) * g * l1 * q[..., 0].cos() + m2 * g * l2 * q[..., 1].cos()
        return above / below - weights

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p."""
        (m1, m2), (l1, l2), g = self.masses, self.lengths, self.gravity
        (q1, q2), (p1, p2) = q.unbind(-1), p.unbind(-1)
        above, below, cosine, sine = self._kinetic(q, p)
        both = 2 * m2 * l1 * l2
        first = (2 * m2 * l2**2 * p1 - both * p2 * cosine) / below
        second = (2 * (m1 + m2) * l1**2 * p2 - both * p1 * cosine) / below
        turning = (both * p1 * p2 - above / below * both**2 * cosine) * sine / below
        by_q1 = turning + (m1 + m2) * g * l1 * q1.sin()
        by_q2 = m2 * g * l2 * q2.sin() - turning
        return torch.stack((by_q1, by_q2), dim=-1), torch.stack((first, second), dim=-1)


class DoublePendulumSystem(System[DoublePendulumField]):
    """Masses and rods of length one.

    Args:
        gravity: g.
        swing: Largest angle to start from.
        speed: Largest rate of each angle to start with; 0 starts at rest.
    """

    space = StateSpace(("q1", "q2", "p1", "p2"), ("angle", "angle", "momentum", "momentum"))
    trajectories: ClassVar[int] = 100
    readings: ClassVar[int] = 31

    def __init__(
        self, gravity: float = 9.8, swing: float = math.pi / 2, speed: float = 0.0
    ) -> None:
        self.field = DoublePendulumField(gravity=gravity)
        self.swing, self.speed = swing, speed

    def constants(self) -> dict[str, Any]:
        """Return masses, lengths and gravity."""
        of = self.field
        return {"masses": list(of.masses), "lengths": list(of.lengths), "gravity": of.gravity}

    def picture(self, states: Tensor) -> Drawing:
        """Draw two rods."""
        return hanging(states[..., :2])

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw angles, at rest or with rates."""
        angles = uniform(generator, -self.swing, self.swing, count, 2)
        if not self.speed:
            return torch.cat((angles, torch.zeros_like(angles)), dim=1)
        rates = uniform(generator, -self.speed, self.speed, count, 2)
        return torch.cat((angles, Exchange(self.field).own(angles, rates)), dim=1)


@tasks.register("double-pendulum")
class DoublePendulum(MotionTask):
    """A pendulum that hangs from a pendulum.

    Point masses of 1 on rods of length 1; chaotic where it swings high. 100 trajectories of 31
    readings on [0, 3], from rest.

    Args:
        gravity: g: 9.8 as for LNN; SympNet has 1.
        swing: Largest angle to start from.
        speed: Largest rate of each angle to start with; 0 starts at rest. LNN's authors have
            swing=3.1416 and speed=10.
        seed: Where the order of training comes from.

    Example:
        >>> build("double-pendulum", gravity=1.0)

    Reference:
        Constants of M. Cranmer and others. Lagrangian neural networks. ICLR workshop, 2020.
    """

    @checked
    def __init__(
        self,
        *,
        gravity: PositiveFloat = 9.8,
        swing: PositiveFloat = math.pi / 2,
        speed: NonNegativeFloat = 0.0,
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(DoublePendulumSystem(gravity, swing, speed), seed, options)
