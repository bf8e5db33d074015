"""Lie–Euler, Lie midpoint, Cayley, Runge–Kutta–Munthe-Kaas and Magnus: steps by rotations.

They are for fields that only rotate, dY/dt = Y b(t, Y) with b skew. The last dimension of a state
is rotated: the rows of an orthogonal matrix all alike, or every vector of a batch, by one rotation
for all or one for each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped.kernels.dispatch import inside_transform
from undamped.kernels.skew_exponential import skew_exponential
from undamped.ode.field import CountedField
from undamped.ode.loop.route import inside
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

ROUNDING = 100.0
"""Number of roundings by which a matrix may differ from a skew or orthogonal one."""


class Rotating(nn.Module):
    """A field whose flow rotates: lengths of rows, and angles between rows, are conserved.

    Equation:
        Ẏ = Y b(t, Y),  bᵀ = −b

    Args:
        generator: b, called with (t, Y): (n, n) for one rotation of all rows, or one for every
            matrix of a batch (…, n, n), or for vectors (…, n) one for each, (…, n, n).

    Example:
        >>> spin = Rotating(lambda t, y: (1 + t) * torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
        >>> solve(spin, torch.eye(2), [0.0, 1.0], method="rkmk4", options={"step_size": 0.1}).final
    """

    def __init__(self, generator: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = generator

    def generator(self, t: Any, y: Tensor) -> Tensor:
        """Return b."""
        return self.function(t, y)

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return dY/dt."""
        return rotated(y, _fitting(self.generator(t, y), y))


class LinearRotating(Rotating):
    """A field that applies the same rotation to every state: b depends on time alone.

    Equation:
        Ẏ = Y b(t),  bᵀ = −b

    Args:
        generator: b, called with t alone, (n, n).

    Example:
        >>> spin = LinearRotating(lambda t: t * torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    """

    def generator(self, t: Any, y: Tensor) -> Tensor:
        return self.function(t)


def rotated(y: Tensor, matrix: Tensor) -> Tensor:
    """Return the rows of a state times a matrix, or each times its own.

    Args:
        y: (…, n).
        matrix: (n, n), or with as many dimensions as the state, or one more.
    """
    if matrix.dim() > max(2, y.dim()):
        return (y.unsqueeze(-2) @ matrix).squeeze(-2)
    return y @ matrix


def generator_of(field: Field, t: Tensor, y: Tensor) -> Tensor:
    """Return b at a time and state, from the generator of a `Rotating` field or from Yᵀ dY/dt."""
    counted = field if isinstance(field, CountedField) else None
    function = field if counted is None else counted.function
    if not isinstance(function, Rotating):
        product = y.mT @ field(t, y)
        return (product - product.mT) / 2
    if counted is None:
        return function.generator(t, y)
    counted.count += 1
    if counted.window is not None:
        t = inside(t, counted.window)
    packing = counted.packing
    return function.generator(packing.time(t), packing.unpack(y)).to(y.dtype)


def check_rotating(name: str, field: Field, t: Any, y: Tensor, slope: Tensor | None) -> None:
    """Refuse a field or a start that a Lie-group method cannot rotate.

    Args:
        name: The method.
        field: The field of the solve.
        t: Time at the start.
        y: State at the start.
        slope: The field at the start, where it is available.
    """
    function = field.function if isinstance(field, CountedField) else field
    if isinstance(field, CountedField) and not (
        field.packing.single and not field.packing.types[0].is_complex
    ):
        raise ShapeError(
            f"y0 of '{name}' must be one real tensor whose rows are rotated, got "
            f"{'complex numbers' if field.packing.single else 'a tuple'}. Solve the tensors of a "
            "tuple separately, or choose another method."
        )
    if isinstance(function, Rotating):
        generator = generator_of(field, t, y).detach()
    elif y.dim() >= 2 and y.shape[-1] == y.shape[-2]:
        _check_orthogonal(name, y.detach())
        first = field(t, y) if slope is None else slope
        generator = y.detach().mT @ first.detach()
    else:
        raise OptionError(
            f"'{name}' needs a field that rotates: Rotating(generator), or any dY/dt = Y b on "
            f"orthogonal matrices (…, n, n), got {name_of(function)} on a state {tuple(y.shape)}. "
            "Write it as undamped.ode.Rotating(lambda t, y: b) with a skew b, or choose a method "
            "for any field, such as 'dopri5'."
        )
    if not _small(generator + generator.mT, generator):
        raise OptionError(
            f"'{name}' needs a field dY/dt = Y b with a skew b, so that it only rotates, got one "
            "that stretches. Use the skew part (b − bᵀ)/2, or a method for any field, such as "
            "'dopri5'."
        )


def _fitting(generator: Tensor, y: Tensor) -> Tensor:
    """Return a generator, if it can rotate the rows of a state."""
    size = y.shape[-1]
    if generator.shape[-2:] != (size, size) or generator.dim() > y.dim() + 1:
        raise ShapeError(
            f"The generator of a Rotating field must have shape (…, {size}, {size}) for a state "
            f"{tuple(y.shape)}, got {tuple(generator.shape)}. It multiplies rows of the state from "
            "the right."
        )
    return generator


def _check_orthogonal(name: str, y: Tensor) -> None:
    eye = torch.eye(y.shape[-1], dtype=y.dtype, device=y.device)
    if not _small(y.mT @ y - eye, eye):
        raise OptionError(
            f"y0 of '{name}' must hold orthogonal matrices, YᵀY = I, for a field that is not "
            "Rotating. Start from torch.linalg.qr(y0).Q, or write the field as "
            "undamped.ode.Rotating(generator), which rotates any rows."
        )


def _small(part: Tensor, reference: Tensor) -> bool:
    if inside_transform():
        return True  # where values cannot be read
    allowed = ROUNDING * reference.shape[-1] * torch.finfo(reference.dtype).eps
    return bool(part.abs().amax() <= allowed * reference.abs().amax().clamp_min(1.0))


def name_of(function: Any) -> str:
    """Return the name of a function, or of the class of an object."""
    return getattr(function, "__name__", type(function).__name__)


class LieMethod(Solver):
    """A method whose steps are rotations Y' = Y exp(Ω), Ω skew: YᵀY is conserved to rounding.

    Reference:
        A. Iserles, H. Munthe-Kaas, S. Nørsett, A. Zanna. Lie-group methods. Acta Numerica 9
        (2000).
    """

    rotates = True

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Refuse a field that does not rotate, before the first step."""
        check_rotating(self.name, field, stage_times(t, 0.0, (0.0,), y)[0], y, first)
        return super().stepper(field, t, y, first)


def commutator(a: Tensor, b: Tensor) -> Tensor:
    """Return ab − ba; of skew matrices it is skew."""
    product = a @ b
    return product - product.mT


def cayley(b: Tensor) -> Tensor:
    """Return (I − b/2)⁻¹(I + b/2), the rotation near exp(b), for a skew b."""
    eye = torch.eye(b.shape[-1], dtype=b.dtype, device=b.device)
    return torch.linalg.solve(eye - b / 2, eye + b / 2)


@register_solver("lie-euler")
class LieEuler(LieMethod):
    """Lie–Euler: a rotation by the generator at the start.

    Equation:
        Y' = Y exp(h b(t, Y))
    """

    order = 1

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        y = state[0]
        b = generator_of(field, stage_times(t, h, (0.0,), y)[0], y)
        return (rotated(y, skew_exponential(h * b)),), None


@register_solver("lie-midpoint")
class LieMidpoint(LieMethod):
    """Lie midpoint: a rotation by the generator half-way, after half a Lie–Euler step.

    Equation:
        Y' = Y exp(h b(t + h/2, Y exp(h/2 b(t, Y))))
    """

    order = 2

    def turn(self, b: Tensor) -> Tensor:
        """Return the rotation that a generator, times a step size, stands for."""
        return skew_exponential(b)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Rotate half-way to evaluate the generator there, then rotate."""
        y = state[0]
        start, middle = stage_times(t, h, (0.0, 0.5), y)
        half = rotated(y, self.turn((h / 2) * generator_of(field, start, y)))
        return (rotated(y, self.turn(h * generator_of(field, middle, half))),), None


@register_solver("cayley")
class Cayley(LieMidpoint):
    """The midpoint rule with Cayley transforms: linear systems in place of exponentials.

    Equation:
        Y' = Y cay(h b(t + h/2, Y cay(h/2 b(t, Y)))),  cay(b) = (I − b/2)⁻¹(I + b/2)
    """

    def turn(self, b: Tensor) -> Tensor:
        """Return the Cayley transform, which is exp(b) up to b³/12."""
        return cayley(b)


@register_solver("rkmk4")
class RKMK4(LieMethod):
    """Runge–Kutta–Munthe-Kaas of order four: the classical method on Ω, where Y' = Y exp(Ω).

    Equation:
        Ω̇ = b + ½[Ω, b] + 1/12 [Ω, [Ω, b]],  b at (t, Y exp Ω)

    Reference:
        H. Munthe-Kaas. High order Runge–Kutta methods on manifolds. Applied Numerical
        Mathematics 29 (1999).
    """

    order = 4

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Take the four stages in the Lie algebra, then rotate."""
        y = state[0]
        start, middle, end = stage_times(t, h, (0.0, 0.5, 1.0), y)

        def slope(time: Any, omega: Tensor) -> Tensor:
            b = generator_of(field, time, rotated(y, skew_exponential(omega)))
            inner = commutator(omega, b)
            return b + inner / 2 + commutator(omega, inner) / 12

        first = generator_of(field, start, y)
        second = slope(middle, (h / 2) * first)
        third = slope(middle, (h / 2) * second)
        fourth = slope(end, h * third)
        omega = (h / 6) * (first + 2 * second + 2 * third + fourth)
        return (rotated(y, skew_exponential(omega)),), None


GAUSS = 0.5 - math.sqrt(3) / 6, 0.5 + math.sqrt(3) / 6


@register_solver("magnus4")
class Magnus4(LieMethod):
    """Magnus' series with two Gauss points: one exponential a step, for `LinearRotating` fields.

    Equation:
        Y' = Y exp(h/2 (b₁ + b₂) + √3 h²/12 [b₁, b₂]),  b₁, b₂ at t + (½ ∓ √3/6) h

    Symbols:
        The bracket has the other sign where the generator stands left of the state.

    Reference:
        A. Iserles, S. Nørsett. On the solution of linear differential equations in Lie groups.
        Philosophical Transactions A 357 (1999).
    """

    order = 4
    symmetric = True
    reversible = True
    linear = True

    def stepper(self, field: Field, t: Number, y: Tensor, first: Tensor | None) -> Stepper:
        """Refuse a field whose generator may depend on the state."""
        function = field.function if isinstance(field, CountedField) else field
        if not isinstance(function, LinearRotating):
            raise OptionError(
                f"'{self.name}' needs a LinearRotating field, whose generator depends on time "
                f"alone, got {name_of(function)}. Write it as "
                "undamped.ode.LinearRotating(lambda t: b), or choose 'rkmk4', which takes any "
                "generator."
            )
        return super().stepper(field, t, y, first)

    def step(self, field: Field, t: Number, h: Number, state: SolverState) -> StepResult:
        """Rotate by the exponential of two terms of the series."""
        y = state[0]
        first, second = (generator_of(field, time, y) for time in stage_times(t, h, GAUSS, y))
        omega = (h / 2) * (first + second) + (math.sqrt(3) * h * h / 12) * commutator(first, second)
        return (rotated(y, skew_exponential(omega)),), None
