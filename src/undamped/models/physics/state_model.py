"""The contract of models of moving systems: states in, rates or trajectories out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped._base.contract import Answer, Batch, InputKind, StateSpace, TaskShape, Use
from undamped._base.errors import OptionError
from undamped.models.physics.fields.coordinates import split_inputs
from undamped.models.task_model import TaskModel
from undamped.ode.flows.input_checks import fitting, type_of
from undamped.ode.solve import OnFailure


class StateModel(TaskModel):
    """A model of a moving system: it predicts the rates of a state, or later states.

    For a batch without `target_times` it returns dz/dt, (batch, size); with them, the states at
    those times, (outputs, batch, size).

    Args:
        shape: The shape of the task, a `StateSpace`, or a number of positions with a momentum each.

    Example:
        >>> model = undamped.models.StateModel(2)
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])
    """

    uses = frozenset[Use]({"target_times"})
    answers = frozenset[Answer]({"number", "trajectory"})
    input_kinds = frozenset[InputKind]({"states"})
    sequential = False
    own_data = "trajectories"
    recipe: ClassVar[dict[str, dict[str, Any]]] = {}
    """Settings for any task, such as whether the model learns from rates or from trajectories."""

    space: StateSpace

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates (batch, size), or states (outputs, batch, size) at the target times."""
        dtype = type_of(self)
        assert dtype is not None
        size = self.space.size + len(self.space.inputs)
        name = f"{type(self).__name__} states"
        z, u = split_inputs(
            self.space, fitting(batch.inputs.to(dtype), size, dtype, name, rows=True)
        )
        if batch.target_times is None:
            return self.derivative(z, u), None
        # In evaluation a trajectory that fails must not hide the error of the others.
        on_failure = "raise" if self.training else "return"
        return self.trajectory(z, batch.target_times, u, on_failure=on_failure), None

    def derivative(self, states: Tensor, u: Tensor | None = None) -> Tensor:
        """Return dz/dt of states (…, size), with inputs (…, inputs)."""
        raise OptionError(f"{type(self).__name__} learns no rates. Choose another, such as 'hnn'.")

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
            times: Rising times: one list for all samples, or (times, batch).
            u: Inputs (batch, inputs), constant in time.
            on_failure: Raise an error where the solve fails, or return NaN from there on.
        """
        grid = torch.as_tensor(times, dtype=torch.float64).to(start.device)
        if grid.dim() == 2 and bool((grid == grid[:, :1]).all()):
            grid = grid[:, 0]
        first = int(bool((grid[0] > 0).any()))
        if first:
            grid = torch.cat((torch.zeros_like(grid[:1]), grid))
        return self._solve(start, grid, first, u, on_failure)

    @abstractmethod
    def _solve(
        self, start: Tensor, times: Tensor, first: int, u: Tensor | None, on_failure: OnFailure
    ) -> Tensor:
        """Return the states at `times[first:]`.

        Args:
            start: As for `trajectory`.
            times: Times from zero on in double precision, (times,) or (times, batch).
            first: 1 if time zero was added to the requested times, otherwise 0.
            u: As for `trajectory`.
            on_failure: As for `trajectory`.
        """

    def energy(self, states: Tensor) -> Tensor:
        """Return the learned energy of states (…, size); an error if the model learns none."""
        raise OptionError(f"{type(self).__name__} learns no energy. Choose another, such as 'hnn'.")

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with two positions and two momenta."""
        answer: Answer = "number" if "number" in cls.answers else "trajectory"
        return shape_of(StateSpace.canonical(2), answer)

    def example_states(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random states and inputs, (count, size) and (count, inputs)."""
        size = self.space.size + len(self.space.inputs)
        values = torch.randn(count, size, generator=generator, dtype=torch.float64)
        return values[:, : self.space.size], values[:, self.space.size :]


def shape_of(space: StateSpace, answer: Answer = "number") -> TaskShape:
    """Return the shape of a task about states of a space."""
    needs = frozenset[Use]({"target_times"}) if answer == "trajectory" else frozenset[Use]()
    size = space.size + len(space.inputs)
    return TaskShape(
        size, space.size, "states", sequential=False, answer=answer, needs=needs, state_space=space
    )
