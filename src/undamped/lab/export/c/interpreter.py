"""Values of the graph of a step in PyTorch, for many sequences at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from undamped.lab.export.c.lower import topological
from undamped.lab.export.c.nodes import Index, Node

LIMIT = 2**31 - 1
"""The largest integer of a fixed-point number; the smallest is its negative."""


def saturate(x: Tensor) -> Tensor:
    """Return integers within the range of fixed-point numbers."""
    return x.clamp(-LIMIT, LIMIT)


def _half(shift: int) -> int:
    return 1 << shift >> 1


def curve(table: Tensor, x: Tensor, low: int, high: int, shift: int) -> Tensor:
    """Return piecewise cubic polynomials of fixed-point numbers."""
    distance = x.clamp(low, high) - low
    rows = table.long().view(-1, 4)[distance >> shift]
    u = (distance & ((1 << shift) - 1)) << (30 - shift)
    y = rows[..., 3]
    for power in (2, 1, 0):
        y = (y * u >> 30) + rows[..., power]
    return y


def _divide(a: Tensor, b: Tensor, shift: int) -> Tensor:
    sign = torch.where(a < 0, -LIMIT, LIMIT)
    quotient = torch.div(a << shift, torch.where(b == 0, 1, b), rounding_mode="trunc")
    return torch.where(b == 0, sign, saturate(quotient))


# The helper functions of the same names in C.
_FIXED: dict[str, Callable[..., Tensor]] = {
    "fixed_add": lambda x, y, a, b, s: saturate(((x << a) + (y << b) + _half(s)) >> s),
    "fixed_sub": lambda x, y, a, b, s: saturate(((x << a) - (y << b) + _half(s)) >> s),
    "fixed_mul": lambda x, y, s: saturate((x * y + _half(s)) >> s),
    "fixed_div": _divide,
    "fixed_right": lambda x, s: (x >> s) + (x >> (s - 1) & 1),
    "fixed_left": lambda x, s: saturate(x << s),
}

_NAMES = (
    *("abs", "add", "bitwise_not", "div", "eq", "exp", "expm1", "floor", "ge", "gt", "isnan"),
    *("le", "log", "log1p", "logical_not", "lt", "maximum", "minimum", "mul", "ne", "neg"),
    *("reciprocal", "relu", "remainder", "round", "rsqrt", "sigmoid", "sign", "sin", "cos"),
    *("sqrt", "sub", "tanh", "where"),
)

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **_FIXED,
    **{name: getattr(torch, name) for name in _NAMES},
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "identity": lambda x: x,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "log_sigmoid": F.logsigmoid,
    "silu": F.silu,
    "softplus": F.softplus,
}
"""Elementwise operations by name."""
_REDUCTIONS = {"sum": torch.sum, "max": torch.amax, "min": torch.amin}


class Interpreter:
    """Computes the results of a graph.

    Args:
        outputs: The nodes of the results.
        observe: Called with every node that is computed or an input, and its values
            (batch, …).
    """

    def __init__(
        self, outputs: Sequence[Node], observe: Callable[[Node, Tensor], None] | None = None
    ) -> None:
        self._outputs, self._observe = outputs, observe
        self._order = topological(list(outputs))
        self._positions = {node: _positions(node) for node in self._order if node.kind == "view"}

    def __call__(self, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """Return the results, (batch, …) each, for inputs (batch, …) by name."""
        values: dict[Node, Tensor] = {}
        for node in self._order:
            values[node] = self._value(node, inputs, [values[arg] for arg in node.args])
            if self._observe is not None and node.kind not in ("constant", "view"):
                self._observe(node, values[node])
        batch = len(next(iter(inputs.values())))
        return [values[node].expand(batch, *node.shape) for node in self._outputs]

    def _value(self, node: Node, inputs: Mapping[str, Tensor], args: list[Tensor]) -> Tensor:
        if node.kind == "input":
            return inputs[node.detail].reshape(-1, *node.shape)
        if node.kind == "constant":
            return _wide(node.detail).unsqueeze(0)
        if node.kind == "view":
            return args[0].flatten(1)[:, self._positions[node]].view(-1, *node.shape)
        if node.kind == "concat":
            batch = max(map(len, args))
            return torch.cat([arg.expand(batch, *arg.shape[1:]) for arg in args], node.detail + 1)
        if node.kind == "product":
            x, weight, *bias = args
            total = x.double() @ weight[0].double().T  # exact also for integers
            total = total if x.dtype.is_floating_point else total.long()
            return total + _aligned(bias[0], node) if bias else total
        if node.kind == "reduce":
            dims = [axis + 1 for axis in node.detail]
            if node.operator.startswith("arg"):
                return getattr(torch, node.operator)(args[0], dims[0], keepdim=True)
            return _REDUCTIONS[node.operator](args[0], dims, keepdim=True)
        return self._map(node, args)

    def _map(self, node: Node, args: list[Tensor]) -> Tensor:
        if node.operator == "cast":
            return _wide(args[0].to(node.dtype))
        if node.operator == "fixed_curve":
            return curve(node.detail, args[0], *[int(arg) for arg in args[1:]])
        numbers: list[Any] = [_aligned(arg, node) for arg in args]
        if node.operator in _FIXED:  # the shifts are the last arguments
            operands = 1 if node.operator in ("fixed_right", "fixed_left") else 2
            numbers[operands:] = [int(arg) for arg in args[operands:]]
        return FUNCTIONS[node.operator](*numbers)


def _wide(values: Tensor) -> Tensor:
    """Return numbers as double precision or as integers of 64 bits."""
    if values.dtype == torch.bool:
        return values
    return values.double() if values.dtype.is_floating_point else values.long()


def _aligned(values: Tensor, node: Node) -> Tensor:
    """Return values (batch, …) with as many dimensions as a node has, and the batch."""
    missing = len(node.shape) + 1 - values.dim()
    return values.reshape(len(values), *[1] * missing, *values.shape[1:])


def _positions(node: Node) -> Tensor:
    """Return the position in the base of each element of a view."""
    (base,) = node.args
    positions = []
    for element in product(*map(range, node.shape)):
        indices = node.detail(tuple(Index((), at) for at in element))
        positions.append(base.flat(indices).offset)
    return torch.tensor(positions)
