"""Phase space: positions and momenta in one state, and fields that come in two halves.

The last dimension of a state holds positions first, momenta second, in equal numbers; a tuple
(q, p) of equal shapes (batch, features) is packed that way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import ShapeError
from undamped.ode.field import CountedField
from undamped.ode.methods.solver import Field


class Separable(nn.Module):
    """A field in two halves: dq/dt = velocity(t, p) and dp/dt = force(t, q).

    Symplectic methods then evaluate only the half they need. So they do for any field that says
    `separable` of itself and has these two methods, as the separable ones of
    `undamped.models.physics.fields` do.

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
    """Return the field's own halves, where using them means the same as the whole."""
    function = field.function if isinstance(field, CountedField) else field
    if not getattr(function, "separable", False):
        return None
    if isinstance(field, CountedField) and not field.packing.single:
        shapes = field.packing.shapes
        if not (field.packing.batched and len(shapes) == 2 and len(shapes[0]) == 2):
            return None
    return function


def has_halves(field: Field) -> bool:
    """Whether kicks depend on positions alone, and drifts on momenta alone."""
    return _halves(field) is not None


def drift(field: Field, t: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """Return dq/dt."""
    halves = _halves(field)
    if halves is None:
        return split(field(t, torch.cat((q, p), dim=-1)))[0]
    _count(field)
    return halves.velocity(t, p)


def kick(field: Field, t: Tensor, q: Tensor, p: Tensor) -> Tensor:
    """Return dp/dt."""
    halves = _halves(field)
    if halves is None:
        return split(field(t, torch.cat((q, p), dim=-1)))[1]
    _count(field)
    return halves.force(t, q)


def _count(field: Field) -> None:
    if isinstance(field, CountedField):
        field.count += 1
