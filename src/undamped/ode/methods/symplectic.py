"""Symplectic Euler, leapfrog, Yoshida's composition and Tao's method, and separable fields.

The last dimension of a state holds positions first, momenta second, in equal numbers; a tuple
(q, p) of equal shapes (batch, features) is packed that way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import PositiveFloat
from undamped.ode.field import CountedField
from undamped.ode.methods.solver import (
    Field,
    Number,
    Solver,
    SolverState,
    Stepper,
    StepResult,
    register_solver,
)
from undamped.ode.methods.stages import stage_times


class Separable(nn.Module):
    """A field in two halves: dq/dt = velocity(t, p) and dp/dt = force(t, q).

    Symplectic methods then evaluate only the half they need, as they do for any field with an
    attribute `separable` and these two methods, such as those of `undamped.models.physics.fields`.

    Args:
        velocity: dq/dt from the momentum.
        force: dp/dt from the position.

    Example:
        >>> pendulum = Separable(lambda t, p: p, lambda t, q: -torch.sin(q))
    """

    separable = True

    def __init__(
        self, velocity: Callable[[Any, Tensor], Tensor], force: Callable[[Any, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.velocity = velocity
        self.force = force

    def forward(self, t: Any, state: Any) -> Any:
        """Return both halves, in the form the state came in."""
        q, p = state if isinstance(state, tuple) else split(state)
        dq, dp = self.velocity(t, p), self.force(t, q)
        return (dq, dp) if isinstance(state, tuple) else torch.cat((dq, dp), dim=-1)


def split(y: Tensor) -> tuple[Tensor, Tensor]:
    """Return positions and momenta of a state."""
    if y.dim() == 0 or y.shape[-1] % 2:
        raise ShapeError(
            "The state of a symplectic method must have an even number of features, positions and "
            f"then as many momenta in the last dimension, got {tuple(y.shape)}."
        )
    half = y.shape[-1] // 2
    return y[..., :half], y[..., half:]


def _halves(field: Field) -> Any:
    """Return the function with both halves, where using them is the same as the field."""
    function = field.function if isinstance(field, CountedField) else field
    if not getattr(function, "separable", False):
        return None
    if isinstance(field, CountedField) and not field.packing.single:
        shapes = field.packing.shapes
        if not (field.packing.batched and len(shapes) == 2 and len(shapes[0]) == 2):
            return None
    return function


def drift(field: Field, t: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """Return dq/dt."""
    return _half(field, 0, t, q, p)


def kick(field: Field, t: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """Return dp/dt."""
    return _half(field, 1, t, q, p)


def _half(field: Field, index: int, t: Tensor, q: Tensor, p: Tensor) -> Tensor:
    halves = _halves(field)
    if halves is None:
        return split(field(t, torch.cat((q, p), dim=-1)))[index]
    if isinstance(field, CountedField):
        field.count += 1
    return halves.force(t, q) if index else halves.velocity(t, p)


@register_solver("symplectic-euler")
class SymplecticEuler(Solver):
    """Symplectic Euler: kick with the old position, drift with the new momentum.

    Equation:
        p' = p + h ṗ(t, q, p),  q' = q + h q̇(t, q, p')
    """

    order = 1
    symplectic = True
    needs_separable = True
    phase_space = True
    reversible = True

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Kick, then drift."""
        q, p = split(state[0])
        time = stage_times(t, h, (0.0,), q)[0]
        p = p + h * kick(field, time, q, p)
        q = q + h * drift(field, time, q, p)
        return (torch.cat((q, p), dim=-1),), None

    def reverse(self, field: Field, t: Number, h: Number, state: SolverState) -> SolverState:
        """Drift back, then kick back."""
        q, p = split(state[0])
        time = stage_times(t, h, (0.0,), q)[0]
        q = q - h * drift(field, time, q, p)
        p = p - h * kick(field, time, q, p)
        return (torch.cat((q, p), dim=-1),)


class Kicked(Solver):
    """Methods whose steps begin and end with a kick.

    Where a kick depends on the position alone, the last of a step is the first of the next: it is
    evaluated once for both.
    """

    order = 2
    symmetric = True
    symplectic = True
    needs_separable = True
    phase_space = True
    reversible = True

    weights: ClassVar[tuple[float, ...]] = (1.0,)
    """Sizes of the sub-steps, each of which is a leapfrog."""

    def advance(
        self, field: Field, t: Number, h: Number, y: Tensor, force: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Step from y; take and return the force at its ends, where it depends on q alone."""
        reusable = _halves(field) is not None
        for weight in self.weights:
            q, p = split(y)
            size = weight * h
            start, middle, end = stage_times(t, size, (0.0, 0.5, 1.0), q)
            p = p + (size / 2) * (kick(field, start, q, p) if force is None else force)
            q = q + size * drift(field, middle, q, p)
            last = kick(field, end, q, p)
            y = torch.cat((q, p + (size / 2) * last), dim=-1)
            t, force = t + size, last if reusable else None
        return y, force

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        return (self.advance(field, t, h, state[0], None)[0],), None

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        return KickedStepper(self, field, t, y)


class KickedStepper(Stepper):
    """A method of kicks during one solve: the force at the end of a step begins the next."""

    solver: Kicked

    def __init__(self, solver: Kicked, field: Field, t: Number, y: Tensor) -> None:
        super().__init__(solver, field, t, y)
        self._force: Tensor | None = None
        self._next: Tensor | None = None

    def attempt(self, t: Number, h: Number) -> Tensor:
        reached, self._next = self.solver.advance(self.field, t, h, self.state[0], self._force)
        self._proposed = (reached,)
        return reached

    def accept(self) -> None:
        """Accept the last attempt, and store the force at its end."""
        super().accept()
        self._force = self._next

    def restart(self) -> None:
        self._force = None


@register_solver("leapfrog")
class Leapfrog(Kicked):
    """Leapfrog, or velocity Verlet: half a kick, a drift, half a kick."""


_OUTER = 1 / (2 - 2 ** (1 / 3))


@register_solver("yoshida4")
class Yoshida4(Kicked):
    """Yoshida's composition of three leapfrogs, order four; the middle one goes backwards.

    Equation:
        sub-steps w₁h, w₀h, w₁h with w₁ = 1/(2 − 2^{1/3}), w₀ = 1 − 2w₁

    Reference:
        H. Yoshida. Construction of higher order symplectic integrators. 1990.
    """

    order = 4
    weights = (_OUTER, 1 - 2 * _OUTER, _OUTER)


@register_solver("tao")
class Tao(Solver):
    """Tao's method on a doubled phase space (q, p, x, y), the copies coupled by a rotation.

    Equation:
        φ_A(h/2) φ_B(h/2) φ_C(h) φ_B(h/2) φ_A(h/2), the flows of H(q, y), H(x, p) and
        ω/2 (‖q − x‖² + ‖p − y‖²)

    Args:
        omega: Strength ω of the coupling. If it is too small the copies separate; if it is too
            large the step has to resolve the rotation.

    Reference:
        M. Tao. Explicit symplectic approximation of nonseparable Hamiltonians. 2016.
    """

    order = 2
    symmetric = True
    symplectic = True
    doubles_state = True
    phase_space = True
    reversible = True

    def __init__(self, omega: PositiveFloat = 20.0) -> None:
        self.omega = omega

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        """Begin with two equal copies."""
        split(y)
        return (y, y.clone())

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Compose the five flows."""
        if isinstance(h, Tensor):
            raise OptionError("'tao' needs one step size for the batch, got one per sample.")
        (q, p), (x, y) = split(state[0]), split(state[1])
        start, end = stage_times(t, h, (0.0, 1.0), q)

        def flow_a(time: Tensor, p: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
            dq, dp = split(field(time, torch.cat((q, y), dim=-1)))
            return p + h / 2 * dp, x + h / 2 * dq

        def flow_b(time: Tensor, q: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            dq, dp = split(field(time, torch.cat((x, p), dim=-1)))
            return q + h / 2 * dq, y + h / 2 * dp

        p, x = flow_a(start, p, x)
        q, y = flow_b(start, q, y)
        cosine, sine = math.cos(2 * self.omega * h), math.sin(2 * self.omega * h)
        sum_q, sum_p, delta_q, delta_p = q + x, p + y, q - x, p - y
        rotated_q = cosine * delta_q + sine * delta_p
        rotated_p = cosine * delta_p - sine * delta_q
        q, x = (sum_q + rotated_q) / 2, (sum_q - rotated_q) / 2
        p, y = (sum_p + rotated_p) / 2, (sum_p - rotated_p) / 2
        q, y = flow_b(end, q, y)
        p, x = flow_a(end, p, x)
        return (torch.cat((q, p), dim=-1), torch.cat((x, y), dim=-1)), None


class TaoOfCopies(Tao):
    """Tao's method on a state that holds both copies side by side, (q, p, x, y).

    It returns both copies, and not only the first.

    Args:
        omega: Strength ω of the coupling.
    """

    name = "tao"

    def start(self, field: Field, t: Number, y: Tensor) -> SolverState:
        return (y,)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        copies = state[0].chunk(2, dim=-1)
        return (torch.cat(super().step(field, t, h, copies)[0], dim=-1),), None
