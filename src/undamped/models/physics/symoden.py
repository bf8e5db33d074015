"""SymODEN (Zhong, Dey and Chakraborty, 2020): masses, a potential and inputs, learned apart."""

from __future__ import annotations

from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel, MotionSolveOptions
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.embedded import EmbeddedSpace
from undamped.models.physics.fields.mechanical import MassHamiltonian, VelocityField
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.hnn import Angles
from undamped.models.physics.promised import (
    BALANCE,
    CIRCLE,
    ENERGY,
    MASS,
    PASSIVE,
    SYMPLECTIC,
    VOLUME,
)
from undamped.models.physics.state_model import space_of
from undamped.ode.flows.solve_options import solver_arguments


@models.register("symoden")
class SymODEN(MotionModel):
    """Symplectic ODE-net: inverse masses, a potential and the way inputs act, learned apart.

    States may hold positions and momenta; or velocities in place of momenta; or angles by cosine
    and sine with their velocities; or both kinds of positions side by side.

    Equation:
        H = ½ pᵀ M⁻¹(q) p + V(q)
        q̇ = ∂H/∂p,  ṗ = −∂H/∂q + g(q) u − D(q) q̇

    Symbols:
        q positions, p momenta, M⁻¹ = L Lᵀ + ε I, V, g and D = K Kᵀ perceptrons, u inputs; D is
        there with friction (dissipative SymODEN).

    Promise:
        Masses are positive. Without friction the field keeps its energy, and inputs change it by
        their power, dH/dt = yᵀu with y = gᵀ q̇; with friction it never grows by more. Angles given
        by cosine and sine stay on the circle as far as the steps do. M⁻¹, V and g are known only
        up to a common factor: the motion has no more to say.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
        hidden_size: Width of every perceptron.
        hidden_layers: Their hidden layers.
        activation: Their activation.
        angles: Whether angles that are given as numbers are seen as such, or by cosine and sine.
        smallest_mass: ε.
        friction: Whether there is friction.
        solve: Method, tolerance or step_size, and gradient: see `SolveOptions`.

    Example:
        >>> model = undamped.models.SymODEN(2, hidden_size=16)
        >>> model(torch.randn(5, 4)).shape
        torch.Size([5, 4])

    Reference:
        Y. D. Zhong, B. Dey, A. Chakraborty. Symplectic ODE-net: learning Hamiltonian dynamics with
        control. ICLR, 2020. Dissipative SymODEN. ICLR workshop, 2020.
    """

    usual_choice = True
    promises = (ENERGY, BALANCE, PASSIVE, VOLUME, SYMPLECTIC, MASS, CIRCLE)
    recipe: ClassVar = {"task": {"form": "trajectory"}, "model": {"hidden_size": 64}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        hidden_size: PositiveInt = 64,
        hidden_layers: PositiveInt = 2,
        activation: SmoothActivation = "tanh",
        angles: Angles = "embedded",
        smallest_mass: PositiveFloat = 0.1,
        friction: bool = False,
        **solve: Unpack[MotionSolveOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "SymODEN")
        self.smallest_mass = smallest_mass
        parts: dict[str, Any] = {
            "hidden_size": hidden_size,
            "hidden_layers": hidden_layers,
            "activation": activation,
            "smallest_mass": smallest_mass,
            "inputs": len(space.inputs),
            "friction": friction,
        }
        how = solver_arguments(solve, MotionSolveOptions)
        if "velocity" in space.kinds:
            self._build_moving(space, angles, parts, how)
        else:
            coordinates = Coordinates.of(space, "SymODEN")
            seen = coordinates.angles if angles == "embedded" else ()
            field = MassHamiltonian(coordinates.freedoms, seen, **parts)
            self._build(space, field, how, coordinates)
        self.promises = (*self.promises, MASS)
        if "cosine" in space.kinds:
            self.promises = (*self.promises, CIRCLE)

    def _build_moving(
        self, space: StateSpace, angles: Angles, parts: dict[str, Any], how: dict[str, Any]
    ) -> None:
        embedded = EmbeddedSpace.of(space, "SymODEN")
        seen = embedded.angles if angles == "embedded" else ()
        field = VelocityField(embedded.straight, embedded.turning, seen, **parts)
        order = Coordinates(space, embedded.order, embedded.freedoms, embedded.angles)
        self._build(space, field, how, order)

    def mass_matrix(self, states: Tensor) -> Tensor:
        """Return M⁻¹ at states, (…, freedoms, freedoms)."""
        return self.field.inverse_mass(self._sorted(states))  # type: ignore[operator]

    def constraints(self, states: Tensor) -> Tensor:
        """Return cos² + sin² of angles that are given so, (…, angles)."""
        return self.field.circles(self._sorted(states))  # type: ignore[operator]

    def example_states(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random states and inputs; angles by cosine and sine lie on the circle."""
        states, u = super().example_states(count, generator)
        for cosine, sine in zip(
            self.space.indices("cosine"), self.space.indices("sine"), strict=True
        ):
            angle = states[:, cosine].clone()
            states[:, cosine], states[:, sine] = angle.cos(), angle.sin()
        return states, u
