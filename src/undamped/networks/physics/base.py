"""What whole models of moving systems have in common: states in, rates or trajectories out.

A promise belongs to a field and a solver together: a Hamiltonian field solved by a method that is
not symplectic for it keeps its energy only as well as the steps are small. So an object, and not
its class, knows what it promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn

from undamped.contract import Answer, Batch, InputKind, StateSpace, TaskShape, Use
from undamped.errors import OptionError, ShapeError, explain
from undamped.fields.physics.coordinates import Coordinates, split_inputs
from undamped.fields.physics.ports import Driven
from undamped.flows.input_checks import fitting, type_of
from undamped.flows.neural_ode import NeuralODE
from undamped.flows.solve_options import TOLERANCE, SolveOptions
from undamped.networks.physics.promised import cautions, promises_of
from undamped.networks.task_model import TaskModel
from undamped.options import Default, PositiveFloat
from undamped.promises import Promise
from undamped.solvers import Solver, solve
from undamped.solvers.settings import choose_solver
from undamped.solvers.solve import OnFailure


class MotionSolveOptions(SolveOptions, total=False):
    """How the field of a moving system is solved: with a tolerance fine enough for energies."""

    tolerance: Annotated[PositiveFloat, Default(1e-6, TOLERANCE)]


class MotionModel(TaskModel):
    """A model of a system that moves: of a state it says the rates, or where it will be.

    Subclasses build a field and hand it to `_build`. Asked for a batch without `target_times` it
    answers with dz/dt, (batch, size); with them, with the states at those times, (outputs, batch,
    size), had by solving the field.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions that have a
            momentum each, will do.
    """

    uses = frozenset[Use]({"target_times"})
    answers = frozenset[Answer]({"number", "trajectory"})
    input_kinds = frozenset[InputKind]({"states"})
    sequential = False
    own_data = "trajectories"
    promises: tuple[Promise, ...] = ()
    recipe: ClassVar[dict[str, dict[str, Any]]] = {}

    space: StateSpace
    flow: NeuralODE
    coordinates: Coordinates | None = None
    """How states are sorted for the field; None where it takes them as they are."""

    def _build(
        self,
        space: StateSpace,
        field: nn.Module,
        how: dict[str, Any],
        coordinates: Coordinates | None = None,
    ) -> None:
        """Take the field and what solves it; see what the two promise together.

        Args:
            space: What the coordinates are.
            field: dz/dt, called with (t, state, u).
            how: Method, tolerances or step size, gradient.
            coordinates: How states are to be sorted for the field.
        """
        self.space, self.coordinates = space, coordinates
        self.flow = NeuralODE(field, **how)
        self.promises = promises_of(field, self.solver)

    def notes(self) -> list[str]:
        """Say where field and solver promise less than somebody may think."""
        return cautions(self.field, self.solver)

    def _sorted(self, states: Tensor) -> Tensor:
        return states if self.coordinates is None else self.coordinates.sort(states)

    def _unsorted(self, states: Tensor) -> Tensor:
        return states if self.coordinates is None else self.coordinates.unsort(states)

    @property
    def field(self) -> nn.Module:
        """dz/dt."""
        return self.flow.field

    @property
    def solver(self) -> Solver:
        """What takes the steps."""
        return choose_solver(self.flow.method)

    @property
    def evaluations_of_last(self) -> dict[str, int]:
        """Field evaluations of the last pass."""
        return {
            "evaluations": self.flow.evaluations,
            "evaluations_backward": self.flow.evaluations_backward,
        }

    def evaluations(self) -> dict[str, int]:
        """Return how often the last pass called the field; nothing where it called it once."""
        return self.evaluations_of_last if self.flow.solution is not None else {}

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates (batch, size), or states (outputs, batch, size) at the target times."""
        dtype = type_of(self)
        assert dtype is not None
        z, u = split_inputs(self.space, self._fitting(batch.inputs.to(dtype)))
        if batch.target_times is None:
            return self.derivative(z, u), None
        # One trajectory that cannot be followed to its end must not hide how well others were.
        failed = "raise" if self.training else "return"
        return self.trajectory(z, batch.target_times, u, on_failure=failed), None

    def derivative(self, states: Tensor, u: Tensor | None = None) -> Tensor:
        """Return dz/dt of states (…, size), with inputs (…, inputs)."""
        self.flow.solution = None
        time = torch.zeros((), dtype=states.dtype, device=states.device)
        return self._unsorted(self.field(time, self._sorted(states), u))

    def trajectory(
        self,
        start: Tensor,
        times: Tensor | Sequence[float],
        u: Tensor | None = None,
        *,
        on_failure: OnFailure = "raise",
    ) -> Tensor:
        """Return the states at some times after the start, (times, batch, size).

        Args:
            start: States (batch, size) at time zero.
            times: Rising times: one list for all, or (times, batch).
            u: Inputs (batch, inputs), the same all along.
            on_failure: Raise an error where a solve cannot go on, or return NaN from there on.
        """
        when = torch.as_tensor(times, dtype=torch.float64).to(start.device)
        if when.dim() == 2 and bool((when == when[:, :1]).all()):
            when = when[:, 0]
        begins_later = bool((when[0] > 0).any())
        if begins_later:
            when = torch.cat((torch.zeros_like(when[:1]), when))
        if when.dim() == 2:
            self._refuse_own_times()
        field = self.field if u is None else Driven(self.field, u)
        values = self.flow.solve(
            self._sorted(start), when, field=field, on_failure=on_failure
        ).values
        return self._unsorted(values[1:] if begins_later else values)

    def _refuse_own_times(self) -> None:
        solver = self.solver
        if not (solver.per_sample and solver.adaptive and self.flow.step_size is None):
            raise OptionError(
                explain(
                    "target times",
                    expected=f"the same for all samples of a batch, for steps of '{solver.name}'",
                    got="times of their own",
                    remedy="Choose model.method=dopri5 without step_size, or resample the data.",
                )
            )

    def energy(self, states: Tensor) -> Tensor:
        """Return the learned energy of states (…, size); an error where there is none."""
        energy = getattr(self.field, "energy", None)
        if energy is None:
            raise OptionError(
                explain(
                    type(self).__name__,
                    expected="a model with an energy",
                    got="one that learns rates alone",
                    remedy="Choose 'hnn', or another of 'undamped list' that has one.",
                )
            )
        return energy(self._sorted(states))

    def supplied(self, states: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that inputs supply to the learned energy, (…,)."""
        return self.field.supplied(self._sorted(states), u)  # type: ignore[operator]

    def _fitting(self, given: Tensor) -> Tensor:
        wanted = self.space.size + len(self.space.inputs)
        return fitting(given, wanted, type_of(self), f"{type(self).__name__} states", rows=True)

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with two positions and two momenta."""
        return shape_of(StateSpace.canonical(2))

    # What promises are measured on

    def example_states(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random states and inputs, (count, size) and (count, inputs)."""
        numbers = self.space.size + len(self.space.inputs)
        drawn = torch.randn(count, numbers, generator=generator, dtype=torch.float64)
        return drawn[:, : self.space.size], drawn[:, self.space.size :]

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random states whose first half are positions and whose second half momenta."""
        return self._sorted(self.example_states(count, generator)[0])

    def phase_step(self, states: Tensor) -> Tensor:
        """Take one step of the model's own method and size, without inputs."""
        size = self.flow.step_size or 0.1
        found = solve(
            self.field,
            states,
            [0.0, size],
            method=self.flow.method,
            options={"step_size": size},
            gradient="backprop",
        )
        return found.final


def space_of(shape: TaskShape | StateSpace | int, owner: str) -> StateSpace:
    """Return the state space of a task, or the one that was given."""
    if isinstance(shape, StateSpace):
        return shape
    if isinstance(shape, int):
        return StateSpace.canonical(shape)
    if shape.state_space is None:
        raise ShapeError(
            explain(
                f"{owner}.shape",
                expected="a task that says what the coordinates of its states are",
                got="one without a state_space",
                remedy="Give the task a StateSpace.",
            )
        )
    return shape.state_space


def shape_of(space: StateSpace, answer: Answer = "number") -> TaskShape:
    """Return the shape of a task about states of a space."""
    needs = frozenset[Use]({"target_times"}) if answer == "trajectory" else frozenset[Use]()
    size = space.size + len(space.inputs)
    return TaskShape(
        size,
        space.size,
        "states",
        sequential=False,
        answer=answer,
        needs=needs,
        state_space=space,
    )
