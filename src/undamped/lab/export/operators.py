"""ONNX translations of the torch operators in one step of a network.

The exporter of torch unrolls a loop over time for one fixed length. Here the graph contains the
loop, so that only the step inside it has to be translated: the step runs once on an example, and
every operator that it calls is recorded.

Networks with stored states have slots, a second dimension besides the batch, and select them by
masks: their operators have three dimensions, booleans and integers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.torch_internals import TorchDispatchMode, tree_leaves
from undamped.lab.export.graph import Graph, element_kind

EXAMPLES = 3
"""Rows of an example; no operator below depends on the number of rows."""


class ComplexValue(NamedTuple):
    """A complex number as two real values, because ONNX runtimes have no complex arithmetic."""

    real: str
    imaginary: str


Value = str | ComplexValue


def apply(
    graph: Graph,
    function: Callable[..., Any],
    inputs: Sequence[tuple[str, int]],
    dtype: torch.dtype,
) -> list[str]:
    """Add the operators of a function of tensors (rows, features); return its results' names.

    Args:
        graph: The graph to which nodes are added.
        function: Called once with an example; returns one tensor or a tuple.
        inputs: The name of each argument, and its number of features.
        dtype: The type of the arguments.
    """
    # In inference mode composite operators such as `linear` are not decomposed, and the tensors
    # that an operator returns are those that the next one receives.
    with torch.inference_mode():
        examples = [torch.zeros(EXAMPLES, size, dtype=dtype) for _, size in inputs]
        record = _Record(graph)
        for example, (name, _) in zip(examples, inputs, strict=True):
            record.remember(example, name)
        with record:
            results = function(*examples)
    results = (results,) if isinstance(results, Tensor) else tuple(results)
    return [record.real(result) for result in results]


class _Record(TorchDispatchMode):
    """Runs operators as usual and adds those that depend on the inputs to a graph."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self._values: dict[int, Value] = {}
        self._tensors: list[Tensor] = []  # ids are only unique while the tensors are alive

    def remember(self, tensor: Tensor, value: Value) -> None:
        self._values[id(tensor)] = value
        self._tensors.append(tensor)

    def value(self, argument: Any) -> Value:
        if isinstance(argument, Tensor):
            return self._values.get(id(argument)) or self.graph.constant(argument)
        return self.graph.constant(np.array(argument, dtype=self._number_type))

    def real(self, argument: Any) -> str:
        value = self.value(argument)
        assert isinstance(value, str)  # complex numbers leave a step as pairs of real ones
        return value

    def node(self, kind: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node whose inputs are tensors and numbers of torch."""
        return self.graph.node(kind, *[self.real(i) for i in inputs], **attributes)

    @property
    def _number_type(self) -> Any:
        return self._tensors[0].numpy().dtype

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if not any(id(tensor) in self._values for tensor in tensors):
            return result  # depends on parameters only: a constant
        name = func.name().removeprefix("aten::")
        if name not in _OPERATORS:
            raise OptionError(
                f"ONNX has no operator for '{func.name()}', which this network uses. "
                "Choose another network, or use 'undamped predict'."
            )
        outputs = _OPERATORS[name](self, result, *args, **kwargs)
        several = isinstance(result, list | tuple)
        for tensor, value in zip(result, outputs, strict=True) if several else [(result, outputs)]:
            self.remember(tensor, value)
        return result


# Translations take the record, the result of torch, and the arguments of torch.


def _sum(kind: str) -> Callable[..., Value]:
    def write(record: _Record, result: Tensor, a: Any, b: Any, alpha: float = 1) -> Value:
        if alpha == 1:
            return record.node(kind, a, b)
        scaled = record.node("Mul", b, alpha)
        return record.graph.node(kind, record.real(a), scaled)

    return write


def _product(record: _Record, result: Tensor, a: Any, b: Any) -> Value:
    first, second = record.value(a), record.value(b)
    if isinstance(first, ComplexValue) and isinstance(second, str):
        return ComplexValue(*(record.graph.node("Mul", part, second) for part in first))
    factors = [of_type(record, factor, result.dtype) for factor in (a, b)]
    return record.graph.node("Mul", *factors)


def _modulus(record: _Record, result: Tensor, x: Tensor) -> Value:
    value, graph = record.value(x), record.graph
    if isinstance(value, str):
        return graph.node("Abs", value)
    squares = [graph.node("Mul", part, part) for part in value]
    return graph.node("Sqrt", graph.node("Add", *squares))


def _part(index: int) -> Callable[..., Value]:
    def write(record: _Record, result: Tensor, x: Tensor) -> Value:
        value = record.value(x)
        assert isinstance(value, ComplexValue)
        return value[index]

    return write


def _linear(
    record: _Record, result: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Value:
    if x.dim() > 2:
        product = record.graph.node("MatMul", record.real(x), record.graph.constant(weight.t()))
        return product if bias is None else record.graph.node("Add", product, record.real(bias))
    inputs = [x, weight] if bias is None else [x, weight, bias]
    return record.node("Gemm", *inputs, transB=1)


def _split(record: _Record, result: Sequence[Tensor], x: Tensor, size: Any, dim: int = 0) -> Any:
    sizes = record.graph.integers(*(part.shape[dim] for part in result))
    return record.graph.nodes("Split", record.real(x), sizes, outputs=len(result), axis=dim)


def _slice(
    record: _Record,
    result: Tensor,
    x: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    integers = record.graph.integers
    last = min(x.shape[dim] if end is None else end, x.shape[dim])
    bounds = (integers(start or 0), integers(last), integers(dim), integers(step))
    return record.graph.node("Slice", record.real(x), *bounds)


def _stack(record: _Record, result: Tensor, parts: Sequence[Tensor], dim: int = 0) -> Value:
    graph = record.graph
    axis = graph.integers(dim)
    raised = [graph.node("Unsqueeze", record.real(part), axis) for part in parts]
    return graph.node("Concat", *raised, axis=dim)


def _total(
    record: _Record, result: Tensor, x: Tensor, dims: Sequence[int], keepdim: bool = False
) -> Value:
    axes, value = record.graph.integers(*dims), of_type(record, x, result.dtype)
    return record.graph.node("ReduceSum", value, axes, keepdims=int(keepdim))


def _remainder(record: _Record, result: Tensor, x: Tensor, divisor: float) -> Value:
    graph, value, by = record.graph, record.real(x), record.real(divisor)
    quotient = graph.node("Floor", graph.node("Div", value, by))
    return graph.node("Sub", value, graph.node("Mul", quotient, by))


def _exact_sigmoid(record: _Record, value: str) -> str:
    # The Sigmoid of onnxruntime has a relative error of a tenth where it is near 1e-6, which
    # matters in networks that divide by small numbers.
    graph = record.graph
    rest = graph.node("Exp", graph.node("Neg", value))
    return graph.node("Reciprocal", graph.node("Add", rest, record.real(1)))


def _gelu(record: _Record, result: Tensor, x: Tensor, *, approximate: str = "none") -> Value:
    assert approximate == "tanh"  # the only form in this library
    graph, value = record.graph, record.real(x)
    cube = graph.node("Mul", graph.node("Mul", value, value), value)
    inner = graph.node("Add", value, graph.node("Mul", cube, record.real(0.044715)))
    tanh = graph.node("Tanh", graph.node("Mul", inner, record.real((2 / np.pi) ** 0.5)))
    half = graph.node("Mul", value, record.real(0.5))
    return graph.node("Mul", half, graph.node("Add", tanh, record.real(1)))


def _glu(record: _Record, result: Tensor, x: Tensor, dim: int = -1) -> Value:
    graph = record.graph
    sizes = graph.integers(result.shape[dim], result.shape[dim])
    value, gate = graph.nodes("Split", record.real(x), sizes, outputs=2, axis=dim)
    return graph.node("Mul", value, _exact_sigmoid(record, gate))


def _layer_norm(
    record: _Record,
    result: Tensor,
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Value:
    scale = torch.ones(tuple(shape), dtype=x.dtype) if weight is None else weight
    inputs = [x, scale] if bias is None else [x, scale, bias]
    return record.node("LayerNormalization", *inputs, axis=-len(shape), epsilon=eps)


def of_type(record: _Record, argument: Any, dtype: torch.dtype) -> str:
    """Return a value cast to a type; numbers of Python become constants of it."""
    if not isinstance(argument, Tensor):
        return record.graph.constant(torch.tensor(argument, dtype=dtype))
    if argument.dtype == dtype:
        return record.real(argument)
    return record.graph.node("Cast", record.real(argument), to=element_kind(dtype))


def plain(kind: str) -> Callable[..., str]:
    """Return the translation of an operator that ONNX has with the same arguments."""
    return lambda record, result, *inputs: record.node(kind, *inputs)


def _comparison(kind: str, negated: bool = False) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, a: Tensor, b: Any) -> str:
        dtype = torch.result_type(a, b)
        comparison = record.graph.node(kind, of_type(record, a, dtype), of_type(record, b, dtype))
        return record.graph.node("Not", comparison) if negated else comparison

    return write


def _select(record: _Record, result: Tensor, mask: Tensor, a: Any, b: Any) -> str:
    values = (of_type(record, part, result.dtype) for part in (a, b))
    return record.graph.node("Where", record.real(mask), *values)


def _minimum(
    record: _Record, result: Any, x: Tensor, dim: int, keepdim: bool = False
) -> tuple[str, str]:
    minimum = record.node("ReduceMin", x, axes=[dim], keepdims=int(keepdim))
    return minimum, record.node("ArgMin", x, axis=dim, keepdims=int(keepdim))


def _log_sigmoid(record: _Record, result: Tensor, x: Tensor) -> str:
    graph = record.graph
    return graph.node("Neg", graph.node("Softplus", graph.node("Neg", record.real(x))))


def _square(record: _Record, result: Tensor, x: Tensor, exponent: float = 2) -> str:
    assert exponent == 2
    return record.node("Mul", x, x)


def _reshape(record: _Record, result: Tensor, x: Tensor, *_: Any) -> str:
    # The first dimension is the batch, and 0 leaves it unchanged.
    return record.graph.node("Reshape", record.real(x), record.graph.integers(0, *result.shape[1:]))


def _axis(kind: str) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, x: Tensor, dim: int) -> str:
        axis = dim if dim >= 0 else max(x.dim(), result.dim()) + dim
        return record.graph.node(kind, record.real(x), record.graph.integers(axis))

    return write


def _index(record: _Record, result: Tensor, x: Tensor, dim: int, index: int) -> str:
    position = record.graph.constant(np.array(index))
    return record.graph.node("Gather", record.real(x), position, axis=dim)


def _full_like(value: float) -> Callable[..., str]:
    def write(record: _Record, result: Tensor, x: Tensor, **_: Any) -> str:
        sizes = record.graph.node("Shape", record.real(x))
        scalar = record.graph.constant(torch.full((1,), value, dtype=result.dtype))
        return record.graph.node("Expand", scalar, sizes)

    return write


_OPERATORS: dict[str, Callable[..., Any]] = {
    "abs": _modulus,
    "alias": lambda record, result, x: record.value(x),
    "add.Tensor": _sum("Add"),
    "addmm": lambda record, result, c, a, b, *, beta=1, alpha=1: record.node(
        "Gemm", a, b, c, alpha=float(alpha), beta=float(beta)
    ),
    "cat": lambda record, result, parts, dim=0: record.node("Concat", *parts, axis=dim),
    "chunk": _split,
    "clamp": lambda record, result, x, low, high: record.node("Clip", x, low, high),
    "cos": plain("Cos"),
    "complex": lambda record, result, real, imaginary: ComplexValue(
        record.real(real), record.real(imaginary)
    ),
    "detach": lambda record, result, x: record.value(x),
    "div.Tensor": plain("Div"),
    "exp": plain("Exp"),
    "gelu": _gelu,
    "glu": _glu,
    "imag": _part(1),
    "layer_norm": _layer_norm,
    "leaky_relu": lambda record, result, x, slope=0.01: record.node(
        "LeakyRelu", x, alpha=float(slope)
    ),
    "linear": _linear,
    "matmul": plain("MatMul"),
    "mm": plain("MatMul"),
    "mul.Tensor": _product,
    "neg": plain("Neg"),
    "real": _part(0),
    "relu": plain("Relu"),
    "reshape": _reshape,
    "remainder.Scalar": _remainder,
    "round": plain("Round"),
    "rsqrt": lambda record, result, x: record.graph.node("Reciprocal", record.node("Sqrt", x)),
    "rsub.Scalar": lambda record, result, a, b, alpha=1: _sum("Sub")(record, result, b, a, alpha),
    "sigmoid": lambda record, result, x: _exact_sigmoid(record, record.real(x)),
    "sign": plain("Sign"),
    "sin": plain("Sin"),
    "slice.Tensor": _slice,
    "split.Tensor": _split,
    "sqrt": plain("Sqrt"),
    "stack": _stack,
    "sub.Tensor": _sum("Sub"),
    "sum.dim_IntList": _total,
    "tanh": plain("Tanh"),
    # Selections of stored states.
    "__and__.Tensor": plain("And"),
    "bitwise_not": plain("Not"),
    "eq.Scalar": _comparison("Equal"),
    "eq.Tensor": _comparison("Equal"),
    "flatten.using_ints": _reshape,
    "ge.Scalar": _comparison("GreaterOrEqual"),
    "gt.Scalar": _comparison("Greater"),
    "gt.Tensor": _comparison("Greater"),
    "lt.Scalar": _comparison("Less"),
    "log_sigmoid": _log_sigmoid,
    "masked_fill.Scalar": lambda record, result, x, mask, value: _select(
        record, result, mask, value, x
    ),
    "min.dim": _minimum,
    "ne.Scalar": _comparison("Equal", negated=True),
    "ones_like": _full_like(1),
    "pow.Tensor_Scalar": _square,
    "select.int": _index,
    "softmax.int": lambda record, result, x, dim, *_: record.node("Softmax", x, axis=dim),
    "square": _square,
    "squeeze.dim": _axis("Squeeze"),
    "unsqueeze": _axis("Unsqueeze"),
    "view": _reshape,
    "where.self": _select,
    "where.ScalarOther": _select,
    "where.Scalar": _select,
    "where.ScalarSelf": _select,
    "zeros_like": _full_like(0),
}
