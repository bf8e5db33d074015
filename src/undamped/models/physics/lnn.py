"""LNN (Cranmer, Greydanus and others, 2020): a Lagrangian is learned, motion follows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.options import Default, NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import BALANCE, ENERGY, PASSIVE
from undamped.models.physics.fields.coordinates import PositionFeatures
from undamped.models.physics.fields.lagrangian import LagrangianField, solve_each
from undamped.models.physics.fields.ports import Ports, times
from undamped.models.physics.fields.smooth_perceptron import (
    Curvature,
    PositiveMatrix,
    SmoothActivation,
    SmoothPerceptron,
)
from undamped.models.physics.lagrangian_model import (
    LagrangianModel,
    LagrangianOptions,
    field_arguments,
    velocity_coordinates,
)
from undamped.ode.methods.symplectic import split

Masses = Literal["unit", "learned"]
SMALLEST = 1e-3
"""The least eigenvalue of learned masses, before the perceptron changes them."""


class PerceptronLagrangian(LagrangianField):
    """L(q, q̇) by one perceptron plus a kinetic energy.

    The kinetic energy is no restriction, since the perceptron can cancel it; but with it L_q̇q̇ is
    near the identity for initial weights. Velocities are divided by a typical speed, so that the
    perceptron is curved over those that occur. With learned masses the perceptron need not learn
    products of velocities with each other and with functions of positions.

    Equation:
        L = ½ q̇ᵀ A(q) q̇ + s² f(φ(q), q̇/s)

    Symbols:
        A the identity, or a positive matrix by a perceptron of φ(q).

    Args:
        angles: Positions that are replaced by cosine and sine.
        speed: s, a typical speed.
        masses: Whether A is the identity (unit) or learned.
        layers: Sizes (3 hidden layers) and activation (softplus), as for `SmoothPerceptron`.

    Example:
        >>> field = PerceptronLagrangian(2)
        >>> field(0.0, torch.randn(5, 4)).shape, field.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    def __init__(
        self,
        dof: int,
        *,
        angles: Sequence[int] = (),
        speed: float = 1.0,
        masses: Masses = "unit",
        ports: Ports | None = None,
        **layers: Any,
    ) -> None:
        super().__init__(dof, ports)
        layers = {"hidden_layers": 3, "activation": "softplus", **layers}
        self.speed = speed
        self.features = PositionFeatures(dof, angles)
        size = self.features.size
        self.net = SmoothPerceptron(size + dof, 1, orthogonal=True, readout_bias=False, **layers)
        self.masses = None
        if masses == "learned":
            self.masses = PositiveMatrix(size, dof, smallest=SMALLEST, **layers)

    def lagrangian(self, q: Tensor, v: Tensor) -> Tensor:
        x = self.features(q)
        return self._kinetic(x, v) + self.speed**2 * self.net(self._net_input(x, v)).squeeze(-1)

    def acceleration(self, q: Tensor, v: Tensor, force: Tensor | float = 0.0) -> Tensor:
        """Return q̈, (…, dof): one forward-over-reverse pass and one solve."""
        x = self.features(q)
        at = Curvature(self.net, self._net_input(x, v))
        of_x, of_v = self._slices
        by_v = at.enter(torch.eye(self.dof, dtype=v.dtype, device=v.device), of_v)
        feature_rate = self.features.jvp(x, v)
        by_time = at.enter(feature_rate, of_x).unsqueeze(-2)
        by_v = by_v.expand(*by_time.shape[:-2], *by_v.shape)
        second = at.along(torch.cat((by_v, by_time), dim=-2))
        hessian, mixed = second[..., :-1, :-1], self.speed * second[..., :-1, -1]
        by_x = self.speed**2 * at.gradient[..., of_x]
        if self.masses is None:
            return solve_each(
                self._with_masses(hessian), self.features.vjp(x, by_x) - mixed + force
            )
        mass = self.masses.linearise(x)
        by_q = self.features.vjp(x, by_x + mass.half_square_slope(v))
        mass_rate = times(mass.rate(feature_rate), v)
        return solve_each(hessian + mass.value, by_q - mixed - mass_rate + force)

    def mass(self, state: Tensor) -> Tensor:
        """Return L_q̇q̇ at states, (…, dof, dof)."""
        q, v = split(state)
        x = self.features(q)
        at = Curvature(self.net, self._net_input(x, v))
        by_v = at.enter(torch.eye(self.dof, dtype=v.dtype, device=v.device), self._slices[1])
        hessian = at.along(by_v.expand(*v.shape[:-1], *by_v.shape))
        return self._with_masses(hessian) if self.masses is None else hessian + self.masses(x)

    def energy(self, state: Tensor) -> Tensor:
        """Return E = q̇ᵀ L_q̇ − L of states (…, 2 × dof), in closed form."""
        q, v = split(state)
        x = self.features(q)
        at = self.net.linearise(self._net_input(x, v))
        product = (v / self.speed * at.gradient()[..., self._slices[1]]).sum(-1)
        return self._kinetic(x, v) + self.speed**2 * (product - at.value.squeeze(-1))

    def _kinetic(self, x: Tensor, v: Tensor) -> Tensor:
        """Return ½ q̇ᵀ A q̇, (…,)."""
        momentum = v if self.masses is None else self.masses.linearise(x).product(v)
        return (v * momentum).sum(-1) / 2

    def _net_input(self, x: Tensor, v: Tensor) -> Tensor:
        """Return the input of the perceptron: features of positions, and scaled velocities."""
        return torch.cat((x, v / self.speed), dim=-1)

    @property
    def _slices(self) -> tuple[slice, slice]:
        """Slices of the perceptron's input: features of positions, and velocities."""
        return slice(None, self.features.size), slice(self.features.size, None)

    def _with_masses(self, hessian: Tensor) -> Tensor:
        return hessian + torch.eye(self.dof, dtype=hessian.dtype, device=hessian.device)


MARGIN = 0.1
"""Eigenvalues of L_q̇q̇ below this are penalised; they are near 1 for initial weights."""
PENALISED_STATES = 64
"""States of a batch at which the penalty is computed, few enough to be cheap."""


class LNNOptions(LagrangianOptions, total=False):
    """Perceptrons, forces and solver of an LNN."""

    hidden_layers: Annotated[PositiveInt, Default(3, "Number of hidden layers.")]
    activation: Annotated[
        SmoothActivation, Default("softplus", "Activation of f; it has to have three derivatives.")
    ]


@models.register("lnn")
class LNN(LagrangianModel):
    """Lagrangian neural network: any Lagrangian L(q, q̇), in any coordinates.

    Momenta need not be known, and the energy need not be of the form kinetic + potential. In
    return L_q̇q̇ has to have an inverse: it is near the identity for initial weights, a penalty keeps
    its eigenvalues above 0.1 on the data, and an error names a state where it is singular.

    Equation:
        q̈ = (∂²L/∂q̇²)⁻¹ (∂L/∂q − ∂²L/∂q̇∂q q̇ + F),  L = ½ q̇ᵀ A(q) q̇ + s² f(q, q̇/s)

    Symbols:
        q positions, f a perceptron, s a typical speed, A the identity or learned masses,
        F = g(q) u − D(q) q̇ forces of inputs and of friction.

    Promise:
        The field conserves its own energy E = q̇ᵀ ∂L/∂q̇ − L wherever ∂²L/∂q̇² is regular, and forces
        change it by their power, dE/dt = q̇ᵀF; with friction it never grows by more. Only
        training keeps ∂²L/∂q̇² regular; DeLaN is less general, and regular by construction.

    Args:
        speed: s; a typical speed of the data, so that f is curved over those that occur.
        masses: A: the identity (unit), or a positive matrix by a perceptron of the positions
            (learned). The Lagrangian is equally general with both; with learned masses f need not
            learn products of velocities to represent a kinetic energy.
        regularity: Weight of the penalty on small eigenvalues of ∂²L/∂q̇².
        options: See `LagrangianOptions`, `PerceptronOptions` and `SolveOptions`.

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
        speed: PositiveFloat = 1.0,
        masses: Masses = "unit",
        regularity: NonNegativeFloat = 1.0,
        **options: Unpack[LNNOptions],
    ) -> None:
        super().__init__()
        coordinates = velocity_coordinates(shape, "LNN")
        arguments = field_arguments(coordinates, options, "LNN")
        field = PerceptronLagrangian(coordinates.dof, speed=speed, masses=masses, **arguments)
        self._build(field, coordinates, options)
        self.regularity = regularity
        self._penalised: Tensor | None = None

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates or states; in training, keep some of the states for `penalty`."""
        if self.training and self.regularity:
            self._penalised = self._measured(batch)[0][:PENALISED_STATES].detach()
        return super().run(batch, state)

    def penalty(self) -> Tensor:
        """Return the squared deficit of eigenvalues of ∂²L/∂q̇² below 0.1, which training adds."""
        first = next(self.parameters())
        if self._penalised is None or not self.regularity:
            return first.new_zeros(())
        masses = self.field.mass(self._penalised.to(first))  # type: ignore[operator]
        short = (MARGIN - torch.linalg.eigvalsh(masses)).relu()
        return self.regularity * short.square().sum(-1).mean()
