"""The graph of a step: nodes with shapes, and affine indices into them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

Kind = Literal["input", "constant", "map", "view", "reduce", "product", "concat"]


@dataclass(frozen=True)
class Index:
    """An affine function of loop variables: Σ factor · variable + offset.

    Args:
        terms: Variable, its number of values, and its factor, sorted by variable. A variable may
            be a C expression in parentheses.
        offset: The constant term.
    """

    terms: tuple[tuple[str, int, int], ...] = ()
    offset: int = 0

    @classmethod
    def variable(cls, name: str, extent: int) -> Index:
        """Return the index of a loop with `extent` iterations."""
        return cls(((name, extent, 1),)) if extent > 1 else cls()

    def __add__(self, addend: Index | int) -> Index:
        if isinstance(addend, int):
            return Index(self.terms, self.offset + addend)
        factors: dict[tuple[str, int], int] = {}
        for name, extent, factor in (*self.terms, *addend.terms):
            factors[name, extent] = factors.get((name, extent), 0) + factor
        terms = sorted((name, extent, f) for (name, extent), f in factors.items() if f)
        return Index(tuple(terms), self.offset + addend.offset)

    def __mul__(self, factor: int) -> Index:
        terms = tuple((n, e, f * factor) for n, e, f in self.terms) if factor else ()
        return Index(terms, self.offset * factor)

    def divmod(self, divisor: int) -> tuple[Index, Index]:
        """Return quotient and remainder; they are affine where the terms allow it."""
        multiple = Index(
            tuple((n, e, f // divisor) for n, e, f in self.terms if f % divisor == 0),
            self.offset // divisor,
        )
        rest = Index(tuple(t for t in self.terms if t[2] % divisor), self.offset % divisor)
        if all(f > 0 for _, _, f in rest.terms) and rest.maximum < divisor:
            return multiple, rest
        text, extent = self.text(), self.maximum + 1
        quotient = Index.variable(f"(({text}) / {divisor})", math.ceil(extent / divisor))
        return quotient, Index.variable(f"(({text}) % {divisor})", divisor)

    @property
    def maximum(self) -> int:
        """The largest value, for factors that are not negative."""
        return self.offset + sum((extent - 1) * factor for _, extent, factor in self.terms)

    def text(self) -> str:
        """Return the index as a C expression."""
        parts = [name if factor == 1 else f"{factor} * {name}" for name, _, factor in self.terms]
        if self.offset or not parts:
            parts.append(str(self.offset))
        return " + ".join(parts)


Indices = tuple[Index, ...]


@dataclass(eq=False)
class Node:
    """A tensor of the step.

    Args:
        kind: How it is computed.
        shape: Its shape.
        dtype: Its type.
        args: The tensors from which it is computed.
        operator: The elementwise operation, or the kind of reduction.
        detail: A constant tensor, the function of indices of a view, dimensions of a reduction, the
            name of an input, or the dimension of a concatenation.
    """

    kind: Kind
    shape: tuple[int, ...]
    dtype: torch.dtype
    args: tuple[Node, ...] = ()
    operator: str = ""
    detail: Any = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def flat(self, indices: Sequence[Index]) -> Index:
        """Return the position of an element in contiguous memory."""
        total = Index()
        for index, stride in zip(indices, strides(self.shape), strict=True):
            total += index * stride
        return total


def strides(shape: Sequence[int]) -> list[int]:
    """Return the strides of a contiguous tensor."""
    return [math.prod(shape[at + 1 :]) for at in range(len(shape))]


def unflatten(position: Index, shape: Sequence[int]) -> Indices:
    """Return the indices of an element of a contiguous tensor by its position."""
    indices = []
    for stride, size in zip(strides(shape), shape, strict=True):
        index, position = position.divmod(stride) if stride > 1 else (position, Index())
        indices.append(index if size > 1 else Index())
    return tuple(indices)


def view(base: Node, shape: Sequence[int], indices: Callable[[Indices], Indices]) -> Node:
    """Return a view of a tensor; `indices` maps its indices to those of the base."""
    return Node("view", tuple(shape), base.dtype, (base,), detail=indices)


def reshape(base: Node, shape: Sequence[int]) -> Node:
    """Return a tensor in another shape."""
    shape = tuple(shape)
    if shape == base.shape:
        return base
    new, old = ([at for at, n in enumerate(s) if n > 1] for s in (shape, base.shape))
    if [shape[at] for at in new] == [base.shape[at] for at in old]:  # only dimensions of size 1
        pairs = dict(zip(old, new, strict=True))

        def same(indices: Indices) -> Indices:
            return tuple(
                indices[pairs[at]] if at in pairs else Index() for at in range(len(base.shape))
            )

        return view(base, shape, same)
    like = Node("input", shape, base.dtype)
    return view(base, shape, lambda indices: unflatten(like.flat(indices), base.shape))


def align(indices: Indices, shape: Sequence[int]) -> Indices:
    """Return the indices of a tensor that is broadcast to a larger shape."""
    last = indices[len(indices) - len(shape) :]
    return tuple(index if size > 1 else Index() for index, size in zip(last, shape, strict=True))
