"""Parameters that flow with depth: solved once per pass, then read at any time by all samples.

The field of samples reads θ(t) at the times of its steps. θ is solved on a separate grid, so that
neither its cost nor its error is that of the samples. Between grid points it is a cubic with the
right values and slopes; for rotations a cubic in the Lie algebra, so that it is orthogonal there
too.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, SolveError
from undamped.kernels.skew_exponential import skew_exponential
from undamped.models.continuous.moving_fields import MovingField
from undamped.ode import LinearRotating, Rotating, solve
from undamped.ode.methods.lie import commutator
from undamped.ode.settings import choose_solver

FEWEST, MOST = 8, 4096
"""Steps over all of depth, where the tolerance chooses them."""
LARGEST_ROTATION = 0.75
"""Tangent of half the largest angle by which parameters may rotate between grid points."""


class ParameterPath(ABC):
    """θ as a function of time, with gradients to whatever made it.

    Args:
        step: Distance of the grid's times, the first of which is 0.
        data: All data on the grid, (kinds, points, …). One tensor, since a gradient that evaluates
            the field again has to stop there, and kinds depend on each other.
        segments: Number of segments between grid points.
    """

    def __init__(self, step: float, data: Tensor, segments: int) -> None:
        self.step, self.data, self.segments = step, data, segments

    def at(self, t: Any) -> Tensor:
        """Return θ(t), (n, m), or for times (batch, 1, …) one for every sample.

        Args:
            t: When, from 0 to the end of depth.
        """
        last = self.segments - 1
        if isinstance(t, Tensor) and t.dim() and t.numel() > 1:
            position = t.detach().reshape(-1).to(self.data.dtype) / self.step
            index = position.floor().clamp(0, last)
            return self.between(index.long(), (position - index).reshape(-1, 1, 1))
        position = float(t) / self.step
        index = min(max(math.floor(position), 0), last)
        fraction = position - index
        return self.data[0, index] if fraction == 0.0 else self.between(index, fraction)

    @abstractmethod
    def between(self, index: Any, fraction: Any) -> Tensor:
        """Return θ at a fraction of the way from one grid point to the next."""


class CubicPath(ParameterPath):
    """A path with the right values and slopes on the grid, and cubics between.

    Args:
        step: Distance of the grid's times.
        values: θ on the grid, (points, …).
        slopes: dθ/dt there.
    """

    def __init__(self, step: float, values: Tensor, slopes: Tensor) -> None:
        super().__init__(step, torch.stack((values, step * slopes)), len(values) - 1)

    def between(self, index: Any, fraction: Any) -> Tensor:
        """Return Hermite's cubic."""
        begin, rise, end = _hermite(fraction)
        (first, rising), (last, arriving) = self.data[:, index], self.data[:, index + 1]
        return first + rise * (last - first) + begin * rising + end * arriving


class RotationPath(ParameterPath):
    """A path of orthogonal matrices: W(t) = W_j exp(Ω(t)) with a cubic Ω between grid points.

    Args:
        step: Distance of the grid's times.
        values: W on the grid, (points, n, n).
        generators: b there.
    """

    def __init__(self, step: float, values: Tensor, generators: Tensor) -> None:
        turns = rotation_logarithms(values[:-1].mT @ values[1:])
        # Where it ends, dΩ/dt is not b: the inverse of the differential of exp, to fourth order.
        end = step * generators[1:]
        inner = commutator(turns, end)
        ends = end + inner / 2 + commutator(turns, inner) / 12
        data = torch.stack((values[:-1], turns, step * generators[:-1], ends))
        super().__init__(step, data, len(turns))

    def between(self, index: Any, fraction: Any) -> Tensor:
        """Rotate further from the grid point before."""
        begin, rise, end = _hermite(fraction)
        value, turn, starting, ending = self.data[:, index]
        return value @ skew_exponential(begin * starting + rise * turn + end * ending)


class StillPath(ParameterPath):
    """Parameters that do not move.

    Args:
        value: θ.
    """

    def __init__(self, value: Tensor) -> None:
        super().__init__(1.0, value, 0)

    def at(self, t: Any) -> Tensor:
        return self.data

    def between(self, index: Any, fraction: Any) -> Tensor:
        return self.data


def rotation_logarithms(matrices: Tensor) -> Tensor:
    """Return the skew Ω with exp(Ω) = R for rotations R (…, n, n) by less than a right angle.

    Equation:
        K = (R − I)(R + I)⁻¹,  Ω = 2 artanh K = 2 (K + K³/3 + K⁵/5 + …)

    Args:
        matrices: R.
    """
    tangent = _tangents(matrices)
    size = torch.linalg.matrix_norm(tangent.detach(), 2).max().item()
    if not size <= LARGEST_ROTATION:
        raise OptionError(
            "matrix_steps is too small: the parameters rotate by more than 74° in a step. Choose "
            "more steps, or leave it out to have the number chosen."
        )
    power, total, square = tangent, tangent, tangent @ tangent
    terms = math.ceil(math.log(torch.finfo(tangent.dtype).eps) / math.log(max(size, 1e-3) ** 2))
    for number in range(1, terms + 1):
        power = power @ square
        total = total + power / (2 * number + 1)
    return total - total.mT  # twice, and skew to the last bit


def _tangents(matrices: Tensor) -> Tensor:
    eye = torch.eye(matrices.shape[-1], dtype=matrices.dtype, device=matrices.device)
    return torch.linalg.solve(matrices + eye, matrices - eye)


def largest_rotation(values: Tensor) -> float:
    """Return the tangent of half the largest angle between adjacent points (points, n, n)."""
    tangents = _tangents(values[:-1].mT @ values[1:])
    return torch.linalg.matrix_norm(tangents, 2).max().item()


def _hermite(x: Any) -> tuple[Any, Any, Any]:
    """Return the weights of the slope at the start, the rise, and the slope at the end."""
    return x * (1 - x) ** 2, x * x * (3 - 2 * x), x * x * (x - 1)


class SharedFlow:
    """The flow of a `MovingField`'s parameters over depth.

    It is no module: its parameters belong to the field.

    Args:
        field: The field, which declares initial values and motion of its parameters.
        depth: Last time.
        method: A solver of fixed steps: a Lie-group method for parameters that rotate.
        steps: Number of steps; None doubles them until the ends agree to `tolerance`.
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
        self.method = solver = choose_solver(method or ("rkmk4" if field.turns else "rk4"))
        if solver.rotates != field.turns or solver.linear:
            names = "'lie-euler', 'lie-midpoint', 'cayley' or 'rkmk4'" if field.turns else "'rk4'"
            raise OptionError(
                f"matrix_method must be {names} for parameters that "
                f"{'rotate' if field.turns else 'do not rotate'}, got '{solver.name}'. Leave it "
                "out to have one chosen."
            )

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
            # The complete graph: a few small matrices, and gradients of gradients work.
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
            smooth = not self.field.turns or largest_rotation(now) <= LARGEST_ROTATION
            if error <= allowed and smooth:
                return values
            if steps >= MOST or not math.isfinite(error):
                raise _too_fast(allowed, error)
            steps, before = 2 * steps, now


class AlongPath:
    """The field of the samples along a path of parameters.

    It is no module, as a solve of the samples depends on the path and not on the parameters.

    Args:
        field: The field.
        path: Its parameters as a function of time.
        constants: Further tensors that it reads; computed if None.
    """

    def __init__(
        self, field: MovingField, path: ParameterPath, constants: tuple[Tensor, ...] | None = None
    ) -> None:
        self.field, self.path = field, path
        self.constants = field.constants() if constants is None else constants

    def context_tensors(self) -> list[Tensor]:
        """Return the tensors that gradients must reach."""
        return [self.path.data, *self.constants]

    def reading(self, tensors: Sequence[Tensor]) -> AlongPath:
        """Return the same field, made of other tensors in place of `context_tensors()`."""
        path = copy(self.path)
        path.data, *constants = tensors
        return AlongPath(self.field, path, tuple(constants))

    def parameters_at(self, t: Any) -> tuple[Tensor, ...]:
        """Return the parameters of the field at a time."""
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
        """Return the tensors that gradients must reach."""
        return self.along.context_tensors()

    def reading(self, tensors: Sequence[Tensor]) -> TurningAlongPath:
        """Return the same field, made of other tensors in place of `context_tensors()`."""
        return TurningAlongPath(self.along.reading(tensors))


def _too_fast(allowed: float, error: float) -> SolveError:
    return SolveError(
        f"The parameters change too fast over depth: their error with {MOST} steps is {error:.1e} "
        f"instead of {allowed:.1e}. Lower the learning rate or the depth, or set matrix_steps."
    )
