"""The graph of a step in integers of 32 bits, for cores without a floating-point unit.

Every tensor is fixed point: an integer times a power of two that was chosen from the values that
the tensor had in floating point on calibration data, with a factor of two to spare; beyond that it
saturates. Matrices have 8 bits and a scale per row; their inputs lose as many bits as keep a sum in
32 bits from overflowing. Functions such as tanh are tables of cubic polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.lab.export.c.interpreter import FUNCTIONS, LIMIT, Interpreter, curve
from undamped.lab.export.c.lower import base_of, quantise, topological
from undamped.lab.export.c.nodes import Node

_LARGEST_SHIFT = 30
_INTERVALS = [2**power for power in range(4, 11)]
_CURVE_ERROR = 2.0**-16  # of the largest value of a function
# Where a function ends: beyond, it is constant within the error.
_ENDS = {"tanh": (-8.0, 8.0), "sigmoid": (-16.0, 16.0)}
_EXP_WIDTH = 16.0
_CURVES = (
    *("exp", "expm1", "gelu", "log", "log1p", "log_sigmoid", "reciprocal", "rsqrt", "sigmoid"),
    *("silu", "sin", "cos", "softplus", "sqrt", "tanh"),
)
_PLAIN = ("abs", "neg", "relu", "identity")
_TESTS = ("eq", "ge", "gt", "le", "lt", "ne", "and", "or", "bitwise_not", "logical_not")

Range = tuple[float, float]


class Fixed(NamedTuple):
    """A tensor as integers: its values are those of the node times 2**-bits."""

    node: Node
    bits: int


@dataclass(frozen=True)
class IntegerGraph:
    """The graph of a step in integers.

    Args:
        outputs: The answer and the next state.
        bits: The bits of the fractions of the inputs, by name.
        answer_bits: The bits of the fraction of the answer.
    """

    outputs: list[Node]
    bits: dict[str, int]
    answer_bits: int


class Ranges:
    """The smallest and largest value of each tensor of a graph.

    Args:
        outputs: The nodes of the results: the answer and the next state.
        state: The initial state by name.
    """

    def __init__(self, outputs: Sequence[Node], state: Mapping[str, Tensor]) -> None:
        self.ranges: dict[Node, Range] = {}
        self._state = {name: start.double() for name, start in state.items()}
        self._interpreter = Interpreter(outputs, self._observe)

    def observe(self, features: Tensor, lengths: Tensor | None = None) -> None:
        """Process sequences.

        Args:
            features: (time, batch, features).
            lengths: (batch,) true lengths.
        """
        alive = torch.arange(features.shape[1])
        state = {name: start.repeat_interleave(len(alive), 0) for name, start in self._rows()}
        for time, x in enumerate(features.double()):
            if lengths is not None:
                going = lengths[alive] > time
                alive, state = alive[going], {k: v[going] for k, v in state.items()}
            if not len(alive):
                return
            results = self._interpreter({"x": x[alive], **state})
            state = dict(zip(state, results[1:], strict=True))

    def _rows(self) -> list[tuple[str, Tensor]]:
        return [(name, start.unsqueeze(0)) for name, start in self._state.items()]

    def _observe(self, node: Node, values: Tensor) -> None:
        if node.dtype.is_floating_point:
            low, high = values.aminmax()
            before = self.ranges.get(node, (math.inf, -math.inf))
            self.ranges[node] = min(before[0], float(low)), max(before[1], float(high))


def integer_graph(
    outputs: Sequence[Node], names: Sequence[str], ranges: Mapping[Node, Range]
) -> IntegerGraph:
    """Return a graph in integers.

    Args:
        outputs: The answer and the next state in floating point.
        names: The names of the state.
        ranges: The range of each tensor.
    """
    order = topological(list(outputs))
    if not all(map(math.isfinite, [end for pair in ranges.values() for end in pair])):
        raise OptionError(
            "A value of the model is not finite on the validation data, and integers cannot hold "
            "it. Export without --integer."
        )
    inputs = {node.detail: node for node in order if node.kind == "input"}
    bits = {"x": _bits(ranges.get(inputs.get("x", outputs[0]), (0.0, 0.0)))}
    after = dict(zip(names, outputs[1:], strict=True))
    for name, node in after.items():
        both = [ranges[part] for part in (node, inputs.get(name, node)) if part in ranges]
        low, high = zip(*(both or [_ends(node)]), strict=True)
        bits[name] = _bits((min(low), max(high)))
    conversion = _Conversion(ranges, bits)
    for node in order:
        conversion.convert(node)
    answer = conversion.fixed(outputs[0])
    state = [conversion.at(node, bits[name]) for name, node in after.items()]
    return IntegerGraph([answer.node, *state], bits, answer.bits)


def _ends(node: Node) -> Range:
    low, high = node.detail.aminmax()
    if not (low.isfinite() and high.isfinite()):
        raise _refusal("with an infinite constant")
    return float(low), float(high)


def _bits(ends: Range) -> int:
    """Return the bits of a fraction such that twice the largest value has 31 bits."""
    exponent = math.frexp(max(map(abs, ends)))[1]
    return min(60, 30 - exponent)


def _number(value: int) -> Node:
    return Node("constant", (), torch.int32, detail=torch.tensor(value, dtype=torch.int32))


def fixed_tensor(values: Tensor, bits: int) -> Tensor:
    """Return numbers as integers of 32 bits."""
    scaled = (values.double() * 2.0**bits).round().clamp(-LIMIT, LIMIT)
    return scaled.nan_to_num(0.0).to(torch.int32)


def _operation(operator: str, shape: tuple[int, ...], *args: Node, detail: Any = None) -> Node:
    return Node("map", shape, torch.int32, args, operator, detail)


def _shifted(value: Fixed, bits: int) -> Node:
    """Return the integers of a tensor with another fraction."""
    shift = value.bits - bits
    if not shift:
        return value.node
    name, count = ("fixed_right", shift) if shift > 0 else ("fixed_left", -shift)
    return _operation(name, value.node.shape, value.node, _number(min(count, 31)))


class _Conversion:
    """Converts the nodes of a graph, each after its arguments."""

    def __init__(self, ranges: Mapping[Node, Range], bits: Mapping[str, int]) -> None:
        self._ranges, self._inputs = ranges, bits
        self._fixed: dict[Node, Fixed] = {}

    def fixed(self, node: Node) -> Fixed:
        """Return a tensor as integers; a constant with the bits of its largest value."""
        if node in self._fixed:
            return self._fixed[node]
        bits = _bits(_ends(node))
        return Fixed(self.at(node, bits), bits)

    def at(self, node: Node, bits: int) -> Node:
        """Return the integers of a tensor with a fraction."""
        if node in self._fixed:
            return _shifted(self._fixed[node], bits)
        return Node("constant", node.shape, torch.int32, detail=fixed_tensor(node.detail, bits))

    def convert(self, node: Node) -> None:
        """Convert a node."""
        if node.dtype == torch.float64:
            raise _refusal(f"{node.operator or node.kind} in double precision")
        if node.kind == "constant":
            if not node.dtype.is_floating_point:
                self._fixed[node] = Fixed(node, 0)
            return
        self._fixed[node] = getattr(self, f"_{node.kind}")(node)

    def _input(self, node: Node) -> Fixed:
        return Fixed(
            Node("input", node.shape, torch.int32, detail=node.detail), self._inputs[node.detail]
        )

    def _view(self, node: Node) -> Fixed:
        base = self.fixed(node.args[0])
        return Fixed(
            Node("view", node.shape, base.node.dtype, (base.node,), detail=node.detail), base.bits
        )

    def _concat(self, node: Node) -> Fixed:
        bits = min(self.fixed(arg).bits for arg in node.args)
        parts = tuple(self.at(arg, bits) for arg in node.args)
        return Fixed(Node("concat", node.shape, torch.int32, parts, detail=node.detail), bits)

    def _reduce(self, node: Node) -> Fixed:
        arg = self.fixed(node.args[0])
        dtype = torch.int32 if node.dtype.is_floating_point else node.dtype
        if node.operator == "sum":  # so many bits fewer that the sum cannot overflow
            count = math.prod(node.args[0].shape[axis] for axis in node.detail)
            bits = arg.bits - count.bit_length()
            arg = Fixed(_shifted(arg, bits), bits)
        reduced = Node("reduce", node.shape, dtype, (arg.node,), node.operator, node.detail)
        return Fixed(reduced, arg.bits if node.dtype.is_floating_point else 0)

    def _product(self, node: Node) -> Fixed:
        x, weight = self.fixed(node.args[0]), node.args[1].detail
        numbers, scale = quantise(weight.reshape(-1, weight.shape[-1]))
        largest = int(numbers.abs().sum(1, dtype=torch.int64).max())
        shift = max(1, largest.bit_length())
        matrix = Node("constant", tuple(weight.shape), torch.int8, detail=numbers)
        rounded = _shifted(x, x.bits - shift)
        total = Node("product", node.shape, torch.int32, (rounded, matrix))
        factor = Node("constant", (len(scale),), torch.float32, detail=scale)
        scaled = self._scaled(
            node.shape, Fixed(total, x.bits - shift), self.fixed(factor), self._result(node)
        )
        if len(node.args) == 2:
            return scaled
        return self._sum("add", node, scaled, self.fixed(node.args[2]))

    def _map(self, node: Node) -> Fixed:
        name, args = node.operator, node.args
        if node.dtype == torch.int64:
            raise _refusal(f"{name} of integers")
        if name in _CURVES:
            return self._curve(node)
        if name in ("mul", "add", "sub"):
            a, b = map(self.fixed, args)
            if name == "mul":
                return self._scaled(node.shape, a, b, self._result(node))
            return self._sum(name, node, a, b)
        if name == "div":
            return self._quotient(node)
        if name == "cast" and node.dtype != torch.int64 and args[0].dtype != torch.int64:
            dtype = torch.int32 if node.dtype.is_floating_point else node.dtype
            return Fixed(Node("map", node.shape, dtype, (self.fixed(args[0]).node,), "cast"), 0)
        if name in _PLAIN:
            arg = self.fixed(args[0])
            return Fixed(_operation(name, node.shape, arg.node), arg.bits)
        if name in _TESTS:
            bits = min([self.fixed(arg).bits for arg in args if arg.kind != "constant"], default=0)
            parts = [self.at(arg, bits) for arg in args]
            return Fixed(Node("map", node.shape, node.dtype, tuple(parts), name), 0)
        if name in ("maximum", "minimum", "where"):
            return self._choice(node)
        raise _refusal(name)

    def _choice(self, node: Node) -> Fixed:
        if not node.dtype.is_floating_point:
            raise _refusal(f"{node.operator} of booleans")
        bits, condition = self._result(node), [self.fixed(arg).node for arg in node.args[:-2]]
        values = [self.at(arg, bits) for arg in node.args[-2:]]
        return Fixed(_operation(node.operator, node.shape, *condition, *values), bits)

    def _result(self, node: Node) -> int:
        return _bits(self._ranges.get(node, (0.0, 0.0)))

    def _scaled(self, shape: tuple[int, ...], a: Fixed, b: Fixed, bits: int) -> Fixed:
        """Return the product of two tensors."""
        shift = min(max(0, a.bits + b.bits - bits), 62)
        node = _operation("fixed_mul", shape, a.node, b.node, _number(shift))
        return Fixed(node, a.bits + b.bits - shift)

    def _sum(self, name: str, node: Node, a: Fixed, b: Fixed) -> Fixed:
        common = min(max(a.bits, b.bits), min(a.bits, b.bits) + _LARGEST_SHIFT)
        bits = min(self._result(node), common)
        shifts = [max(0, common - part.bits) for part in (a, b)]
        if common - bits > _LARGEST_SHIFT:
            bits = common - _LARGEST_SHIFT
        values = [_shifted(part, min(part.bits, common)) for part in (a, b)]
        numbers = map(_number, (*shifts, common - bits))
        return Fixed(_operation(f"fixed_{name}", node.shape, *values, *numbers), bits)

    def _quotient(self, node: Node) -> Fixed:
        top, bottom = node.args
        if bottom.kind == "constant":
            inverse = Node("constant", bottom.shape, bottom.dtype, detail=1 / bottom.detail)
            return self._scaled(
                node.shape, self.fixed(top), self.fixed(inverse), self._result(node)
            )
        a, b = self.fixed(top), self.fixed(bottom)
        shift = min(max(0, self._result(node) - a.bits + b.bits), 31)
        quotient = _operation("fixed_div", node.shape, a.node, b.node, _number(shift))
        return Fixed(quotient, a.bits - b.bits + shift)

    def _curve(self, node: Node) -> Fixed:
        arg, name = self.fixed(node.args[0]), node.operator
        low, high = self._ranges[base_of(node.args[0])]
        low, high = (2 * low if low < 0 else low / 2), (2 * high if high > 0 else high / 2)
        if name == "exp":
            low = max(low, high - _EXP_WIDTH)
        low, high = _ENDS.get(name, (low, high))  # one table for all layers
        mantissa, exponent = math.frexp(max(high - low, 2.0**-20))
        width = 2.0 ** (exponent - (mantissa == 0.5))  # a power of two
        bits = min(arg.bits, 30 - math.frexp(max(abs(low), abs(low + width)))[1])
        start, units = int(low * 2.0**bits), int(width * 2.0**bits)
        table, result = _table(name, start, units, bits)
        shift = (units // (len(table) // 4)).bit_length() - 1
        numbers = map(_number, (start, min(start + units - 1, LIMIT), shift))
        x = _shifted(arg, bits)
        curved = _operation("fixed_curve", node.shape, x, *numbers, detail=table)
        return Fixed(curved, result)


def _table(name: str, start: int, units: int, bits: int) -> tuple[Tensor, int]:
    """Return cubic polynomials that follow a function, and the bits of its values.

    Args:
        name: The function.
        start: The first argument, in units of 2**-bits.
        units: The number of arguments, a power of two.
        bits: The bits of the fraction of arguments.
    """
    nodes = (1 - torch.cos((2 * torch.arange(4.0, dtype=torch.float64) + 1) * math.pi / 8)) / 2
    powers = nodes.unsqueeze(1) ** torch.arange(4)
    for intervals in _INTERVALS:
        size = units // intervals
        if size < 2:
            break
        edges = torch.arange(intervals, dtype=torch.float64).unsqueeze(1)
        values = FUNCTIONS[name]((start + (edges + nodes) * size) * 2.0**-bits)
        if not values.isfinite().all():
            break
        coefficients = torch.linalg.solve(powers, values.T).T
        result = _bits((0.0, float(coefficients.abs().sum(1).max())))
        table = (coefficients * 2.0**result).round().to(torch.int32).flatten()
        shift = size.bit_length() - 1
        x = start + torch.linspace(0, units - 1, 16 * intervals + 1, dtype=torch.float64).long()
        exact = FUNCTIONS[name](x * 2.0**-bits)
        values = curve(table, x, start, start + units - 1, shift) * 2.0**-result
        if (values - exact).abs().max() <= _CURVE_ERROR * exact.abs().max():
            return table, result
    raise _refusal(
        f"{name}, which varies too much between {start / 2.0**bits:.3g} and "
        f"{(start + units) / 2.0**bits:.3g}"
    )


def _refusal(operator: str) -> OptionError:
    return OptionError(
        f"There is no integer form of the operator {operator}, which this model uses. Export it "
        "without --integer."
    )
