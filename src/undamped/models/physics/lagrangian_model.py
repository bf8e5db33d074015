"""Models with a Lagrangian: positions and velocities, forces, a mass matrix."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from torch import Tensor, nn

from undamped._base.contract import Batch, StateSpace, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import Default
from undamped.models.physics.base import (
    Embedded,
    MotionModel,
    MotionSolveOptions,
    PerceptronOptions,
    Softplus,
    perceptron_arguments,
)
from undamped.models.physics.fields.coordinates import Coordinates, PositionFeatures, space_of
from undamped.models.physics.fields.ports import ConstantInput, Ports
from undamped.models.physics.fields.smooth_perceptron import LearnedInput, PositiveMatrix
from undamped.models.physics.state_model import shape_of

Actuation = Literal["auto", "given", "learned"]


class ForceOptions(TypedDict, total=False):
    """How forces act on a model with a Lagrangian."""

    actuation: Annotated[
        Actuation,
        Default(
            "auto",
            "Whether inputs are the forces on the positions in their order (given), or act by a "
            "learned g(q); auto is 'given' if there is one input for each position.",
        ),
    ]
    friction: Annotated[bool, Default(False, "Whether there is friction.")]


class LagrangianOptions(PerceptronOptions, ForceOptions, MotionSolveOptions, total=False):
    """Perceptrons, forces and solver of a model with a Lagrangian."""

    activation: Softplus
    angles: Embedded


class LagrangianModel(MotionModel):
    """A model of positions and velocities whose field is a `LagrangianField` with a mass matrix."""

    @classmethod
    def example_shape(cls) -> TaskShape:
        return shape_of(StateSpace.moving(2, inputs=2))

    def mass_matrix(self, states: Tensor) -> Tensor:
        """Return the mass matrix L_q̇q̇ at states, (…, dof, dof)."""
        return self.field.mass(self._sorted(states))  # type: ignore[operator]

    def _measured(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the sorted states of a batch, and their measured rates if it has any."""
        states = self._sorted(batch.inputs[..., : self.space.size])
        if batch.target_times is not None or not batch.targets.numel():
            return states, None
        return states, self._sorted(batch.targets)


def velocity_coordinates(shape: TaskShape | StateSpace | int, owner: str) -> Coordinates:
    """Return the coordinates of a space of positions and velocities; any other is an error."""
    space = StateSpace.moving(shape) if isinstance(shape, int) else space_of(shape, owner)
    coordinates = Coordinates.of(space, owner)
    if not coordinates.moving:
        raise OptionError(
            f"{owner} needs positions and velocities, got positions and momenta "
            f"({', '.join(space.names)}). Choose task.partners=velocities, or a model of momenta "
            "such as hnn."
        )
    return coordinates


def field_arguments(coordinates: Coordinates, options: Any, owner: str) -> dict[str, Any]:
    """Return layers, angles and ports of the field of `owner` from its complete options."""
    arguments = perceptron_arguments(coordinates, options)
    features = PositionFeatures(coordinates.dof, arguments["angles"])
    dof, inputs, actuation = coordinates.dof, len(coordinates.space.inputs), options["actuation"]
    if actuation == "given" and inputs not in (0, dof):
        raise OptionError(
            f"{owner}.actuation='given' needs one input for each of {dof} positions, got {inputs} "
            "inputs. Choose actuation=learned."
        )
    # Perceptrons of ports have two hidden layers, for any number of those of the field.
    port_layers = {name: arguments[name] for name in ("hidden_size", "activation")}
    input_matrix: nn.Module | None = None
    if inputs and actuation != "learned" and inputs == dof:
        input_matrix = ConstantInput(dof, tuple(range(dof)))
    elif inputs:
        learned = LearnedInput(features.size, dof, inputs, **port_layers)
        input_matrix = nn.Sequential(features, learned)
    friction = None
    if options["friction"]:
        matrix = PositiveMatrix(features.size, dof, smallest=0.0, **port_layers)
        friction = nn.Sequential(features, matrix)
    ports = None if input_matrix is None and friction is None else Ports(input_matrix, friction)
    return {**arguments, "ports": ports}
