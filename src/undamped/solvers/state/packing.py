"""One tensor inside, whatever the user has: a tensor, or a tuple of tensors of any shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.errors import ShapeError, explain

Value = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True)
class Packing:
    """How a user's state became one tensor.

    A tuple whose members share their first dimension becomes (batch, features), so that samples
    stay rows; any other tuple becomes one flat vector. A single tensor stays as it is.
    """

    shapes: tuple[torch.Size, ...]
    single: bool
    batched: bool

    @classmethod
    def of(cls, value: Value) -> Packing:
        """Read the packing off a state."""
        members = (value,) if isinstance(value, Tensor) else value
        if not isinstance(members, tuple | list) or not members:
            raise _not_a_state(value)
        for member in members:
            if not isinstance(member, Tensor) or not member.is_floating_point():
                raise _not_a_state(member)
        if isinstance(value, Tensor):
            return cls((value.shape,), True, value.dim() > 1)
        shapes = tuple(member.shape for member in value)
        leading = {shape[:1] for shape in shapes}
        return cls(shapes, False, len(leading) == 1 and len(shapes[0]) > 0)

    def pack(self, value: Any, what: str = "the field") -> Tensor:
        """Turn what a user returned into the one tensor, checking its shape."""
        if self.single:
            self.check(value, self.shapes[0], what)
            return value
        if not isinstance(value, tuple | list) or not all(isinstance(m, Tensor) for m in value):
            raise self._wrong(value, what)
        if [member.shape for member in value] != list(self.shapes):
            raise self._wrong(value, what)
        if self.batched:
            return torch.cat(
                [
                    member.flatten(1) if member.dim() > 1 else member.unsqueeze(1)
                    for member in value
                ],
                dim=1,
            )
        return torch.cat([member.reshape(-1) for member in value])

    def unpack(self, packed: Tensor) -> Any:
        """Turn the one tensor, possibly with leading time, back into the user's form."""
        if self.single:
            return packed
        lead = packed.shape[: packed.dim() - (2 if self.batched else 1)]
        sizes = [math.prod(s[1:]) if self.batched else math.prod(s) for s in self.shapes]
        parts = packed.split(sizes, dim=-1)
        return tuple(
            part.reshape((*lead, *shape)) for part, shape in zip(parts, self.shapes, strict=True)
        )

    def check(self, value: Any, shape: torch.Size, what: str = "the field") -> None:
        """Refuse what is not a tensor of a shape."""
        if not isinstance(value, Tensor) or value.shape != shape:
            raise self._wrong(value, what)

    def check_type(self, value: Tensor, y: Tensor) -> None:
        """Refuse a slope of another type than the state; mixed precision may make it shorter."""
        mixed = torch.is_autocast_enabled(y.device.type) and value.is_floating_point()
        if value.dtype == y.dtype or mixed:
            return
        raise ShapeError(
            explain(
                "value of the field",
                expected=f"numbers of the type of the state, {_name(y.dtype)}",
                got=_name(value.dtype),
                remedy="Give field and start the same type, with .to(…).",
            )
        )

    def _wrong(self, value: Any, what: str) -> ShapeError:
        def show(v: Any) -> str:
            if isinstance(v, Tensor):
                return str(tuple(v.shape))
            if isinstance(v, tuple | list):
                return "(" + ", ".join(show(m) for m in v) + ")"
            return f"a {type(v).__name__}"

        expected = ", ".join(str(tuple(shape)) for shape in self.shapes)
        return ShapeError(
            explain(
                f"value of {what}",
                expected=f"the shape of the state, {expected}",
                got=show(value),
                remedy="A field returns dy/dt, one number for every number of the state.",
            )
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _not_a_state(value: Any) -> ShapeError:
    got = f"a {type(value).__name__}"
    if isinstance(value, Tensor):
        got = f"a tensor of {_name(value.dtype)}"
    elif isinstance(value, tuple | list):
        got = f"an empty {type(value).__name__}"
    return ShapeError(
        explain(
            "the start y0",
            expected="a tensor of real floating-point numbers, or a tuple of such",
            got=got,
            remedy="Make it one with torch.as_tensor(…).float(); a complex state is two real ones.",
        )
    )
