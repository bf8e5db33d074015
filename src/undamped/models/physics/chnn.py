"""CHNN (Finzi, Wang and Wilson, 2020): plain coordinates, and constraints that are told."""

from __future__ import annotations

from typing import ClassVar, Unpack

from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.base import MotionModel, MotionSolveOptions
from undamped.models.physics.fields.constrained import RodField
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.lagrangian_model import velocity_coordinates
from undamped.models.physics.promised import ENERGY
from undamped.models.physics.state_model import shape_of
from undamped.ode.flows.solve_options import solver_arguments

LENGTHS = Promise(
    Kind.KEPT_CONSTRAINTS, "rods keep their lengths: the field keeps |r|² and its rate"
)


@models.register("chnn")
class CHNN(MotionModel):
    """Constrained Hamiltonian neural network: bodies in the plane, tied by rods.

    In angles the energy of a pendulum of several links is a maze of cosines; in plain coordinates
    it is a sum of masses and a potential that is often a straight line, and the rods are told.

    Equation:
        f = J∇H − J C (CᵀJC)⁻¹ Cᵀ J∇H,  H = Σ |pᵢ|²/(2mᵢ) + V(x),  C = [∂Φ, ∂Φ̇],  Φ = ½|xᵢ − xⱼ|²

    Symbols:
        x places of bodies, p = m v, m learned masses, V a perceptron, Φ one for each rod.

    Promise:
        The field keeps its energy, the lengths of the rods, and the rates of the lengths, whatever
        the weights; steps drift off as far as they are inexact.

    Args:
        shape: The shape of the task, or a `StateSpace`: places of bodies one after the other, then
            their velocities.
        rods: Which bodies are tied, as 0-1,1-2: numbers count from 1, and 0 is the origin. The
            task's own if none are given.
        dimensions: Of the space the bodies move in.
        hidden_size: Width of the hidden layers of V.
        hidden_layers: Their number.
        activation: Activation of V.
        solve: Method, tolerance or step_size, and gradient: see `SolveOptions`.

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
        hidden_size: PositiveInt = 64,
        hidden_layers: PositiveInt = 3,
        activation: SmoothActivation = "tanh",
        **solve: Unpack[MotionSolveOptions],
    ) -> None:
        super().__init__()
        space, coordinates = velocity_coordinates(shape, "CHNN")
        bodies, left = divmod(coordinates.freedoms, dimensions)
        if left or coordinates.angles:
            raise OptionError(
                explain(
                    "states of CHNN",
                    expected=f"places of bodies, {dimensions} numbers each, and no angles",
                    got=", ".join(space.names),
                    remedy="Choose task.coordinates=plane where the task has it, or a model of "
                    "angles such as delan.",
                )
            )
        tied = space.rods if rods is None else tuple(_rod(text, bodies) for text in rods)
        if not tied:
            raise OptionError(
                explain(
                    "CHNN.rods",
                    expected="which bodies are tied",
                    got="none, from the task neither",
                    remedy="Say rods=0-1,1-2 or the like, or choose a model without constraints.",
                )
            )
        field = RodField(
            bodies,
            tied,
            dimensions,
            hidden_size,
            hidden_layers=hidden_layers,
            activation=activation,
        )
        self._build(space, field, solver_arguments(solve, MotionSolveOptions), coordinates)
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
    one, _, other = text.partition("-")
    known = [str(number) for number in range(bodies + 1)]
    if one.strip() not in known or other.strip() not in known or one.strip() == other.strip():
        raise OptionError(
            explain(
                "CHNN.rods",
                expected=f"two different numbers from 0 to {bodies} for each, such as 0-1",
                got=text,
                remedy="Bodies count from 1 in the order of their places; 0 is the origin.",
            )
        )
    return int(one), int(other)
