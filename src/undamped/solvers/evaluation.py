"""Calling the field: counted, packed, and asked once which tensors its value depends on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from undamped.errors import NonFiniteError, OptionError, explain
from undamped.solvers.packing import Packing


class CountedField:
    """A user's field on packed states, with a count of its evaluations.

    Args:
        function: f(t, y), on the user's form of the state.
        packing: How that form became one tensor.
    """

    def __init__(self, function: Callable[..., Any], packing: Packing) -> None:
        self.function = function
        self.packing = packing
        self.count = 0
        # The common case, one tensor, must cost nothing beyond the call.
        self.plain = packing.single

    def __call__(self, t: Any, y: Tensor) -> Tensor:
        """Evaluate the field on a packed state."""
        self.count += 1
        if self.plain:
            return self.function(t, y)
        return self.packing.pack(self.function(t, self.packing.unpack(y)))

    def first(self, t: Tensor, y: Tensor) -> Tensor:
        """Evaluate for the first time in a solve, checking shape and finiteness."""
        value = self(t, y)
        if self.plain:
            value = self.packing.pack(value)
        if not all_finite(value):
            where = _first_bad_sample(value, self.packing)
            raise NonFiniteError(
                explain(
                    f"the field at the start, t = {_mean_time(t):.6g}{where}",
                    expected="finite numbers",
                    got="NaN or infinity",
                    remedy="Look at the initial state and at logarithms, roots and divisions in "
                    "the field.",
                )
            )
        return value


def all_finite(value: Tensor) -> bool:
    """Whether all numbers are finite; one pass where they are."""
    value = value.detach()
    # What is not finite makes the sum so. The sum of huge numbers may be infinite by itself.
    return math.isfinite(value.sum().item()) or bool(torch.isfinite(value).all())


def _mean_time(t: Tensor) -> float:
    return float(t.detach().double().mean())


def _first_bad_sample(value: Tensor, packing: Packing) -> str:
    if not packing.batched:
        return ""
    bad = ~torch.isfinite(value).flatten(1).all(1)
    return f", sample {int(bad.nonzero()[0])}"


def dependencies(
    function: Callable[..., Any], given: Iterable[Tensor], value: Tensor, start: int
) -> list[Tensor]:
    """Return every tensor other than the state that a gradient has to reach.

    Args:
        function: The user's field; a module brings its parameters.
        given: Tensors the user named.
        value: f(t, y), evaluated with gradients on a state that is a leaf.
        start: Number of the first autograd node that belongs to that evaluation.
    """
    named = [tensor for tensor in given if tensor.requires_grad]
    if isinstance(function, nn.Module):
        named += [parameter for parameter in function.parameters() if parameter.requires_grad]
    extra = getattr(function, "context_tensors", None)
    if extra is not None:
        named += [tensor for tensor in extra() if tensor.requires_grad]
    known = {id(tensor): tensor for tensor in named}
    stopped = {id(t.grad_fn) for t in named if t.grad_fn is not None}
    seen: set[int] = set()
    waiting = [] if value.grad_fn is None else [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or id(node) in stopped:
            continue
        seen.add(id(node))
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            known.setdefault(id(leaf), leaf)
        elif node._sequence_nr() < start:
            raise OptionError(
                "parameters: expected every tensor the field depends on, got a field that uses "
                "one computed earlier and not named. Pass it in `parameters=[...]`, or choose "
                "gradient='backprop'."
            )
        waiting.extend(before for before, _ in node.next_functions if before is not None)
    return list(known.values())
