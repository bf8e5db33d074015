"""What all models of moving systems have in common: states in, rates or trajectories out."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped._base.contract import Answer, Batch, InputKind, StateSpace, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.promises import Promise
from undamped.models.physics.fields.coordinates import split_inputs
from undamped.models.task_model import TaskModel
from undamped.ode.flows.input_checks import fitting, type_of
from undamped.ode.solve import OnFailure


class StateModel(TaskModel):
    """A model of a system that moves: of a state it says the rates, or where it will be.

    Asked for a batch without `target_times` it answers with dz/dt, (batch, size); with them, with
    the states at those times, (outputs, batch, size).

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
    """Settings the model wants on any task: whether it learns from rates or from trajectories."""

    space: StateSpace

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return rates (batch, size), or states (outputs, batch, size) at the target times."""
        dtype = type_of(self)
        assert dtype is not None
        wanted = self.space.size + len(self.space.inputs)
        what = f"{type(self).__name__} states"
        given = fitting(batch.inputs.to(dtype), wanted, dtype, what, rows=True)
        z, u = split_inputs(self.space, given)
        if batch.target_times is None:
            return self.derivative(z, u), None
        # One trajectory that cannot be followed to its end must not hide how well others were.
        failed = "raise" if self.training else "return"
        return self.trajectory(z, batch.target_times, u, on_failure=failed), None

    def derivative(self, states: Tensor, u: Tensor | None = None) -> Tensor:
        """Return dz/dt of states (…, size), with inputs (…, inputs)."""
        raise self._lacks("rates", "one that learns where a step leads, and no rates")

    @abstractmethod
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
            on_failure: Raise an error where it cannot go on, or return NaN from there on.
        """

    def energy(self, states: Tensor) -> Tensor:
        """Return the learned energy of states (…, size); an error where there is none."""
        raise self._lacks("an energy", "one that learns none")

    def _lacks(self, what: str, got: str) -> OptionError:
        return OptionError(
            explain(
                type(self).__name__,
                expected=f"a model with {what}",
                got=got,
                remedy="Choose 'hnn', or another of 'undamped list'.",
            )
        )

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with two positions and two momenta."""
        answer: Answer = "number" if "number" in cls.answers else "trajectory"
        return shape_of(StateSpace.canonical(2), answer)

    def example_states(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return random states and inputs, (count, size) and (count, inputs)."""
        numbers = self.space.size + len(self.space.inputs)
        drawn = torch.randn(count, numbers, generator=generator, dtype=torch.float64)
        return drawn[:, : self.space.size], drawn[:, self.space.size :]


def output_times(times: Tensor | Sequence[float], like: Tensor) -> tuple[Tensor, bool]:
    """Return times from zero on in double precision, and whether zero had to be added.

    Times that all samples share become one list; others stay (times, batch).

    Args:
        times: Rising times.
        like: A state, which knows the device.
    """
    when = torch.as_tensor(times, dtype=torch.float64).to(like.device)
    if when.dim() == 2 and bool((when == when[:, :1]).all()):
        when = when[:, 0]
    later = bool((when[0] > 0).any())
    return (torch.cat((torch.zeros_like(when[:1]), when)) if later else when), later


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
