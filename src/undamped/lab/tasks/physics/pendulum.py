"""A pendulum, and a pendulum that hangs from a pendulum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Coordinate, StateSpace
from undamped._base.options import NonNegativeFloat, PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import (
    DataSize,
    Drawing,
    ExchangedField,
    QuadraticKineticField,
    System,
    hanging,
    on_rings,
    uniform,
)
from undamped.models.physics.fields.hamiltonian import HamiltonianField
from undamped.models.physics.fields.ports import ConstantInput, Ports


class PendulumField(QuadraticKineticField):
    """H = a p² + b (1 − cos q).

    Args:
        kinetic: a.
        gravity: b.
        torque: Whether there is an input, which acts on the momentum.
    """

    def __init__(self, kinetic: float = 1.0, gravity: float = 3.0, torque: bool = False) -> None:
        super().__init__(1, kinetic, Ports(ConstantInput(1, (0,))) if torque else None)
        self.b = gravity

    def potential(self, q: Tensor) -> Tensor:
        return self.b * (1 - torch.cos(q)).sum(-1)

    def potential_gradient(self, q: Tensor) -> Tensor:
        return self.b * torch.sin(q)


class EmbeddedPendulumField(nn.Module):
    """The same pendulum in the cosine and sine of its angle, and its velocity.

    Equation:
        ċ = −s ω,  ṡ = c ω,  ω̇ = 2a (u − b s)

    Args:
        kinetic: a.
        gravity: b.
    """

    def __init__(self, kinetic: float = 1.0, gravity: float = 3.0) -> None:
        super().__init__()
        self.a, self.b = kinetic, gravity

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates."""
        c, s, w = state.unbind(-1)
        push = 0.0 if u is None else u[..., 0]
        return torch.stack((-s * w, c * w, 2 * self.a * (push - self.b * s)), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ω²/4a + b (1 − c)."""
        c, _, w = state.unbind(-1)
        return w.square() / (4 * self.a) + self.b * (1 - c)


class PendulumSystem(System[PendulumField | EmbeddedPendulumField]):
    """H = a p² + b (1 − cos q): starts on rings of angle and momentum, or at any angle.

    Args:
        kinetic: a.
        gravity: b.
        embedded: Whether states are cosine, sine and velocity instead of angle and momentum.
        torques: The inputs that are drawn, one for every trajectory; empty for no input.
    """

    data_size = DataSize(readings=45)

    def __init__(
        self,
        kinetic: float = 1.0,
        gravity: float = 3.0,
        *,
        embedded: bool = False,
        torques: Sequence[float] = (),
    ) -> None:
        self.torques, self.embedded = tuple(torques), embedded
        inputs = ("u",) if torques else ()
        if embedded:
            self.field = EmbeddedPendulumField(kinetic, gravity)
            kinds: tuple[Coordinate, ...] = ("cosine", "sine", "velocity")
            self.space = StateSpace(("cos q", "sin q", "ω"), kinds, inputs)
        else:
            self.field = PendulumField(kinetic, gravity, bool(torques))
            self.space = StateSpace(("q", "p"), ("angle", "momentum"), inputs)

    def constants(self) -> dict[str, Any]:
        torques = {"torques": list(self.torques)} if self.torques else {}
        return {"kinetic": self.field.a, "gravity": self.field.b, **torques}

    def drawing(self, states: Tensor) -> Drawing:
        embedded = self.embedded
        angle = torch.atan2(states[..., 1], states[..., 0]) if embedded else states[..., 0]
        return hanging(angle.unsqueeze(-1))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw angles and momenta or velocities, followed by torques."""
        if self.embedded:
            angle = uniform(generator, -math.pi, math.pi, count)
            speed = uniform(generator, -1, 1, count)
            states = torch.stack((angle.cos(), angle.sin(), speed), dim=1)
        else:
            states = on_rings(count, 1.3, 2.3, generator)
        if not self.torques:
            return states
        index = torch.randint(len(self.torques), (count, 1), generator=generator)
        return torch.cat((states, torch.tensor(self.torques, dtype=torch.float64)[index]), dim=1)


@tasks.register("pendulum")
class Pendulum(MotionTask):
    """A pendulum.

    H = a p² + b (1 − cos q); 25 trajectories of 45 readings on [0, 3], from radii between 1.3 and
    2.3. Papers differ in their constants: HNN has a = 1, b = 3; SymODEN 1.5, 5; SSINN 0.25, 2;
    SympNet and Taylor-net 0.5, 1. With coordinates=embedded a state is (cos q, sin q, q̇), and
    trajectories start at any angle.

    Args:
        kinetic: a.
        gravity: b.
        coordinates: Angle and momentum, or cosine and sine of the angle and its velocity.
        torques: Inputs, one of which acts on each trajectory; empty for no input.

    Example:
        >>> build("pendulum", form="trajectory", window=10)

    Reference:
        Set up as in S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS,
        2019.
    """

    @checked
    def __init__(
        self,
        *,
        kinetic: PositiveFloat = 1.0,
        gravity: PositiveFloat = 3.0,
        coordinates: Literal["momentum", "embedded"] = "momentum",
        torques: Sequence[float] = (),
        **options: Unpack[MotionOptions],
    ) -> None:
        embedded = coordinates == "embedded"
        system = PendulumSystem(kinetic, gravity, embedded=embedded, torques=torques)
        super().__init__(system, options)


class DoublePendulumField(HamiltonianField):
    """Two point masses on massless rods.

    Equation:
        H = (m₂ l₂² p₁² + (m₁+m₂) l₁² p₂² − 2 m₂ l₁ l₂ p₁ p₂ cos(q₁−q₂))
        / (2 m₂ l₁² l₂² (m₁ + m₂ sin²(q₁−q₂))) − (m₁+m₂) g l₁ cos q₁ − m₂ g l₂ cos q₂

    Args:
        gravity: g.
    """

    masses, lengths = (1.0, 1.0), (1.0, 1.0)

    def __init__(self, gravity: float = 9.8) -> None:
        super().__init__(2)
        self.gravity = gravity

    def _kinetic(self, q: Tensor, p: Tensor) -> tuple[Tensor, ...]:
        """Return numerator and denominator of the kinetic energy, and cos and sin of q₁ − q₂."""
        (m1, m2), (l1, l2) = self.masses, self.lengths
        p1, p2 = p.unbind(-1)
        difference = q[..., 0] - q[..., 1]
        cosine, sine = difference.cos(), difference.sin()
        numerator = m2 * l2**2 * p1**2 + (m1 + m2) * l1**2 * p2**2
        numerator = numerator - 2 * m2 * l1 * l2 * p1 * p2 * cosine
        denominator = 2 * m2 * l1**2 * l2**2 * (m1 + m2 * sine**2)
        return numerator, denominator, cosine, sine

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        (m1, m2), (l1, l2), g = self.masses, self.lengths, self.gravity
        numerator, denominator, _, _ = self._kinetic(q, p)
        weights = (m1 + m2) * g * l1 * q[..., 0].cos() + m2 * g * l2 * q[..., 1].cos()
        return numerator / denominator - weights

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        (m1, m2), (l1, l2), g = self.masses, self.lengths, self.gravity
        (q1, q2), (p1, p2) = q.unbind(-1), p.unbind(-1)
        numerator, denominator, cosine, sine = self._kinetic(q, p)
        both = 2 * m2 * l1 * l2
        first = (2 * m2 * l2**2 * p1 - both * p2 * cosine) / denominator
        second = (2 * (m1 + m2) * l1**2 * p2 - both * p1 * cosine) / denominator
        turning = (both * p1 * p2 - numerator / denominator * both**2 * cosine) * sine / denominator
        by_q1 = turning + (m1 + m2) * g * l1 * q1.sin()
        by_q2 = m2 * g * l2 * q2.sin() - turning
        return torch.stack((by_q1, by_q2), dim=-1), torch.stack((first, second), dim=-1)


class DoublePendulumSystem(System[DoublePendulumField]):
    """Masses and rods of length one.

    Args:
        gravity: g.
        swing: The largest initial angle.
        speed: The largest initial rate of each angle; 0 starts at rest.
    """

    space = StateSpace(("q1", "q2", "p1", "p2"), ("angle", "angle", "momentum", "momentum"))
    data_size = DataSize(100, 31)
    constant_names = ("masses", "lengths", "gravity")

    def __init__(
        self, gravity: float = 9.8, swing: float = math.pi / 2, speed: float = 0.0
    ) -> None:
        self.field = DoublePendulumField(gravity)
        self.swing, self.speed = swing, speed

    def drawing(self, states: Tensor) -> Drawing:
        return hanging(states[..., :2])

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw angles, at rest or with rates."""
        angles = uniform(generator, -self.swing, self.swing, count, 2)
        if not self.speed:
            return torch.cat((angles, torch.zeros_like(angles)), dim=1)
        rates = uniform(generator, -self.speed, self.speed, count, 2)
        return torch.cat((angles, ExchangedField(self.field).partner(angles, rates)), dim=1)


@tasks.register("double-pendulum")
class DoublePendulum(MotionTask):
    """A pendulum that hangs from a pendulum.

    Point masses of 1 on rods of length 1; chaotic at high energies. 100 trajectories of 31
    readings on [0, 3], from rest.

    Args:
        gravity: g: 9.8 as for LNN; SympNet has 1.
        swing: The largest initial angle.
        speed: The largest initial rate of each angle; 0 starts at rest. LNN's authors use
            swing=3.1416 and speed=10.

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
        **options: Unpack[MotionOptions],
    ) -> None:
        super().__init__(DoublePendulumSystem(gravity, swing, speed), options)
