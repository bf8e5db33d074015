"""One real tensor inside, whatever the user has: a tensor, or a tuple of tensors of any shapes.

States in half precision are carried in float32 from step to step, since a step adds little to
much; complex numbers are carried as pairs. The field always sees what the user has.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, shortened
from undamped._base.options import NonNegativeFloat, convert

Value = Tensor | tuple[Tensor, ...]


class Part(NamedTuple):
    """A member in the last dimension of the one tensor.

    Args:
        low: Where it begins.
        high: Where it ends.
        reals: Real numbers that one of its numbers takes.
    """

    low: int
    high: int
    reals: int


@dataclass(frozen=True)
class Packing:
    """How a user's state became one tensor.

    A tuple whose members share their first dimension becomes (batch, features), so that samples
    stay rows; any other tuple becomes one flat vector. A single tensor stays as it is.
    """

    shapes: tuple[torch.Size, ...]
    single: bool
    batched: bool
    types: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, value: Value) -> Packing:
        """Read the packing off a state."""
        members = (value,) if isinstance(value, Tensor) else value
        if not isinstance(members, tuple | list) or not members:
            raise _not_a_state(value)
        for member in members:
            if not isinstance(member, Tensor) or not (
                member.is_floating_point() or member.is_complex()
            ):
                raise _not_a_state(member, inside=member is not value)
            if member.is_meta:
                raise _no_numbers()
        types = tuple(member.dtype for member in members)
        if isinstance(value, Tensor):
            return cls((value.shape,), True, value.dim() > 1, types)
        shapes = tuple(member.shape for member in members)
        leading = {shape[:1] for shape in shapes}
        return cls(shapes, False, len(leading) == 1 and len(shapes[0]) > 0, types)

    @cached_property
    def inner(self) -> torch.dtype:
        """The type of the one tensor."""
        widest = torch.float32
        for kind in self.types:
            widest = torch.promote_types(widest, _real(kind))
        return widest

    @cached_property
    def exact(self) -> bool:
        """Whether every member has the type of the one tensor already."""
        return all(kind == self.inner for kind in self.types)

    @cached_property
    def parts(self) -> tuple[Part, ...] | None:
        """Where the members lie in the last dimension of the one tensor; None for a real one."""
        pairs = [2 if kind.is_complex else 1 for kind in self.types]
        if self.single:
            return (Part(0, 2, 2),) if pairs == [2] else None
        ends = itertools.accumulate(self._sizes)
        members = zip(self._sizes, ends, pairs, strict=True)
        sections = tuple(Part(end - size, end, reals) for size, end, reals in members if size)
        return sections if len(sections) > 1 or max(pairs) > 1 else None

    @cached_property
    def _sizes(self) -> list[int]:
        doubled = [2 if kind.is_complex else 1 for kind in self.types]
        shapes = [shape[1:] if self.batched else shape for shape in self.shapes]
        return [math.prod(shape) * two for shape, two in zip(shapes, doubled, strict=True)]

    def pack(self, value: Any, what: str = "the field") -> Tensor:
        """Turn what a user returned into the one tensor, checking its shape."""
        if self.single:
            self.check(value, self.shapes[0], what)
            return value if self.exact else self._inwards(value, self.types[0])
        if not isinstance(value, tuple | list) or not all(isinstance(m, Tensor) for m in value):
            raise self._wrong(value, what)
        if [member.shape for member in value] != list(self.shapes):
            raise self._wrong(value, what)
        if not self.exact:
            value = [
                self._inwards(member, kind) for member, kind in zip(value, self.types, strict=True)
            ]
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
            return packed if self.exact else _outwards(packed, self.types[0])
        lead = packed.shape[: packed.dim() - (2 if self.batched else 1)]
        parts = packed.split(self._sizes, dim=-1)
        if self.exact:
            return tuple(
                part.reshape((*lead, *shape))
                for part, shape in zip(parts, self.shapes, strict=True)
            )
        return tuple(
            _outwards(part.reshape((*lead, *shape, *((2,) if kind.is_complex else ()))), kind)
            for part, shape, kind in zip(parts, self.shapes, self.types, strict=True)
        )

    def time(self, t: Any) -> Any:
        """Turn a time as the steps have it into one as a user's field expects it."""
        if self.exact or not isinstance(t, Tensor):
            return t
        if self.single and t.dim():
            t = t.reshape(-1, *(1,) * (len(self.shapes[0]) - 1))
        real = {_real(kind) for kind in self.types}
        return t.to(real.pop()) if len(real) == 1 else t

    def tolerance(self, value: Any, name: str, like: Tensor) -> float | Tensor:
        """Return a tolerance: one for all, or one for every number of the packed state.

        Args:
            value: A number, a tensor that broadcasts to the state, or one of these for every
                member of a tuple.
            name: What it is called.
            like: The packed state.
        """
        if isinstance(value, Tensor) and value.dim() == 0:
            value = value.item()
        if not isinstance(value, Tensor | tuple | list):
            return convert(NonNegativeFloat, value, name)
        members = [value] if self.single else list(value)
        if len(members) != len(self.shapes):
            raise self._not_a_tolerance(name, f"{len(members)} for {len(self.shapes)} members")
        tolerances = []
        for member, shape, kind in zip(members, self.shapes, self.types, strict=True):
            try:
                part = torch.as_tensor(member, dtype=like.dtype, device=like.device).detach()
                part = part.expand(shape)
            except (RuntimeError, TypeError, ValueError):
                got = f"shape {tuple(member.shape)}" if isinstance(member, Tensor) else member
                raise self._not_a_tolerance(name, got) from None
            if not bool((part >= 0).all()):
                raise self._not_a_tolerance(name, "negative numbers or NaN")
            tolerances.append(part.unsqueeze(-1).expand(*shape, 2) if kind.is_complex else part)
        if self.single:
            return tolerances[0]
        shapes = tuple(part.shape for part in tolerances)
        plain = Packing(shapes, False, self.batched, (like.dtype,) * len(tolerances))
        return plain.pack(tuple(tolerances), name)

    def check(self, value: Any, shape: torch.Size, what: str = "the field") -> None:
        """Refuse what is not a tensor of a shape."""
        if not isinstance(value, Tensor) or value.shape != shape:
            raise self._wrong(value, what)

    def check_type(self, value: Tensor, y: Tensor) -> None:
        """Refuse a slope of another type than the state; mixed precision may make it shorter."""
        mixed = torch.is_autocast_enabled(y.device.type) and value.is_floating_point()
        if value.dtype != y.dtype and not mixed:
            raise _wrong_type(value.dtype, y.dtype)

    def _inwards(self, member: Tensor, kind: torch.dtype) -> Tensor:
        mixed = torch.is_autocast_enabled(member.device.type) and member.is_floating_point()
        if member.dtype != kind and not mixed and _real(kind) != member.dtype:
            raise _wrong_type(member.dtype, kind)
        if kind.is_complex:
            number = member if member.is_complex() else torch.complex(member, member * 0)
            member = torch.view_as_real(number.resolve_conj())
        return member.to(self.inner)

    def _not_a_tolerance(self, name: str, got: object) -> OptionError:
        expected = ", ".join(str(tuple(shape)) for shape in self.shapes)
        return OptionError(
            f"{name} must be a number ≥ 0, or a tensor of these that broadcasts to {expected}, got "
            f"{shortened(got)}. For a tuple give one per member."
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
            f"The value of {what} must have the shape of the state, {expected}, got {show(value)}."
        )


def _real(kind: torch.dtype) -> torch.dtype:
    return kind.to_real() if kind.is_complex else kind


def _outwards(part: Tensor, kind: torch.dtype) -> Tensor:
    if kind.is_complex:
        part = torch.view_as_complex(part.contiguous())
    return part.to(kind)


def type_name(dtype: torch.dtype) -> str:
    """Return what a type of numbers is called."""
    return str(dtype).removeprefix("torch.")


def _wrong_type(got: torch.dtype, expected: torch.dtype) -> ShapeError:
    return ShapeError(
        f"The value of the field must have the type of the state, {type_name(expected)}, got "
        f"{type_name(got)}. Convert the field or y0 with .to(…)."
    )


def _no_numbers() -> ShapeError:
    return ShapeError(
        "y0 is on 'meta' and has no values, which decide about the steps. Make one with "
        "torch.zeros(y0.shape) on the device of the field."
    )


def _not_a_state(value: Any, *, inside: bool = False) -> ShapeError:
    got, remedy = f"a {type(value).__name__}", "Make it one with torch.as_tensor(…).float()."
    if isinstance(value, Tensor):
        got = f"a tensor of {type_name(value.dtype)}"
    elif isinstance(value, tuple | list) and inside:
        got = f"a {type(value).__name__} inside it"
        remedy = "Give the members of the inner one beside the others."
    elif isinstance(value, tuple | list):
        got = f"an empty {type(value).__name__}"
    return ShapeError(
        f"y0 must be a floating-point tensor or a tuple of such tensors, got {got}. {remedy}"
    )
