"""LNN (Cranmer, Greydanus and others, 2020): a Lagrangian is learned, motion follows."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import MotionSolveOptions
from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.perceptron_lagrangian import Masses, PerceptronLagrangian
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

MARGIN = 0.1
"""Where an eigenvalue of L_q̇q̇, which begin near 1, counts as small."""
LOOKED_AT = 64
"""States of a batch at which L_q̇q̇ is looked at: enough to notice, and few enough to be cheap."""


@models.register("lnn")
class LNN(LagrangianModel):
    """Lagrangian neural network: any Lagrangian L(q, q̇), in any coordinates.

    Momenta need not be known, and the energy need not be of the form kinetic + potential. What it
    costs is that L_q̇q̇ has to have an inverse: weights begin where it is near the identity, a
    penalty keeps its eigenvalues above 0.1 on the data, and a state where it has no inverse is
    named.

    Equation:
        q̈ = (∂²L/∂q̇²)⁻¹ (∂L/∂q − ∂²L/∂q̇∂q q̇ + F),  L = ½ q̇ᵀ A(q) q̇ + s² f(q, q̇/s)

    Symbols:
        q positions, f a perceptron, s a usual speed, A the identity or learned masses,
        F = g(q) u − D(q) q̇ forces of inputs and of friction.

    Promise:
        The field keeps its own energy E = q̇ᵀ ∂L/∂q̇ − L wherever ∂²L/∂q̇² is regular, and forces
        change it by their power, dE/dt = q̇ᵀF; with friction it never grows by more. Nothing but
        training keeps ∂²L/∂q̇² regular. DeLaN gives up generality for that.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a velocity each.
        hidden_size: Width of the hidden layers.
        hidden_layers: Their number.
        activation: Activation of f; it has to have three derivatives.
        angles: Whether f sees angles as numbers or by cosine and sine.
        actuation: Whether inputs are the forces on the positions in their order (given), or act by
            a learned g(q); auto takes them as given where there is one for each position.
        friction: Whether there is friction.
        speed: s; a speed that is usual in the data, so that f is curved over those that occur.
        masses: A: the identity (unit), or a positive matrix by a perceptron of the positions
            (learned). f may be any function beside it, so that the Lagrangian is as general as
            before; but it need not learn to multiply velocities before it has a kinetic energy.
        regularity: Weight of the penalty on small eigenvalues of ∂²L/∂q̇².
        solve: Method, tolerance or step_size, and gradient: see `SolveOptions`.

    Example:
        >>> model = undamped.models.LNN(2)
        >>> model(torch.randn(5, 4)).shape, model.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))

    Reference:
        M. Cranmer, S. Greydanus, S. Hoyer, P. Battaglia, D. Spergel, S. Ho. Lagrangian neural
        networks. ICLR workshop, 2020.
    """

    usual_choice = True
    promises = (ENERGY, BALANCE, PASSIVE)
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
        hidden_layers: PositiveInt = 3,
        activation: SmoothActivation = "softplus",
        angles: Angles = "embedded",
        actuation: Actuation = "auto",
        friction: bool = False,
        speed: PositiveFloat = 1.0,
        masses: Masses = "unit",
        regularity: NonNegativeFloat = 1.0,
        **solve: Unpack[MotionSolveOptions],
    ) -> None:
        super().__init__()
        space, coordinates = velocity_coordinates(shape, "LNN")
        seen = coordinates.angles if angles == "embedded" else ()
        ports = ports_for(
            space,
            PositionFeatures(coordinates.freedoms, seen),
            actuation=actuation,
            friction=friction,
            hidden_size=hidden_size,
            activation=activation,
            owner="LNN",
        )
        field = PerceptronLagrangian(
            coordinates.freedoms,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
            angles=seen,
            speed=speed,
            masses=masses,
            ports=ports,
        )
        self._build(space, field, solver_arguments(solve, MotionSolveOptions), coordinates)
        self.regularity = regularity
        self._looked_at: Tensor | None = None

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates or states as `StateModel.run` does; training remembers where it was."""
        if self.training and self.regularity:
            self._looked_at = self._measured(batch)[0][:LOOKED_AT].detach()
        return super().run(batch, state)

    def penalty(self) -> Tensor:
        """Return what training adds: how far eigenvalues of ∂²L/∂q̇² fall below 0.1, squared."""
        first = next(self.parameters())
        if self._looked_at is None or not self.regularity:
            return first.new_zeros(())
        masses = self.field.mass(self._looked_at.to(first))  # type: ignore[operator]
        short = (MARGIN - torch.linalg.eigvalsh(masses)).relu()
        return self.regularity * short.square().sum(-1).mean()
