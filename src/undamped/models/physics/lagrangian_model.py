"""What models with a Lagrangian have in common: velocities, forces, masses."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.errors import OptionError, explain
from undamped.models.physics.base import MotionModel
from undamped.models.physics.fields.angles import PositionFeatures
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.mechanical import LearnedInput
from undamped.models.physics.fields.ports import ConstantInput, Ports
from undamped.models.physics.fields.positive_matrix import PositiveMatrix
from undamped.models.physics.fields.smooth_perceptron import SmoothActivation
from undamped.models.physics.state_model import shape_of, space_of

Actuation = Literal["auto", "given", "learned"]


class LagrangianModel(MotionModel):
    """A model whose field is a `LagrangianField` with a mass matrix, in positions and velocities.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a velocity each.
    """

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with two positions, two velocities and two forces."""
        return shape_of(StateSpace.moving(2, inputs=2))

    def mass_matrix(self, states: Tensor) -> Tensor:
        """Return the mass matrix L_q̇q̇ at states, (…, freedoms, freedoms)."""
        return self.field.mass(self._sorted(states))  # type: ignore[operator]

    def _measured(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the states of a batch, sorted, and the rates measured there, if there are any."""
        states = self._sorted(batch.inputs[..., : self.space.size])
        if batch.target_times is not None or not batch.targets.numel():
            return states, None
        return states, self._sorted(batch.targets)


def velocity_coordinates(
    shape: TaskShape | StateSpace | int, owner: str
) -> tuple[StateSpace, Coordinates]:
    """Return a space of positions and velocities and its coordinates, or refuse another one."""
    space = StateSpace.moving(shape) if isinstance(shape, int) else space_of(shape, owner)
    coordinates = Coordinates.of(space, owner)
    if not coordinates.moving:
        raise OptionError(
            explain(
                f"states of {owner}",
                expected="positions and their velocities",
                got=", ".join(space.names) + ", which are positions and momenta",
                remedy="Choose task.partners=velocities, or a model of momenta such as hnn.",
            )
        )
    return space, coordinates


def ports_for(
    space: StateSpace,
    features: PositionFeatures,
    *,
    actuation: Actuation,
    friction: bool,
    hidden_size: int,
    activation: SmoothActivation,
    owner: str,
) -> Ports | None:
    """Return the ports of a Lagrangian model, or None where nothing acts on it.

    Args:
        space: The space, which names the inputs.
        features: What perceptrons see of positions.
        actuation: Whether inputs are the forces on the positions in their order, or act by a
            learned g(q); "auto" takes them as given where there is one for each position.
        friction: Whether there is friction.
        hidden_size: Width of the perceptrons of g and of friction.
        activation: Their activation.
        owner: Who asks, for the message.
    """
    freedoms, inputs = len(space.indices("position", "angle")), len(space.inputs)
    if actuation == "given" and inputs not in (0, freedoms):
        raise OptionError(
            explain(
                f"{owner}.actuation",
                expected=f"learned, or inputs for all {freedoms} positions",
                got=f"given with {inputs}",
                remedy="Choose actuation=learned.",
            )
        )
    acting: nn.Module | None = None
    if inputs and actuation != "learned" and inputs == freedoms:
        acting = ConstantInput(freedoms, tuple(range(freedoms)))
    elif inputs:
        learned = LearnedInput(features.size, freedoms, inputs, hidden_size, activation)
        acting = nn.Sequential(features, learned)
    resisting = None
    if friction:
        matrix = PositiveMatrix(
            features.size, freedoms, hidden_size, activation=activation, smallest=0.0
        )
        resisting = nn.Sequential(features, matrix)
    return Ports(acting, resisting) if acting is not None or resisting is not None else None
