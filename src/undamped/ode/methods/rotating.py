"""Fields that only turn: dY/dt = Y b(t, Y) with b skew, and what Lie-group methods ask of them.

The last dimension of a state is what is turned: the rows of an orthogonal matrix all alike, or
every vector of a batch, by one rotation for all or one for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped.kernels.dispatch import inside_transform
from undamped.ode.field import CountedField
from undamped.ode.loop.route import inside
from undamped.ode.methods.solver import Field

ROUNDING = 100.0
"""How many roundings a matrix that is meant to be skew or orthogonal may be away from that."""


class Rotating(nn.Module):
    """A field whose flow rotates: lengths of rows, and angles between those turned alike, are kept.

    Equation:
        Ẏ = Y b(t, Y),  bᵀ = −b

    Args:
        generator: b, called with (t, Y): (n, n) where all rows turn alike, or one for every
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
    """A field that turns whatever it meets by the same rotation: b depends on time alone.

    Equation:
        Ẏ = Y b(t),  bᵀ = −b

    Args:
        generator: b, called with t alone, (n, n).

    Example:
        >>> spin = LinearRotating(lambda t: t * torch.tensor([[0.0, 1.0], [-1.0, 0.0]]))
    """

    def generator(self, t: Any, y: Tensor) -> Tensor:
        """Return b."""
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
    """Return b at a time and state, from the field's own generator or from Yᵀ dY/dt.

    Args:
        field: The field of a solve, or one by itself.
        t: When.
        y: Where.
    """
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
    """Refuse what a Lie-group method cannot turn.

    Args:
        name: The method.
        field: The field of the solve.
        t: Time at the start.
        y: State at the start.
        slope: The field there, where it is known.
    """
    function = field.function if isinstance(field, CountedField) else field
    if isinstance(field, CountedField) and not (
        field.packing.single and not field.packing.types[0].is_complex
    ):
        raise ShapeError(
            f"y0 of '{name}' must be one real tensor whose rows are rotated, got "
            f"{'complex numbers' if field.packing.single else 'a tuple'}. Solve members of a tuple "
            "one by one, or choose another method."
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
            f"orthogonal matrices (…, n, n), got {_called(function)} on a state {tuple(y.shape)}. "
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
    """Return a generator, if it can turn the rows of a state."""
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


def _called(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)
