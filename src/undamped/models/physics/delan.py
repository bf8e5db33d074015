"""DeLaN (Lutter, Ritter and Peters, 2019): a positive mass matrix and a potential are learned."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Unpack

from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.base import MotionSolveOptions
from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.mass_lagrangian import Forces, MassLagrangian
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.hnn import Angles
from undamped.models.physics.lagrangian_model import (
    Actuation,
    LagrangianModel,
    ports_for,
    velocity_coordinates,
)
from undamped.models.physics.promised import BALANCE, ENERGY, PASSIVE
from undamped.ode.flows.solve_options import solver_arguments

MASS = Promise(Kind.POSITIVE_MASS, "masses are positive: no eigenvalue of M below its bound")


class _Measured(NamedTuple):
    """What a batch of measured rates says about forces; states and rates are sorted."""

    states: Tensor
    rates: Tensor
    u: Tensor


@models.register("delan")
class DeLaN(LagrangianModel):
    """Deep Lagrangian network: a mass matrix that is positive, and a potential.

    It answers in both directions: `derivative` and `trajectory` say what forces do, `inverse` says
    which forces a motion takes, part by part. It may learn from both, and from the power.

    Equation:
        M(q) q̈ + Ṁ(q) q̇ − ∂(½ q̇ᵀ M q̇)/∂q + ∂V/∂q = F,  M = K(q) K(q)ᵀ + ε I

    Symbols:
        q positions, K lower triangular and V perceptrons, F = g(q) u − D(q) q̇ forces of inputs
        and friction.

    Promise:
        Masses are positive, M ≥ ε. The field keeps its energy E = ½ q̇ᵀ M q̇ + V, and forces change
        it by their power, dE/dt = q̇ᵀF; with friction it never grows by more.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a velocity each.
        hidden_size: Width of the perceptrons.
        hidden_layers: Their hidden layers.
        activation: Their activation.
        angles: Whether perceptrons see angles as numbers or by cosine and sine.
        smallest_mass: ε.
        actuation: Whether inputs are the forces on the positions in their order (given), or act by
            a learned g(q); auto takes them as given where there is one for each position.
        friction: Whether there is friction.
        inverse_weight: Weight of the error of the forces that measured motion takes, squared, in
            training; for tasks with inputs, and form=derivative.
        power_weight: Weight of the error of their power, squared, likewise.
        solve: Method, tolerance or step_size, and gradient: see `SolveOptions`.

    Example:
        >>> model = undamped.models.DeLaN(2)
        >>> forces = model.inverse(torch.randn(5, 4), torch.randn(5, 2))
        >>> sum(forces).shape
        torch.Size([5, 2])

    Reference:
        M. Lutter, C. Ritter, J. Peters. Deep Lagrangian networks: using physics as model prior for
        deep learning. ICLR, 2019.
    """

    usual_choice = True
    promises = (ENERGY, BALANCE, PASSIVE, MASS)
    recipe: ClassVar = {
        "task": {"form": "derivative", "partners": "velocities"},
        "model": {"hidden_size": 64},
    }

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        hidden_size: PositiveInt = 64,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "softplus",
        angles: Angles = "embedded",
        smallest_mass: PositiveFloat = 1e-3,
        actuation: Actuation = "auto",
        friction: bool = False,
        inverse_weight: NonNegativeFloat = 0.0,
        power_weight: NonNegativeFloat = 0.0,
        **solve: Unpack[MotionSolveOptions],
    ) -> None:
        super().__init__()
        space, coordinates = velocity_coordinates(shape, "DeLaN")
        seen = coordinates.angles if angles == "embedded" else ()
        ports = ports_for(
            space,
            PositionFeatures(coordinates.freedoms, seen),
            actuation=actuation,
            friction=friction,
            hidden_size=hidden_size,
            activation=activation,
            owner="DeLaN",
        )
        field = MassLagrangian(
            coordinates.freedoms,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            angles=seen,
            smallest_mass=smallest_mass,
            ports=ports,
        )
        self._build(space, field, solver_arguments(solve, MotionSolveOptions), coordinates)
        self.promises = (*self.promises, MASS)
        self.smallest_mass = smallest_mass
        self.inverse_weight, self.power_weight = inverse_weight, power_weight
        self._last: _Measured | None = None
        if (inverse_weight or power_weight) and not space.inputs:
            raise self._without("inputs", "a task without")

    def inverse(self, states: Tensor, accelerations: Tensor) -> Forces:
        """Return the forces that a motion takes: their sum is F, what inputs and friction give.

        Args:
            states: Positions and velocities, (…, size).
            accelerations: q̈ in the order of the positions, (…, freedoms).
        """
        q, v = self._sorted(states).chunk(2, dim=-1)
        return self.field.forces(q, v, accelerations)  # type: ignore[operator]

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates or states as `StateModel.run` does; training remembers what was measured."""
        if self.training and (self.inverse_weight or self.power_weight):
            states, rates = self._measured(batch)
            if rates is None:
                raise self._without("measured rates", "trajectories")
            self._last = _Measured(states, rates, batch.inputs[..., self.space.size :])
        return super().run(batch, state)

    def penalty(self) -> Tensor:
        """Return what training adds: errors of forces and of their power, squared."""
        first = next(self.parameters())
        if self._last is None or not (self.inverse_weight or self.power_weight):
            return first.new_zeros(())
        states, rates, u = (part.to(first) for part in self._last)
        (q, v), acceleration = states.chunk(2, dim=-1), rates.chunk(2, dim=-1)[1]
        field = self.field
        assert isinstance(field, MassLagrangian) and field.ports is not None
        error = sum(field.forces(q, v, acceleration)) - field.ports.force(q, v, u)
        assert isinstance(error, Tensor)
        power = (v * error).sum(-1)
        in_forces = self.inverse_weight * error.square().mean()
        return in_forces + self.power_weight * power.square().mean()

    def _without(self, what: str, got: str) -> OptionError:
        return OptionError(
            explain(
                "DeLaN.inverse_weight and power_weight",
                expected=f"0 where there are no {what} to learn forces from",
                got=got,
                remedy="Leave them out, or choose a task with inputs and task.form=derivative.",
            )
        )
