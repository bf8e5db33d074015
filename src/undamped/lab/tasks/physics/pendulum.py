"""A pendulum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Coordinate, StateSpace
from undamped._base.options import NonNegativeInt, PositiveFloat
from undamped._base.registry import tasks
from undamped.lab.tasks.physics.drawing import Drawing, hanging
from undamped.lab.tasks.physics.motion_task import MotionOptions, MotionTask
from undamped.lab.tasks.physics.system import System, on_rings, uniform
from undamped.models.physics.fields.hamiltonian import SeparableField
from undamped.models.physics.fields.ports import ConstantInput, Ports


class PendulumField(SeparableField):
    """H = a p² + b (1 − cos q).

    Args:
        kinetic: a.
        gravity: b.
        torque: Whether there is an input, which acts on the momentum.
    """

    def __init__(self, kinetic: float = 1.0, gravity: float = 3.0, torque: bool = False) -> None:
        super().__init__(1, Ports(ConstantInput(1, (0,))) if torque else None)
        self.a, self.b = kinetic, gravity

    def kinetic(self, p: Tensor) -> Tensor:
        """Return T."""
        return self.a * p.square().sum(-1)

    def potential(self, q: Tensor) -> Tensor:
        """Return V."""
        return self.b * (1 - torch.cos(q)).sum(-1)

    def kinetic_gradient(self, p: Tensor) -> Tensor:
        """Return ∂T/∂p."""
        return 2 * self.a * p

    def potential_gradient(self, q: Tensor) -> Tensor:
        """Return ∂V/∂q."""
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
    """H = a p² + b (1 − cos q): on rings of angle and momentum, or over the whole circle.

    Args:
        kinetic: a.
        gravity: b.
        embedded: Whether states are cosine, sine and velocity, in place of angle and momentum.
        torques: Inputs to draw from, one for every trajectory; none for a pendulum left alone.
    """

    readings: ClassVar[int] = 45

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
        """Return a, b and the torques."""
        torques = {"torques": list(self.torques)} if self.torques else {}
        return {"kinetic": self.field.a, "gravity": self.field.b, **torques}

    def picture(self, states: Tensor) -> Drawing:
        """Draw a rod."""
        embedded = self.embedded
        angle = torch.atan2(states[..., 1], states[..., 0]) if embedded else states[..., 0]
        return hanging(angle.unsqueeze(-1))

    def starts(self, count: int, generator: torch.Generator) -> Tensor:
        """Draw angles and momenta, and torques behind them."""
        if self.embedded:
            angle = uniform(generator, -math.pi, math.pi, count)
            speed = uniform(generator, -1, 1, count)
            states = torch.stack((angle.cos(), angle.sin(), speed), dim=1)
        else:
            states = on_rings(count, 1.3, 2.3, generator)
        if not self.torques:
            return states
        chosen = torch.randint(len(self.torques), (count, 1), generator=generator)
        return torch.cat((states, torch.tensor(self.torques, dtype=torch.float64)[chosen]), dim=1)


@tasks.register("pendulum")
class Pendulum(MotionTask):
    """A pendulum.

    H = a p² + b (1 − cos q); 25 trajectories of 45 readings on [0, 3], from radii between 1.3 and
    2.3. Papers differ in their constants: HNN has a = 1, b = 3; SymODEN 1.5, 5; SSINN 0.25, 2;
    SympNet and Taylor-net 0.5, 1. With coordinates=embedded a state is (cos q, sin q, q̇) and starts
    lie all over the circle.

    Args:
        kinetic: a.
        gravity: b.
        coordinates: Angle and momentum, or cosine and sine of the angle and its velocity.
        torques: Inputs, one of which acts on each trajectory; none for a pendulum left alone.
        seed: Where the order of training comes from.

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
        seed: NonNegativeInt = 0,
        **options: Unpack[MotionOptions],
    ) -> None:
        embedded = coordinates == "embedded"
        system = PendulumSystem(kinetic, gravity, embedded=embedded, torques=torques)
        super().__init__(system, seed, options)
