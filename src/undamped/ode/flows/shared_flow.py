"""Parameters that flow with depth: solved once a pass, then read at any time by all samples.

A field of samples asks for θ(t) at times that its own steps choose. θ is solved on a grid of its
own, so that neither its cost nor its error is the samples'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, SolveError
from undamped.ode import LinearRotating, Rotating, Solver, solve
from undamped.ode.fields.moving import MovingField
from undamped.ode.flows.parameter_path import (
    WIDEST,
    CubicPath,
    ParameterPath,
    RotationPath,
    widest_turn,
)
from undamped.ode.settings import choose_solver

FEWEST, MOST = 8, 4096
"""Steps over all of depth, where the tolerance chooses them."""


class SharedFlow:
    """The flow of a `MovingField`'s parameters over depth.

    It is no module: what it has to learn is the field's.

    Args:
        field: The field, which says where its parameters begin and how they move.
        depth: Where depth ends.
        method: A solver of fixed steps: a Lie-group one for a field that turns.
        steps: How many over all of depth; none doubles them until the ends agree to `tolerance`.
        tolerance: Largest error that any parameter may have at the end.

    Example:
        >>> shared = SharedFlow(GatedOrthogonalField(4), depth=1.0)
        >>> shared.path().at(0.3).shape
        torch.Size([4, 4])
    """

    def __init__(
        self,
        field: MovingField,
        *,
        depth: float,
        method: str | None = None,
        steps: int | None = None,
        tolerance: float = 1e-6,
    ) -> None:
        self.field, self.depth, self.steps, self.tolerance = field, depth, steps, tolerance
        self.method = choose_solver(method or ("rkmk4" if field.turns else "rk4"))
        _check_method(field, self.method)

    def path(self) -> ParameterPath:
        """Solve, and return θ as a function of time."""
        values = self._solved(self.steps) if self.steps else self._fine()
        steps = len(values) - 1
        times = torch.linspace(0, self.depth, steps + 1).to(values)
        slopes = self.field.motion(times.reshape(-1, 1, 1), values)
        kind = RotationPath if self.field.turns else CubicPath
        return kind(self.depth / steps, values, slopes)

    def _solved(self, steps: int) -> Tensor:
        """Return θ on the grid, (steps + 1, …)."""
        motion: Any = Rotating(self.field.motion) if self.field.turns else self.field.motion
        grid = [self.depth * k / steps for k in range(steps + 1)]
        start = self.field.beginning()
        try:
            # The whole graph: a few small matrices, and gradients of gradients work.
            return solve(motion, start, grid, method=self.method, gradient="backprop").values
        except SolveError as error:
            raise _too_fast(self.tolerance, math.nan) from error

    def _fine(self) -> Tensor:
        """Return θ on a grid so fine that half as many steps change it by less than allowed."""
        steps = FEWEST
        with torch.no_grad():
            before = self._solved(steps // 2)
        allowed = max(self.tolerance, 64 * torch.finfo(before.dtype).eps)
        while True:
            values = self._solved(steps)
            now = values.detach()
            error = (now[::2] - before).abs().max().item() / (2**self.method.order - 1)
            if error <= allowed and not (self.field.turns and widest_turn(now) > WIDEST):
                return values
            if steps >= MOST or not math.isfinite(error):
                raise _too_fast(allowed, error)
            steps, before = 2 * steps, now


class AlongPath:
    """The field of the samples while the parameters are on their way.

    It is no module, as its parameters are not what a solve of the samples depends on: the path is.

    Args:
        field: The field.
        path: Its parameters as a function of time.
        constants: What it reads beside them; computed if None.
    """

    def __init__(
        self, field: MovingField, path: ParameterPath, constants: tuple[Tensor, ...] | None = None
    ) -> None:
        self.field, self.path = field, path
        self.constants = field.constants() if constants is None else constants

    def context_tensors(self) -> list[Tensor]:
        """Name what gradients must reach."""
        return [self.path.data, *self.constants]

    def reading(self, tensors: Sequence[Tensor]) -> AlongPath:
        """Return the same field, made of other tensors in place of `context_tensors()`."""
        path = copy(self.path)
        path.data, *constants = tensors
        return AlongPath(self.field, path, tuple(constants))

    def parameters_at(self, t: Any) -> tuple[Tensor, ...]:
        """Return what samples are moved with at a time."""
        return self.field.read(self.path.at(t), *self.constants)

    def __call__(self, t: Any, x: Tensor) -> Tensor:
        """Return dx/dt."""
        return self.field.move(x, *self.parameters_at(t))


class TurningAlongPath(LinearRotating):
    """The same for a linear field through a skew matrix, as Lie-group methods read it.

    Args:
        along: The field; what it reads first is the matrix that stands left of a sample.
    """

    def __init__(self, along: AlongPath) -> None:
        super().__init__(lambda t: along.parameters_at(t)[0].mT)
        self.along = along

    def context_tensors(self) -> list[Tensor]:
        """Name what gradients must reach."""
        return self.along.context_tensors()

    def reading(self, tensors: Sequence[Tensor]) -> TurningAlongPath:
        """Return the same field, made of other tensors in place of `context_tensors()`."""
        return TurningAlongPath(self.along.reading(tensors))


def _too_fast(allowed: float, error: float) -> SolveError:
    return SolveError(
        f"The parameters change too fast over depth: their error with {MOST} steps is {error:.1e} "
        f"instead of {allowed:.1e}. Lower the learning rate or the depth, or set matrix_steps."
    )


def _check_method(field: MovingField, solver: Solver) -> None:
    if solver.rotates != field.turns or solver.linear:
        names = "'lie-euler', 'lie-midpoint', 'cayley' or 'rkmk4'" if field.turns else "'rk4'"
        raise OptionError(
            f"matrix_method must be {names} for parameters that "
            f"{'rotate' if field.turns else 'do not rotate'}, got '{solver.name}'. Leave it out to "
            "have one chosen."
        )
