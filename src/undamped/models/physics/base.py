"""What whole models of moving systems have in common: states in, rates or trajectories out.

A promise belongs to a field and a solver together: a Hamiltonian field solved by a method that is
not symplectic for it keeps its energy only as well as the steps are small. So an object, and not
its class, knows what it promises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from undamped._base.contract import StateSpace
from undamped._base.errors import OptionError, explain
from undamped._base.options import Default, PositiveFloat
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.ports import Driven, Paced
from undamped.models.physics.promised import cautions, promises_of
from undamped.models.physics.state_model import StateModel, output_times
from undamped.models.task_model import EVALUATIONS
from undamped.ode import Solver, solve
from undamped.ode.flows.neural_ode import NeuralODE
from undamped.ode.flows.solve_options import TOLERANCE, SolveOptions
from undamped.ode.settings import choose_solver
from undamped.ode.solve import OnFailure


class MotionSolveOptions(SolveOptions, total=False):
    """How the field of a moving system is solved: with a tolerance fine enough for energies."""

    tolerance: Annotated[PositiveFloat, Default(1e-6, TOLERANCE)]


class MotionModel(StateModel):
    """A model of a moving system by a field and what solves it.

    Subclasses build a field and hand it to `_build`.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions that have a
            momentum each, will do.
    """

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

    def evaluations(self) -> dict[str, int]:
        """Return how often the last solve called the field; nothing where there was none."""
        if self.flow.solution is None:
            return {}
        return {name: getattr(self.flow, name) for name in EVALUATIONS}

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
        """Return the states at some times after the start; see `StateModel.trajectory`."""
        when, later = output_times(times, start)
        field = self.field if u is None else Driven(self.field, u)
        begin = self._sorted(start)
        if when.dim() == 2 and self.flow.step_size is not None:
            values = self._at_own_times(field, begin, when, on_failure)
        else:
            values = self.flow.solve(begin, when, field=field, on_failure=on_failure).values
        return self._unsorted(values[1:] if later else values)

    def _at_own_times(
        self, field: nn.Module, start: Tensor, when: Tensor, on_failure: OnFailure
    ) -> Tensor:
        """Go from output to output, each sample at a pace of its own and none with larger steps."""
        if self.solver.doubles_state:
            raise OptionError(
                explain(
                    "target times",
                    expected=f"the same for all samples of a batch, for steps of "
                    f"'{self.solver.name}', whose tie of copies has one size",
                    got="times of their own",
                    remedy="Resample the data, or choose another model.",
                )
            )
        assert self.flow.step_size is not None
        self.flow.solution = None
        found = [start]
        for gap in when.diff(dim=0):
            count = max(1, math.ceil(float(gap.max()) / self.flow.step_size - 1e-9))
            reached = solve(
                Paced(field, gap.to(start.dtype).unsqueeze(-1)),
                found[-1],
                [0.0, 1.0],
                method=self.flow.method,
                options={"step_size": 1 / count},
                gradient=self.flow.gradient,
                on_failure=on_failure,
            )
            found.append(reached.final)
        return torch.stack(found)

    def energy(self, states: Tensor) -> Tensor:
        """Return the learned energy of states (…, size); an error where there is none."""
        energy = getattr(self.field, "energy", None)
        return super().energy(states) if energy is None else energy(self._sorted(states))

    def supplied(self, states: Tensor, u: Tensor | None) -> Tensor:
        """Return the power that inputs supply to the learned energy, (…,)."""
        return self.field.supplied(self._sorted(states), u)  # type: ignore[operator]

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
