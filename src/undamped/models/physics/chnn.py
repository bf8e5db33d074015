"""CHNN (Finzi, Wang and Wilson, 2020): Cartesian coordinates and explicit constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import NonFiniteError, OptionError, shortened
from undamped._base.options import Default, PositiveInt, select
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.base import ENERGY, LayerOptions, MotionModel, MotionSolveOptions
from undamped.models.physics.fields.ports import times
from undamped.models.physics.fields.smooth_perceptron import SmoothPerceptron
from undamped.models.physics.lagrangian_model import velocity_coordinates
from undamped.models.physics.state_model import shape_of
from undamped.ode.methods.symplectic import split


class RodField(nn.Module):
    """A learned potential and learned masses, with rods as constraints.

    The Hamiltonian field v = J ∇H is projected so that lengths and their rates stay constant:
    f = v − J C (Cᵀ J C)⁻¹ Cᵀ v, with C the gradients of both. That takes two solves with one
    positive matrix of as many rows as there are rods.

    Equation:
        ẋ = v − M⁻¹Aᵀβ,  M v̇ = −∂V/∂x + Aᵀα + Bᵀβ
        β = G⁻¹ A v,  α = G⁻¹ ((BM⁻¹Aᵀ − AM⁻¹Bᵀ) β − B v + A M⁻¹ ∂V/∂x),  G = A M⁻¹ Aᵀ

    Symbols:
        x positions, v velocities of the bodies, M masses, V a perceptron; of a rod r from body to
        body, ½|r|² is conserved: A holds ∂(½|r|²)/∂x, B holds ∂(r·ṙ)/∂x. With constant lengths,
        A v and so β are 0, and α are the forces in the rods.

    Args:
        bodies: Number of bodies.
        rods: Pairs of bodies, numbered from 1; 0 is the origin.
        dimensions: Dimensions of the space.
        layers: Sizes and activation of V, as for `SmoothPerceptron`.

    Example:
        >>> field = RodField(2, [(0, 1), (1, 2)])
        >>> field(0.0, torch.randn(5, 8)).shape, field.energy(torch.randn(5, 8)).shape
        (torch.Size([5, 8]), torch.Size([5]))
    """

    separable = False
    incidence: Tensor

    def __init__(
        self, bodies: int, rods: Sequence[tuple[int, int]], dimensions: int = 2, **layers: Any
    ) -> None:
        super().__init__()
        self.bodies, self.rods, self.dimensions = bodies, tuple(rods), dimensions
        incidence = torch.zeros(len(self.rods), bodies + 1)
        for row, (first, second) in enumerate(self.rods):
            incidence[row, first], incidence[row, second] = -1, 1
        self.register_buffer("incidence", incidence[:, 1:].clone(), persistent=False)
        self.log_masses = nn.Parameter(torch.zeros(bodies))
        self.of_positions = SmoothPerceptron(
            bodies * dimensions,
            1,
            orthogonal=True,
            readout_bias=False,
            **{"hidden_layers": 3, **layers},
        )

    @property
    def size(self) -> int:
        """Size of a state."""
        return 2 * self.bodies * self.dimensions

    def potential(self, x: Tensor) -> Tensor:
        """Return V, (…,), of positions (…, bodies × dimensions)."""
        return self.of_positions(x).squeeze(-1)

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return the rates of a state, (…, size)."""
        x, v = split(state)
        incidence = self.incidence.to(x.dtype)
        inverse = torch.exp(-self.log_masses).unsqueeze(-1)  # (bodies, 1)
        rod, rod_rate = (incidence @ self._each(part) for part in (x, v))  # (…, rods, dimensions)
        force = inverse * self._each(self.of_positions.linearise(x).gradient())  # M⁻¹ ∂V/∂x
        shared = (incidence * inverse.squeeze(-1)) @ incidence.T  # which rods share bodies
        chol = self._factor(shared * (rod @ rod.mT))
        length_rate = (rod * rod_rate).sum(-1)  # A v
        beta = _solve(chol, length_rate)
        product = shared * (rod_rate @ rod.mT)  # B M⁻¹ Aᵀ
        free = rod_rate.square().sum(-1) - (rod * (incidence @ force)).sum(-1)  # B v − A M⁻¹ ∂V/∂x
        alpha = _solve(chol, times(product - product.mT, beta) - free)
        along = beta.unsqueeze(-1) * rod
        rod_force = alpha.unsqueeze(-1) * rod + beta.unsqueeze(-1) * rod_rate
        velocity = v - (inverse * (incidence.T @ along)).flatten(-2)
        rates = inverse * (incidence.T @ rod_force) - force
        return torch.cat((velocity, rates.flatten(-2)), dim=-1)

    def energy(self, state: Tensor) -> Tensor:
        """Return ½ vᵀ M v + V of states, (…,)."""
        x, v = split(state)
        kinetic = (torch.exp(self.log_masses) * self._each(v).square().sum(-1)).sum(-1) / 2
        return kinetic + self.potential(x)

    def supplied(self, state: Tensor, u: Tensor | None) -> Tensor:
        """Return zero, (…,): there are no inputs."""
        return state.new_zeros(state.shape[:-1])

    def constraints(self, state: Tensor) -> Tensor:
        """Return ½|r|² and r·ṙ of the rods, (…, 2 × rods)."""
        incidence = self.incidence.to(state.dtype)
        rod, rate = (incidence @ self._each(part) for part in split(state))
        return torch.cat((rod.square().sum(-1) / 2, (rod * rate).sum(-1)), dim=-1)

    def _each(self, values: Tensor) -> Tensor:
        return values.unflatten(-1, (self.bodies, self.dimensions))

    def _factor(self, matrix: Tensor) -> Tensor:
        """Return the Cholesky factor of G; the error for dependent rods names the sample."""
        factor, info = torch.linalg.cholesky_ex(matrix)
        failed = (info != 0).flatten()
        if bool(failed.any()):
            raise NonFiniteError(
                "A rod has length zero or follows from the others at sample "
                f"{int(failed.nonzero()[0])} of {len(failed)}. Remove redundant rods, and samples "
                "where bodies meet."
            )
        return factor


def _solve(factor: Tensor, right: Tensor) -> Tensor:
    return torch.cholesky_solve(right.unsqueeze(-1), factor).squeeze(-1)


LENGTHS = Promise(
    Kind.PRESERVED_CONSTRAINTS, "rods keep their lengths: the field keeps |r|² and its rate"
)


class CHNNOptions(LayerOptions, MotionSolveOptions, total=False):
    """Perceptron of V and solver of a CHNN."""

    hidden_layers: Annotated[PositiveInt, Default(3, "Number of hidden layers.")]


@models.register("chnn")
class CHNN(MotionModel):
    """Constrained Hamiltonian neural network: bodies in the plane, connected by rods.

    In angles the energy of a pendulum of several links is a complicated function; in Cartesian
    coordinates it is a kinetic energy with constant masses and an often linear potential, and the
    rods are explicit constraints.

    Equation:
        f = J∇H − J C (CᵀJC)⁻¹ Cᵀ J∇H,  H = Σ |pᵢ|²/(2mᵢ) + V(x),  C = [∂Φ, ∂Φ̇],  Φ = ½|xᵢ − xⱼ|²

    Symbols:
        x positions of bodies, p = m v, m learned masses, V a perceptron, Φ one for each rod.

    Promise:
        The field conserves its energy, the lengths of the rods and the rates of the lengths, for
        any weights; steps drift by their error.

    Args:
        shape: The shape of the task, or a `StateSpace`: positions of bodies one after the other,
            then their velocities.
        rods: Pairs of connected bodies, such as 0-1,1-2: bodies count from 1, and 0 is the origin.
            Those of the task by default.
        dimensions: Dimensions of the space.
        options: See `LayerOptions` and `SolveOptions`.

    Example:
        >>> model = undamped.models.CHNN(undamped.models.CHNN.example_shape())
        >>> model(torch.randn(5, 8)).shape
        torch.Size([5, 8])

    Reference:
        M. Finzi, K. A. Wang, A. G. Wilson. Simplifying Hamiltonian and Lagrangian neural networks
        via explicit constraints. NeurIPS, 2020.
    """

    promises = (ENERGY, LENGTHS)
    recipe: ClassVar = {"task": {"form": "trajectory", "coordinates": "plane"}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace,
        *,
        rods: tuple[str, ...] | None = None,
        dimensions: PositiveInt = 2,
        **options: Unpack[CHNNOptions],
    ) -> None:
        super().__init__()
        coordinates = velocity_coordinates(shape, "CHNN")
        space = coordinates.space
        bodies, remainder = divmod(coordinates.dof, dimensions)
        if remainder or coordinates.angles:
            raise OptionError(
                f"CHNN needs positions of bodies, {dimensions} numbers each, and no angles, got "
                f"{', '.join(space.names)}. Choose task.coordinates=plane if the task has it, or a "
                "model of angles such as delan."
            )
        pairs = space.rods if rods is None else tuple(_rod(text, bodies) for text in rods)
        if not pairs:
            raise OptionError(
                "CHNN needs rods, and the task names none. Set rods=0-1,1-2 or similar, or choose "
                "a model without constraints."
            )
        field = RodField(bodies, pairs, dimensions, **select(options, LayerOptions))
        self._build(field, coordinates, options)
        self.promises = (*self.promises, LENGTHS)

    def constraints(self, states: Tensor) -> Tensor:
        """Return ½|r|² of the rods and their rates, (…, 2 × rods)."""
        return self.field.constraints(self._sorted(states))  # type: ignore[operator]

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with two links in the plane."""
        names = ("x1", "y1", "x2", "y2", "v_x1", "v_y1", "v_x2", "v_y2")
        rods = ((0, 1), (1, 2))
        return shape_of(StateSpace(names, ("position",) * 4 + ("velocity",) * 4, rods=rods))


def _rod(text: str, bodies: int) -> tuple[int, int]:
    """Read a rod such as 0-1."""
    first, _, second = (end.strip() for end in text.partition("-"))
    ends = [str(number) for number in range(bodies + 1)]
    if first not in ends or second not in ends or first == second:
        raise OptionError(
            f"A rod of CHNN.rods must be two different numbers from 0 to {bodies}, such as 0-1, "
            f"got {shortened(text)}. Bodies count from 1 in their order; 0 is the origin."
        )
    return int(first), int(second)
