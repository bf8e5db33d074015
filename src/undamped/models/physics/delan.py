"""DeLaN (Lutter, Ritter and Peters, 2019): a positive mass matrix and a potential are learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Unpack

from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeFloat, PositiveFloat
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.base import BALANCE, ENERGY, PASSIVE
from undamped.models.physics.fields.coordinates import PositionFeatures
from undamped.models.physics.fields.lagrangian import LagrangianField
from undamped.models.physics.fields.ports import Ports, times
from undamped.models.physics.fields.smooth_perceptron import (
    LinearisedMatrix,
    PositiveMatrix,
    SmoothPerceptron,
)
from undamped.models.physics.lagrangian_model import (
    LagrangianModel,
    LagrangianOptions,
    field_arguments,
    velocity_coordinates,
)
from undamped.ode.methods.symplectic import split


class Forces(NamedTuple):
    """The forces of a motion by kind, (…, dof) each."""

    inertial: Tensor
    """M q̈."""
    coriolis: Tensor
    """Ṁ q̇ − ∂(½ q̇ᵀ M q̇)/∂q: Coriolis and centrifugal forces."""
    potential: Tensor
    """∂V/∂q."""


class MassLagrangian(LagrangianField):
    """L = ½ q̇ᵀ M(q) q̇ − V(q) with M positive definite for any weights.

    Accelerations and forces both take one pass forward along q̇ (Ṁ) and one backward (the gradients
    of the kinetic energy and of V) through the perceptrons; accelerations also a Cholesky solve.

    Equation:
        M(q) q̈ + Ṁ(q) q̇ − ∂(½ q̇ᵀ M q̇)/∂q + ∂V/∂q = F,  M = K(q) K(q)ᵀ + ε I

    Args:
        angles: Positions that are replaced by cosine and sine.
        smallest_mass: Lower bound ε of the eigenvalues of M.
        layers: Sizes and activation (softplus), as for `SmoothPerceptron`.

    Example:
        >>> field = MassLagrangian(2)
        >>> field(0.0, torch.randn(5, 4)).shape, field.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    def __init__(
        self,
        dof: int,
        *,
        angles: Sequence[int] = (),
        smallest_mass: float = 1e-3,
        ports: Ports | None = None,
        **layers: Any,
    ) -> None:
        super().__init__(dof, ports)
        layers = {"activation": "softplus", **layers}
        self.features = PositionFeatures(dof, angles)
        size = self.features.size
        self.masses = PositiveMatrix(size, dof, smallest=smallest_mass, **layers)
        self.of_positions = SmoothPerceptron(size, 1, readout_bias=False, **layers)

    def potential(self, q: Tensor) -> Tensor:
        """Return V, (…,)."""
        return self.of_positions(self.features(q)).squeeze(-1)

    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        x = self.features(q)
        kinetic = (v * self.masses.linearise(x).product(v)).sum(-1) / 2
        return kinetic - self.of_positions(x).squeeze(-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ½ q̇ᵀ M q̇ + V of states (…, 2 × dof)."""
        q, v = split(state)
        x = self.features(q)
        kinetic = (v * self.masses.linearise(x).product(v)).sum(-1) / 2
        return kinetic + self.of_positions(x).squeeze(-1)

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        mass, coriolis, slope = self._terms(q, v)
        return mass.solve(force - coriolis - slope)

    def forces(self, q: Tensor, v: Tensor, acceleration: Tensor) -> Forces:
        """Return the forces that an acceleration takes."""
        mass, coriolis, slope = self._terms(q, v)
        return Forces(mass.product(acceleration), coriolis, slope)

    def mass(self, state: Tensor) -> Tensor:
        """Return M at states, (…, dof, dof)."""
        return self.masses(self.features(split(state)[0]))

    def _terms(self, q: Tensor, v: Tensor) -> tuple[LinearisedMatrix, Tensor, Tensor]:
        """Return M, Coriolis and centrifugal forces, and the gradient of V."""
        x = self.features(q)
        mass = self.masses.linearise(x)
        mass_rate = times(mass.rate(self.features.jvp(x, v)), v)
        coriolis = mass_rate - self.features.vjp(x, mass.half_square_slope(v))
        slope = self.features.vjp(x, self.of_positions.linearise(x).gradient())
        return mass, coriolis, slope


MASS = Promise(Kind.POSITIVE_MASS, "masses are positive: no eigenvalue of M below its bound")


@models.register("delan")
class DeLaN(LagrangianModel):
    """Deep Lagrangian network: a mass matrix that is positive, and a potential.

    `derivative` and `trajectory` are the forward model, from forces to motion; `inverse` is the
    inverse model, from motion to forces. Training can use both, and the power of the forces.

    Equation:
        M(q) q̈ + Ṁ(q) q̇ − ∂(½ q̇ᵀ M q̇)/∂q + ∂V/∂q = F,  M = K(q) K(q)ᵀ + ε I

    Symbols:
        q positions, K lower triangular and V perceptrons, F = g(q) u − D(q) q̇ forces of inputs
        and friction.

    Promise:
        Masses are positive, M ≥ ε. The field conserves its energy E = ½ q̇ᵀ M q̇ + V, and forces
        change it by their power, dE/dt = q̇ᵀF; with friction it never grows by more.

    Args:
        smallest_mass: Lower bound ε of the eigenvalues of M.
        inverse_weight: Weight of the squared error of the forces of the measured motion in
            training; for tasks with inputs, and form=derivative.
        power_weight: Weight of the squared error of their power in training.
        options: See `LagrangianOptions`, `PerceptronOptions` and `SolveOptions`.

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
        smallest_mass: PositiveFloat = 1e-3,
        inverse_weight: NonNegativeFloat = 0.0,
        power_weight: NonNegativeFloat = 0.0,
        **options: Unpack[LagrangianOptions],
    ) -> None:
        super().__init__()
        coordinates = velocity_coordinates(shape, "DeLaN")
        space = coordinates.space
        arguments = field_arguments(coordinates, options, "DeLaN")
        field = MassLagrangian(coordinates.dof, smallest_mass=smallest_mass, **arguments)
        self._build(field, coordinates, options)
        self.promises = (*self.promises, MASS)
        self.smallest_mass = smallest_mass
        self.inverse_weight, self.power_weight = inverse_weight, power_weight
        self._last: tuple[Tensor, Tensor, Tensor] | None = None  # states, rates and inputs
        if (inverse_weight or power_weight) and not space.inputs:
            raise _missing("inputs")

    def inverse(self, states: Tensor, accelerations: Tensor) -> Forces:
        """Return the forces of a motion; their sum is F, the force of inputs and friction.

        Args:
            states: Positions and velocities, (…, size).
            accelerations: q̈ in the order of the positions, (…, dof).
        """
        q, v = self._sorted(states).chunk(2, dim=-1)
        return self.field.forces(q, v, accelerations)  # type: ignore[operator]

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates or states as `StateModel.run`; in training, store the measurements."""
        if self.training and (self.inverse_weight or self.power_weight):
            states, rates = self._measured(batch)
            if rates is None:
                raise _missing("measured rates")
            self._last = states, rates, batch.inputs[..., self.space.size :]
        return super().run(batch, state)

    def penalty(self) -> Tensor:
        """Return the squared errors of forces and power, which training adds to its loss."""
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


def _missing(data: str) -> OptionError:
    return OptionError(
        f"DeLaN.inverse_weight and power_weight need {data}. Leave them out, or choose a task with "
        "inputs and task.form=derivative."
    )
