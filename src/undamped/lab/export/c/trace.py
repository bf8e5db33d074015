"""The graph of a function of tensors, recorded while it runs once on an example.

As for ONNX, only the step inside the loop over time is recorded. Operators that depend on weights
alone are computed here and become constants.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.torch_internals import TorchDispatchMode, tree_leaves
from undamped.kernels.dispatch import plain_loops
from undamped.lab.export.c.nodes import Indices, Node, align, reshape, view


class ComplexNode(NamedTuple):
    """A complex tensor as two real ones."""

    real: Node
    imaginary: Node


Value = Node | ComplexNode


def trace(function: Callable[..., Sequence[Tensor]], inputs: dict[str, Tensor]) -> list[Node]:
    """Return the nodes of the results of a function.

    Args:
        function: Called once, with the examples in order; it returns real tensors.
        inputs: Examples by name.
    """
    # In inference mode the tensors that an operator returns are those that the next one receives.
    with torch.inference_mode():
        record = Trace()
        examples = [example.clone() for example in inputs.values()]
        for name, example in zip(inputs, examples, strict=True):
            record.remember(
                example, Node("input", tuple(example.shape), example.dtype, detail=name)
            )
        with record, plain_loops():
            results = function(*examples)
    return [record.real(result) for result in results]


class Trace(TorchDispatchMode):
    """Runs operators as usual, and records those that depend on the inputs."""

    def __init__(self) -> None:
        super().__init__()
        self._values: dict[int, Value] = {}
        self._tensors: list[Tensor] = []  # ids are only unique while the tensors are alive

    def remember(self, tensor: Tensor, value: Value) -> None:
        """Set the node of a tensor."""
        self._values[id(tensor)] = value
        self._tensors.append(tensor)

    def value(self, argument: Tensor) -> Value:
        """Return the node of a tensor; a constant if it does not depend on the inputs."""
        if id(argument) in self._values:
            return self._values[id(argument)]
        if argument.is_complex():
            return ComplexNode(constant(argument.real), constant(argument.imag))
        return constant(argument)

    def real(self, argument: Any, dtype: torch.dtype | None = None) -> Node:
        """Return the node of a real tensor or number, in a type."""
        if not isinstance(argument, Tensor):
            return constant(torch.tensor(argument, dtype=dtype))
        value = self.value(argument)
        assert isinstance(value, Node)  # complex numbers leave a step as pairs of real ones
        return value if dtype is None else cast(value, dtype)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not any(id(tensor) in self._values for tensor in tensors):
            return func(*args, **kwargs)  # depends on parameters only: a constant
        name = func.name().removeprefix("aten::").split(".")[0]
        if name not in _OPERATORS:
            with self:
                decomposition = func.decompose(*args, **kwargs)
            if decomposition is not NotImplemented:
                return decomposition
            raise _refusal(name)
        result = func(*args, **kwargs)
        outputs = _OPERATORS[name](self, result, *args, **kwargs)
        several = isinstance(result, list | tuple)
        for tensor, value in zip(result, outputs, strict=False) if several else [(result, outputs)]:
            self.remember(tensor, value)
        return result


def _refusal(name: str) -> OptionError:
    if name in ("_local_scalar_dense", "is_nonzero", "item", "nonzero", "equal"):
        return OptionError(
            "The model decides by the values of a sample how many operations follow (as a solver "
            "with adaptive steps does), which C code of a fixed size cannot. Use 'undamped stream'."
        )
    return OptionError(
        f"There is no C code for the operator '{name}', which this model uses. Choose another "
        "network, or use 'undamped stream'."
    )


def constant(tensor: Tensor) -> Node:
    """Return the node of a constant."""
    return Node("constant", tuple(tensor.shape), tensor.dtype, detail=tensor.detach().cpu())


def cast(node: Node, dtype: torch.dtype) -> Node:
    """Return a tensor in another type."""
    if node.dtype == dtype:
        return node
    if node.kind == "constant":
        return constant(node.detail.to(dtype))
    return Node("map", node.shape, dtype, (node,), "cast")


def elementwise(operator: str, dtype: torch.dtype, *args: Node) -> Node:
    """Return an elementwise operation of tensors that are broadcast to a common shape."""
    shape = tuple(torch.broadcast_shapes(*[arg.shape for arg in args]))
    return Node("map", shape, dtype, args, operator)


# Each translation takes the record, the result of torch, and the arguments of torch.


def _map(operator: str) -> Callable[..., Node]:
    """Translate an operator whose arguments have the type of its result."""

    def write(record: Trace, result: Tensor, *args: Any, **_: Any) -> Node:
        return elementwise(operator, result.dtype, *[record.real(a, result.dtype) for a in args])

    return write


def _sum(operator: str) -> Callable[..., Node]:
    def write(record: Trace, result: Tensor, a: Any, b: Any, alpha: float = 1) -> Node:
        nodes = [record.real(x, result.dtype) for x in (a, b)]
        if alpha != 1:
            nodes[1] = elementwise("mul", result.dtype, nodes[1], record.real(alpha, result.dtype))
        return elementwise(operator, result.dtype, *nodes)

    return write


def _multiply(record: Trace, result: Tensor, a: Any, b: Any) -> Value:
    if not result.is_complex():
        return _map("mul")(record, result, a, b)
    dtype = result.real.dtype
    values = [record.value(x) if isinstance(x, Tensor) else record.real(x, dtype) for x in (a, b)]
    if isinstance(values[0], Node):
        values.reverse()
    first, second = values
    assert isinstance(first, ComplexNode)

    def product(x: Node, y: Node) -> Node:
        return elementwise("mul", dtype, x, y)

    if isinstance(second, Node):
        return ComplexNode(product(first.real, second), product(first.imaginary, second))
    terms = [product(x, y) for x in first for y in second]
    return ComplexNode(
        elementwise("sub", dtype, terms[0], terms[3]), elementwise("add", dtype, terms[1], terms[2])
    )


def _modulus(record: Trace, result: Tensor, x: Tensor) -> Node:
    value = record.value(x)
    if isinstance(value, Node):
        return elementwise("abs", result.dtype, value)
    squares = [elementwise("mul", result.dtype, part, part) for part in value]
    return elementwise("sqrt", result.dtype, elementwise("add", result.dtype, *squares))


def _part(at: int) -> Callable[..., Node]:
    def write(record: Trace, result: Tensor, x: Tensor) -> Node:
        value = record.value(x)
        assert isinstance(value, ComplexNode)
        return value[at]

    return write


def _comparison(operator: str) -> Callable[..., Node]:
    def write(record: Trace, result: Tensor, a: Tensor, b: Any) -> Node:
        dtype = torch.result_type(a, b)
        return elementwise(operator, torch.bool, record.real(a, dtype), record.real(b, dtype))

    return write


def _select(record: Trace, result: Tensor, mask: Tensor, a: Any, b: Any) -> Node:
    nodes = [record.real(x, result.dtype) for x in (a, b)]
    return elementwise("where", result.dtype, record.real(mask), *nodes)


def _clamp(record: Trace, result: Tensor, x: Tensor, low: Any = None, high: Any = None) -> Node:
    node = record.real(x, result.dtype)
    for bound, operator in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            node = elementwise(operator, result.dtype, node, record.real(bound, result.dtype))
    return node


def _power(record: Trace, result: Tensor, x: Any, exponent: Any = 2) -> Node:
    node = record.real(x, result.dtype)
    if exponent == 2:
        return elementwise("mul", result.dtype, node, node)
    if exponent in (0.5, -0.5, -1, 1):
        name = {0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal", 1: "identity"}[exponent]
        return elementwise(name, result.dtype, node)
    raise _refusal("pow")


def _gelu(record: Trace, result: Tensor, x: Tensor, *, approximate: str = "none") -> Node:
    if approximate != "tanh":
        raise _refusal("gelu")
    return _map("gelu")(record, result, x)


def _glu(record: Trace, result: Tensor, x: Tensor, dim: int = -1) -> Node:
    base, size = record.real(x), result.shape[dim]
    first, second = (_slice(base, dim, start, size) for start in (0, size))
    gate = elementwise("sigmoid", result.dtype, second)
    return elementwise("mul", result.dtype, first, gate)


def _softmax(record: Trace, result: Tensor, x: Tensor, dim: int, *_: Any) -> Node:
    node, dtype = record.real(x, result.dtype), result.dtype
    top = _reduction("max", node, [dim], keepdim=True)
    exponentials = elementwise("exp", dtype, elementwise("sub", dtype, node, top))
    total = _reduction("sum", exponentials, [dim], keepdim=True)
    return elementwise("div", dtype, exponentials, total)


def _layer_norm(
    record: Trace,
    result: Any,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Node:
    node, dtype = record.real(x), x.dtype
    dims, count = list(range(-len(shape), 0)), constant(torch.tensor(math.prod(shape), dtype=dtype))

    def average(part: Node) -> Node:
        return elementwise("div", dtype, _reduction("sum", part, dims, keepdim=True), count)

    centred = elementwise("sub", dtype, node, average(node))
    variance = average(elementwise("mul", dtype, centred, centred))
    shift = elementwise("add", dtype, variance, constant(torch.tensor(eps, dtype=dtype)))
    normal = elementwise("mul", dtype, centred, elementwise("rsqrt", dtype, shift))
    if weight is not None:
        normal = elementwise("mul", dtype, normal, record.real(weight))
    return normal if bias is None else elementwise("add", dtype, normal, record.real(bias))


# Reductions and products


def _reduction(operator: str, node: Node, dims: Sequence[int], *, keepdim: bool = False) -> Node:
    axes = sorted({dim % max(1, len(node.shape)) for dim in dims} or range(len(node.shape)))
    shape = tuple(1 if at in axes else size for at, size in enumerate(node.shape))
    integer = operator in ("argmin", "argmax")
    dtype = torch.int64 if integer else node.dtype
    reduced = Node("reduce", shape, dtype, (node,), operator, axes)
    if keepdim:
        return reduced
    return reshape(reduced, [size for at, size in enumerate(shape) if at not in axes])


def _total(
    record: Trace, result: Tensor, x: Tensor, dims: Any = (), keepdim: bool = False, **_: Any
) -> Node:
    dims = [dims] if isinstance(dims, int) else dims or ()
    return _reduction("sum", record.real(x, result.dtype), dims, keepdim=keepdim)


def _mean(
    record: Trace, result: Tensor, x: Tensor, dims: Any = (), keepdim: bool = False, **_: Any
) -> Node:
    count = torch.tensor(x.numel() / result.numel(), dtype=result.dtype)
    total = _total(record, result, x, dims, keepdim)
    return elementwise("div", result.dtype, total, constant(count))


def _extremum(operator: str) -> Callable[..., Any]:
    def write(record: Trace, result: Any, x: Tensor, dims: Any = (), keepdim: bool = False) -> Any:
        node = record.real(x)
        if isinstance(result, tuple):  # values and indices
            names = operator, f"arg{operator}"
            return [_reduction(name, node, [dims], keepdim=keepdim) for name in names]
        dims = [dims] if isinstance(dims, int) else dims
        return _reduction(operator, node, dims, keepdim=keepdim)

    return write


def _any(record: Trace, result: Tensor, x: Tensor, dim: Any = (), keepdim: bool = False) -> Node:
    dims = [dim] if isinstance(dim, int) else dim
    return _reduction("max", record.real(x, torch.bool), dims, keepdim=keepdim)


def _product(x: Node, weight: Node, bias: Node | None = None) -> Node:
    """Return x Wᵀ + b for x (…, inputs) and W (outputs, inputs)."""
    if weight.kind == "constant" and weight.size > weight.shape[0]:
        shape = (*x.shape[:-1], weight.shape[0])
        args = (x, weight) if bias is None else (x, weight, bias)
        return Node("product", shape, x.dtype, args)
    expanded = reshape(x, (*x.shape[:-1], 1, x.shape[-1]))
    terms = elementwise("mul", x.dtype, expanded, weight)
    total = _reduction("sum", terms, [-1])
    return total if bias is None else elementwise("add", x.dtype, total, bias)


def _linear(
    record: Trace, result: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Node:
    return _product(
        record.real(x), record.real(weight), None if bias is None else record.real(bias)
    )


def _matmul(record: Trace, result: Tensor, a: Tensor, b: Tensor) -> Node:
    first, second = record.real(a), record.real(b)
    if b.dim() == 1:  # a matrix times a vector
        if first.kind == "constant" and a.dim() == 2:
            return _product(second, first)
        return _reduction("sum", elementwise("mul", result.dtype, first, second), [-1])
    if b.dim() == 2:
        return _product(first, transpose(second, 0, 1))
    rows = reshape(first, (*first.shape[:-1], 1, first.shape[-1]))
    columns = transpose(second, -2, -1)
    columns = reshape(columns, (*columns.shape[:-2], 1, *columns.shape[-2:]))
    return _reduction("sum", elementwise("mul", result.dtype, rows, columns), [-1])


def _addmm(
    record: Trace, result: Tensor, c: Tensor, a: Tensor, b: Tensor, *, beta: Any = 1, alpha: Any = 1
) -> Node:
    if alpha != 1 or beta != 1:
        raise _refusal("addmm")
    return _product(record.real(a), transpose(record.real(b), 0, 1), record.real(c))


# Views


def transpose(node: Node, first: int, second: int) -> Node:
    """Return a tensor with two dimensions exchanged."""
    order = list(range(len(node.shape)))
    order[first], order[second] = order[second], order[first]
    return _permuted(node, order)


def _permuted(node: Node, order: Sequence[int]) -> Node:
    if node.kind == "constant":
        return constant(node.detail.permute(*order))
    order = [at % len(order) for at in order]
    shape = [node.shape[at] for at in order]
    inverse = [order.index(at) for at in range(len(order))]
    return view(node, shape, lambda indices: tuple(indices[at] for at in inverse))


def _slice(node: Node, dim: int, start: int, size: int, step: int = 1) -> Node:
    dim %= len(node.shape)
    shape = (*node.shape[:dim], size, *node.shape[dim + 1 :])

    def shifted(indices: Indices) -> Indices:
        return (*indices[:dim], indices[dim] * step + start, *indices[dim + 1 :])

    return node if shape == node.shape else view(node, shape, shifted)


def _slice_tensor(
    record: Trace, result: Tensor, x: Tensor, dim: int = 0, start: Any = None, *rest: Any
) -> Node:
    step = rest[1] if len(rest) > 1 else 1
    size = x.shape[dim]
    begin = min(max(0, (start or 0) + (size if (start or 0) < 0 else 0)), size)
    return _slice(record.real(x), dim, begin, result.shape[dim], step)


def _index(record: Trace, result: Tensor, x: Tensor, dim: int, at: int) -> Node:
    row = _slice(record.real(x), dim, at % x.shape[dim], 1)
    return reshape(row, result.shape)


def _split(record: Trace, result: Sequence[Tensor], x: Tensor, size: Any, dim: int = 0) -> Any:
    node, start, parts = record.real(x), 0, []
    for part in result:
        parts.append(_slice(node, dim, start, part.shape[dim]))
        start += part.shape[dim]
    return parts


def _unbind(record: Trace, result: Sequence[Tensor], x: Tensor, dim: int = 0) -> Any:
    node = record.real(x)
    return [reshape(_slice(node, dim, at, 1), part.shape) for at, part in enumerate(result)]


def _same_elements(record: Trace, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Value:
    value = record.value(x)
    if isinstance(value, Node):
        return reshape(value, result.shape)
    return ComplexNode(*[reshape(part, result.shape) for part in value])


def _expanded(record: Trace, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Node:
    node = record.real(x)
    return view(node, result.shape, lambda indices: align(indices, node.shape))


def _concatenation(record: Trace, result: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Node:
    nodes = [record.real(part, result.dtype) for part in parts if part.numel()]
    dim %= result.dim()
    if len(nodes) == 1:
        return nodes[0]
    return Node("concat", tuple(result.shape), result.dtype, tuple(nodes), detail=dim)


def _stack(record: Trace, result: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Node:
    dim %= result.dim()
    shape = (*result.shape[:dim], 1, *result.shape[dim + 1 :])
    nodes = tuple(reshape(record.real(part, result.dtype), shape) for part in parts)
    return Node("concat", tuple(result.shape), result.dtype, nodes, detail=dim)


def _full(number: float | None) -> Callable[..., Node]:
    def write(record: Trace, result: Tensor, *_: Any, **__: Any) -> Node:
        return constant(result.clone() if number is None else torch.full_like(result, number))

    return write


def _copy(record: Trace, result: Tensor, x: Tensor, *_: Any, **__: Any) -> Value:
    value = record.value(x)
    return cast(value, result.dtype) if isinstance(value, Node) else value


def _lerp(record: Trace, result: Tensor, a: Tensor, b: Tensor, weight: Any) -> Node:
    dtype = result.dtype
    first, second, part = (record.real(x, dtype) for x in (a, b, weight))
    rise = elementwise("mul", dtype, part, elementwise("sub", dtype, second, first))
    return elementwise("add", dtype, first, rise)


def _addcmul(
    record: Trace, result: Tensor, c: Tensor, a: Tensor, b: Tensor, *, value: float = 1
) -> Node:
    dtype = result.dtype
    product = elementwise("mul", dtype, record.real(a, dtype), record.real(b, dtype))
    if value != 1:
        product = elementwise("mul", dtype, product, record.real(value, dtype))
    return elementwise("add", dtype, record.real(c, dtype), product)


def _leaky_relu(record: Trace, result: Tensor, x: Tensor, slope: float = 0.01) -> Node:
    node = record.real(x)
    scaled = elementwise("mul", result.dtype, node, record.real(slope, result.dtype))
    positive = elementwise("gt", torch.bool, node, record.real(0, result.dtype))
    return elementwise("where", result.dtype, positive, node, scaled)


_MAPS = frozenset(
    re.findall(
        r"\w+",
        "abs neg sqrt rsqrt exp log log1p expm1 tanh sigmoid relu sin cos sign round floor "
        "remainder maximum minimum reciprocal div softplus log_sigmoid silu bitwise_not "
        "logical_not",
    )
)

_OPERATORS: dict[str, Callable[..., Any]] = {
    **{name: _map(name) for name in _MAPS},
    "__and__": _map("and"),
    "__or__": _map("or"),
    "_softmax": _softmax,
    "_to_copy": _copy,
    "abs": _modulus,
    "add": _sum("add"),
    "addcmul": _addcmul,
    "addmm": _addmm,
    "alias": _copy,
    "amax": _extremum("max"),
    "amin": _extremum("min"),
    "any": _any,
    "argmax": _extremum("argmax"),
    "argmin": _extremum("argmin"),
    "bitwise_and": _map("and"),
    "bitwise_or": _map("or"),
    "bmm": _matmul,
    "cat": _concatenation,
    "chunk": _split,
    "clamp": _clamp,
    "clamp_max": lambda record, result, x, high: _clamp(record, result, x, None, high),
    "clamp_min": _clamp,
    "clone": _copy,
    "complex": lambda record, result, a, b: ComplexNode(record.real(a), record.real(b)),
    "detach": _copy,
    "eq": _comparison("eq"),
    "expand": _expanded,
    "flatten": _same_elements,
    "full_like": _full(None),
    "ge": _comparison("ge"),
    "gelu": _gelu,
    "glu": _glu,
    "gt": _comparison("gt"),
    "imag": _part(1),
    "isnan": lambda record, result, x: elementwise("isnan", torch.bool, record.real(x)),
    "layer_norm": _layer_norm,
    "le": _comparison("le"),
    "leaky_relu": _leaky_relu,
    "lerp": _lerp,
    "linear": _linear,
    "logical_and": _map("and"),
    "lt": _comparison("lt"),
    "masked_fill": lambda record, result, x, mask, number: _select(record, result, mask, number, x),
    "matmul": _matmul,
    "max": _extremum("max"),
    "mean": _mean,
    "min": _extremum("min"),
    "mm": _matmul,
    "mul": _multiply,
    "mv": _matmul,
    "ne": _comparison("ne"),
    "new_full": _full(None),
    "new_zeros": _full(0),
    "ones_like": _full(1),
    "permute": lambda record, result, x, order: _permuted(record.real(x), order),
    "pow": _power,
    "real": _part(0),
    "reshape": _same_elements,
    "rsub": lambda record, result, a, b, alpha=1: _sum("sub")(record, result, b, a, alpha),
    "select": _index,
    "slice": _slice_tensor,
    "softmax": _softmax,
    "split": _split,
    "split_with_sizes": _split,
    "square": _power,
    "squeeze": _same_elements,
    "stack": _stack,
    "sub": _sum("sub"),
    "sum": _total,
    "t": lambda record, result, x: transpose(record.real(x), 0, 1),
    "to": _copy,
    "transpose": lambda record, result, x, a, b: transpose(record.real(x), a, b),
    "unbind": _unbind,
    "unsqueeze": _same_elements,
    "view": _same_elements,
    "where": _select,
    "zeros_like": _full(0),
}
