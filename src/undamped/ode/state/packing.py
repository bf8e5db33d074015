"""One real tensor inside a solve, whatever the user has: a tensor, or a tuple of tensors.

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


class Part(NamedTuple):
    """A tensor of a tuple in the last dimension of the packed tensor, from `low` to `high`.

    `reals` is the number of reals that one of its numbers takes.
    """

    low: int
    high: int
    reals: int


@dataclass(frozen=True)
class Packing:
    """How a user's state became one tensor.

    A tuple whose tensors share their first dimension becomes (batch, features), so that samples
    stay rows; any other tuple becomes one flat vector. A single tensor stays as it is.
    """

    shapes: tuple[torch.Size, ...]
    single: bool
    batched: bool
    types: tuple[torch.dtype, ...]

    @classmethod
    def of(cls, value: Any) -> Packing:
        """Return the packing of a state."""
        tensors = (value,) if isinstance(value, Tensor) else value
        if not isinstance(tensors, tuple | list) or not tensors:
            raise _not_a_state(value)
        for x in tensors:
            if not isinstance(x, Tensor) or not (x.is_floating_point() or x.is_complex()):
                raise _not_a_state(x, inside=x is not value)
            if x.is_meta:
                raise ShapeError(
                    "y0 is on 'meta' and has no values, which decide about the steps. Make one "
                    "with torch.zeros(y0.shape) on the device of the field."
                )
        types = tuple(x.dtype for x in tensors)
        if isinstance(value, Tensor):
            return cls((value.shape,), True, value.dim() > 1, types)
        shapes = tuple(x.shape for x in tensors)
        leading = {shape[:1] for shape in shapes}
        return cls(shapes, False, len(leading) == 1 and len(shapes[0]) > 0, types)

    @cached_property
    def inner(self) -> torch.dtype:
        """The type of the packed tensor."""
        widest = torch.float32
        for kind in self.types:
            widest = torch.promote_types(widest, _real(kind))
        return widest

    @cached_property
    def exact(self) -> bool:
        """Whether every tensor has the type of the packed tensor."""
        return all(kind == self.inner for kind in self.types)

    @cached_property
    def parts(self) -> tuple[Part, ...] | None:
        """Where the tensors lie in the last dimension of the packed one; None for a real one."""
        pairs = [2 if kind.is_complex else 1 for kind in self.types]
        if self.single:
            return (Part(0, 2, 2),) if pairs == [2] else None
        sections = zip(self._sizes, itertools.accumulate(self._sizes), pairs, strict=True)
        parts = tuple(Part(end - size, end, reals) for size, end, reals in sections if size)
        return parts if len(parts) > 1 or max(pairs) > 1 else None

    @cached_property
    def _sizes(self) -> list[int]:
        shapes = [shape[1:] if self.batched else shape for shape in self.shapes]
        pairs = zip(shapes, self.types, strict=True)
        return [math.prod(shape) * (2 if kind.is_complex else 1) for shape, kind in pairs]

    def pack(self, value: Any, what: str = "the field") -> Tensor:
        """Return the packed tensor of a user's value, checking its shape."""
        if self.single:
            self.check(value, self.shapes[0], what)
            return value if self.exact else self._inwards(value, self.types[0])
        if not isinstance(value, tuple | list) or not all(isinstance(x, Tensor) for x in value):
            raise self._wrong(value, what)
        if [x.shape for x in value] != list(self.shapes):
            raise self._wrong(value, what)
        if not self.exact:
            value = [self._inwards(x, kind) for x, kind in zip(value, self.types, strict=True)]
        if self.batched:
            rows = [x.flatten(1) if x.dim() > 1 else x.unsqueeze(1) for x in value]
            return torch.cat(rows, dim=1)
        return torch.cat([x.reshape(-1) for x in value])

    def unpack(self, packed: Tensor) -> Any:
        """Return the packed tensor, possibly with leading time, in the user's form."""
        if self.single:
            return packed if self.exact else _outwards(packed, self.types[0])
        lead = packed.shape[: packed.dim() - (2 if self.batched else 1)]
        parts = packed.split(self._sizes, dim=-1)
        if self.exact:
            pairs = zip(parts, self.shapes, strict=True)
            return tuple(part.reshape((*lead, *shape)) for part, shape in pairs)
        return tuple(
            _outwards(part.reshape((*lead, *shape, *((2,) if kind.is_complex else ()))), kind)
            for part, shape, kind in zip(parts, self.shapes, self.types, strict=True)
        )

    def time(self, t: Any) -> Any:
        """Return a time of a step as the user's field expects it."""
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
                tensor of a tuple.
            name: Name of the option.
            like: The packed state.
        """
        if isinstance(value, Tensor) and value.dim() == 0:
            value = value.item()
        if not isinstance(value, Tensor | tuple | list):
            return convert(NonNegativeFloat, value, name)
        values = [value] if self.single else list(value)
        if len(values) != len(self.shapes):
            raise self._not_a_tolerance(name, f"{len(values)} for {len(self.shapes)} tensors")
        tolerances = []
        for x, shape, kind in zip(values, self.shapes, self.types, strict=True):
            try:
                part = torch.as_tensor(x, dtype=like.dtype, device=like.device).detach()
                part = part.expand(shape)
            except (RuntimeError, TypeError, ValueError):
                got = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else x
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
        """Refuse a value that is not a tensor of a shape."""
        if not isinstance(value, Tensor) or value.shape != shape:
            raise self._wrong(value, what)

    def check_type(self, value: Tensor, y: Tensor) -> None:
        """Refuse a slope of another type than the state; mixed precision may make it shorter."""
        if value.dtype != y.dtype and not _mixed(value):
            raise _wrong_type(value.dtype, y.dtype)

    def _inwards(self, x: Tensor, kind: torch.dtype) -> Tensor:
        if x.dtype != kind and not _mixed(x) and _real(kind) != x.dtype:
            raise _wrong_type(x.dtype, kind)
        if kind.is_complex:
            number = x if x.is_complex() else torch.complex(x, x * 0)
            x = torch.view_as_real(number.resolve_conj())
        return x.to(self.inner)

    def _not_a_tolerance(self, name: str, got: object) -> OptionError:
        expected = ", ".join(str(tuple(shape)) for shape in self.shapes)
        return OptionError(
            f"{name} must be a number ≥ 0, or a tensor of these that broadcasts to {expected}, got "
            f"{shortened(got)}. For a tuple give one per tensor."
        )

    def _wrong(self, value: Any, what: str) -> ShapeError:
        def show(v: Any) -> str:
            if isinstance(v, Tensor):
                return str(tuple(v.shape))
            if isinstance(v, tuple | list):
                return "(" + ", ".join(show(x) for x in v) + ")"
            return f"a {type(v).__name__}"

        expected = ", ".join(str(tuple(shape)) for shape in self.shapes)
        return ShapeError(
            f"The value of {what} must have the shape of the state, {expected}, got {show(value)}."
        )


def _real(kind: torch.dtype) -> torch.dtype:
    return kind.to_real() if kind.is_complex else kind


def _mixed(x: Tensor) -> bool:
    """Whether mixed precision may have chosen the type of a tensor."""
    return torch.is_autocast_enabled(x.device.type) and x.is_floating_point()


def _outwards(part: Tensor, kind: torch.dtype) -> Tensor:
    if kind.is_complex:
        part = torch.view_as_complex(part.contiguous())
    return part.to(kind)


def type_name(dtype: torch.dtype) -> str:
    """Return the name of a type of numbers."""
    return str(dtype).removeprefix("torch.")


def _wrong_type(got: torch.dtype, expected: torch.dtype) -> ShapeError:
    return ShapeError(
        f"The value of the field must have the type of the state, {type_name(expected)}, got "
        f"{type_name(got)}. Convert the field or y0 with .to(…)."
    )


def _not_a_state(value: Any, *, inside: bool = False) -> ShapeError:
    got, remedy = f"a {type(value).__name__}", "Make it one with torch.as_tensor(…).float()."
    if isinstance(value, Tensor):
        got = f"a tensor of {type_name(value.dtype)}"
    elif isinstance(value, tuple | list) and inside:
        got = f"a {type(value).__name__} inside it"
        remedy = "Put the tensors of the inner one into the outer one."
    elif isinstance(value, tuple | list):
        got = f"an empty {type(value).__name__}"
    return ShapeError(
        f"y0 must be a floating-point tensor or a tuple of such tensors, got {got}. {remedy}"
    )
