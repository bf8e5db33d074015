"""A method for fields that may be stiff or not: explicit until they are.

After every explicit step two stages at one time show how fast the field changes. Where stability
limits the step repeatedly, accuracy would allow longer ones, and an implicit method takes over. The
explicit one resumes where the derivative shows that explicit steps of that size are stable.

Reference:
    E. Hairer, G. Wanner. Solving ordinary differential equations II, section IV.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import solvers
from undamped.ode.gradients.refused import transformed
from undamped.ode.loop.control import ControlMemory, StepControl
from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.implicit.method import ImplicitMethod
from undamped.ode.methods.implicit.stepper import ImplicitStepper
from undamped.ode.methods.solver import (
    Field,
    Number,
    Solver,
    SolverState,
    Stepper,
    StepResult,
    register_solver,
)

LIMIT = 2.8
"""h·rate above which stability limits an explicit step."""
STIFF_STEPS, MILD_STEPS = 12, 6
"""Such steps before the field counts as stiff, less one for every few that are not."""
STABLE = 1.0
"""h·‖J‖ below which an implicit step could have been explicit, and steps of that kind in a row."""
BACK = 10


@register_solver("auto")
class Auto(Solver):
    """Explicit steps while the field is mild, implicit ones while it is stiff.

    Of order five with the methods it has by default. Gradients are those of the steps that were
    taken, each by the method that took it.

    Args:
        explicit: The explicit method.
        implicit: The implicit method.
    """

    order = 5
    error_order = 4
    implicit = True
    switches = True

    def __init__(self, explicit: str = "tsit5", implicit: str = "radau5") -> None:
        mild, stiff = solvers[explicit](), solvers[implicit]()
        if not (isinstance(mild, RungeKutta) and mild.adaptive and mild.tableau.end_pair):
            raise OptionError(
                "explicit of 'auto' must be an explicit method that detects stiffness, such as "
                f"'tsit5', got '{explicit}'."
            )
        if not (isinstance(stiff, ImplicitMethod) and stiff.adaptive):
            raise OptionError(
                "implicit of 'auto' must be an implicit method with step control, such as "
                f"'radau5', got '{implicit}'."
            )
        self.mild, self.stiff = mild, stiff
        self.order = min(mild.order, stiff.order)
        self._stiff_at: dict[float, bool | None] = {}

    def note(self, t: Number, stiff: bool) -> None:
        """Remember by which method the step from t is taken."""
        if self._stiff_at.setdefault(float(t), stiff) is not stiff:
            # Another solve with the same object took the step by the other method.
            self._stiff_at[float(t)] = None

    def _method(self, t: Number) -> Solver:
        stiff = self._stiff_at.get(float(t), False)
        if stiff is None:
            raise OptionError(
                "Several solves with gradients used the same Auto() object and switched at "
                "different times. Write method='auto', which makes a new one for each solve."
            )
        return self.stiff if stiff else self.mild

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Step by the method of the step from t; by the explicit one where there was none."""
        return self._method(t).step(field, t, h, state)

    def repeat(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        return self._method(t).repeat(field, t, h, state)

    def replay(
        self, field: Field, t: Number, h: Number, state: SolverState, inside: Sequence[float] = ()
    ) -> tuple[SolverState, list[Tensor]]:
        return self._method(t).replay(field, t, h, state, inside)

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        return AutoStepper(self, field, t, y, first)


class AutoStepper(Stepper):
    """Two steppers, of which one is in use."""

    solver: Auto

    def __init__(
        self, solver: Auto, field: Field, t: Number, y: Tensor, first: Tensor | None
    ) -> None:
        self.solver, self.field = solver, field
        self.using: Stepper = solver.mild.stepper(field, t, y, first)
        self._memory: ControlMemory | None = None
        self._before: ControlMemory | None = None
        self._control: tuple[StepControl, ErrorNorm] | None = None
        self._stiff = self._mild = 0
        self._measured = False
        self._step: tuple[Number, Number] = 0.0, 0.0
        self._tangent_rate: float | None = None

    @property
    def state(self) -> SolverState:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The state so far."""
        return self.using.state

    @property
    def active(self) -> Stepper:
        return self.using

    def memory(self, control: StepControl, norm: ErrorNorm) -> Any:
        """Return what chooses step sizes: this object, by the memory of the method in use."""
        self._control = control, norm
        self._memory = self.using.memory(control, norm)
        return self

    def next_factor(self, error: float, accepted: bool) -> float:
        """Return the factor from the memory of the method that made the last attempt."""
        memory = self._before or self._memory
        assert memory is not None
        self._before = None
        return memory.next_factor(error, accepted)

    def attempt(self, t: Number, h: Number) -> Tensor:
        self._step, self._measured, self._tangent_rate = (t, h), False, None
        self.solver.note(t, isinstance(self.using, ImplicitStepper))
        return self.using.attempt(t, h)

    def error(self) -> Tensor:
        return self.using.error()

    def error_norm(self, norm: ErrorNorm) -> float:
        self._measured = True
        return self.using.error_norm(norm)

    def movement(self, norm: ErrorNorm, y1: Tensor) -> float:
        return self.using.movement(norm, y1)

    def measure(self, norm: ErrorNorm, y: Tensor, terms: Any, parts: Sequence[Tensor]) -> float:
        return self.using.measure(norm, y, terms, parts)

    def fastest_rate(self) -> float | None:
        return self.using.fastest_rate()

    def note_rate(self, rate: float | None) -> None:
        self._tangent_rate = rate

    def accept(self) -> None:
        """Accept the attempt, and choose the method of the next step."""
        t, h = self._step
        size = abs(float(h))
        if isinstance(self.using, ImplicitStepper):
            self.using.accept()
            norm = None if self.using.line is None else self.using.line.norm
            self._mild = self._mild + 1 if norm is not None and size * norm < STABLE else 0
            if self._mild >= BACK:
                self._switch(self.solver.mild, t + h)
            return
        # A fixed step, whose error is not measured, says nothing about what limits its size.
        rate = self.using.fastest_rate() if self._measured else None
        self.using.accept()
        rate = max(rate or 0.0, self._tangent_rate or 0.0)
        if not rate * size > LIMIT:
            self._mild += 1
            if self._mild >= MILD_STEPS:
                self._stiff, self._mild = 0, 0
            return
        self._stiff, self._mild = self._stiff + 1, 0
        # Transforms support explicit steps only: slow steps are better than wrong ones.
        if self._stiff >= STIFF_STEPS and not transformed(self.using.state[0]):
            self._switch(self.solver.stiff, t + h)

    def _switch(self, solver: Solver, t: Number) -> None:
        self.using = solver.stepper(self.field, t, self.using.state[0], None)
        self._stiff = self._mild = 0
        if self._control is not None:
            # The size of the next step is chosen by the method of this one.
            self._before = self._memory
            self._memory = self.using.memory(*self._control)
