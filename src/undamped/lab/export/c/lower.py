"""From the graph of a step to C statements: loops, fused where possible, and their buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.lab.export.c.functions import EXPRESSIONS, HELPERS
from undamped.lab.export.c.nodes import Index, Indices, Node, align

TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.int64: "int32_t",
    torch.int32: "int32_t",
    torch.int8: "int8_t",
    torch.uint8: "uint8_t",
    torch.bool: "int32_t",
}
"""The C type of a tensor. Integers are positions, which 32 bits can hold."""
BYTE_TYPES = (torch.int8, torch.uint8, torch.float64)
"""Types of constant arrays that have not four bytes per element."""
_COSTS = {"div": 8, "reciprocal": 8, "sqrt": 8, "rsqrt": 8}
_FUNCTION_COST = 20
_DUPLICATE = 2  # an expression that costs at most this is computed again and not stored
BLOCK = 4
"""Columns of a matrix that one pass over the outputs multiplies."""


@dataclass
class Constants:
    """The constant arrays of a file; equal ones are stored once.

    Args:
        prefix: What all names start with.
        int8: Whether matrices are stored with 8 bits and a scale per row.
    """

    prefix: str
    int8: bool = False
    arrays: dict[str, Tensor] = field(default_factory=dict)
    _names: dict[Any, str] = field(default_factory=dict)

    def name(self, tensor: Tensor) -> str:
        """Return the name of a constant array."""
        array = tensor.detach().contiguous().flatten()
        key = (array.dtype, tuple(array.shape), array.numpy().tobytes())
        if key not in self._names:
            self._names[key] = f"{self.prefix}_c{len(self._names)}"
            self.arrays[self._names[key]] = array
        return self._names[key]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays; integers and booleans have four."""
        return sum(
            array.numel() * (array.element_size() if array.dtype in BYTE_TYPES else 4)
            for array in self.arrays.values()
        )


@dataclass
class Group:
    """Tensors that are computed by one loop nest, or one that is not elementwise."""

    nodes: list[Node]
    elementwise: bool
    shape: tuple[int, ...]  # without dimensions of size 1


@dataclass
class Code:
    """C statements of a step.

    Args:
        lines: The statements.
        work: Elements of the work arrays by C type.
        helpers: Names of the helper functions that are called.
        products: Multiplications with weights.
        operations: Elementwise operations by name, and all of them.
    """

    lines: list[str]
    work: dict[str, int]
    helpers: set[str]
    products: int
    operations: dict[str, int]


def lower(
    outputs: dict[str, Node], names: dict[str, str], constants: Constants, helpers: set[str]
) -> Code:
    """Return C statements that compute outputs.

    Args:
        outputs: The result for each C array; an array may also be that of an input.
        names: The C array of each input.
        constants: Where weights are stored.
        helpers: To which the names of helper functions are added.
    """
    return _Lowering(outputs, names, constants, helpers).code()


class _Lowering:
    def __init__(
        self,
        outputs: dict[str, Node],
        names: dict[str, str],
        constants: Constants,
        helpers: set[str],
    ) -> None:
        self.names, self.constants, self.helpers = names, constants, helpers
        self.targets: dict[Node, str] = {}
        self.outputs: list[Node] = []
        for array, node in outputs.items():
            computed = node.kind in ("map", "reduce", "product", "concat")
            if not computed or node in self.targets:
                node = Node("map", node.shape, node.dtype, (node,), "identity")
            self.targets[node] = array
            self.outputs.append(node)
        self.order = topological(self.outputs)
        self.stored = self._choose_stored()
        self.groups: list[Group] = []
        self.group_of: dict[Node, int] = {}
        self.readers: dict[Node, list[tuple[int, bool]]] = {}  # groups, and whether directly
        self._make_groups()
        self.operations: dict[str, int] = {}
        self.products = 0
        self.copies: list[Node] = []
        self.locations: dict[Node, tuple[str, int]] = {}
        self.work = self._plan_buffers()

    # What is stored

    def _choose_stored(self) -> set[Node]:
        consumers: dict[Node, list[Node]] = {node: [] for node in self.order}
        for node in self.order:
            if node.kind != "view":
                for arg in node.args:
                    base = base_of(arg)
                    if base in consumers and node not in consumers[base]:
                        consumers[base].append(node)
        stored, costs = set(self.outputs), {}
        for node in self.order:
            if node.kind in ("reduce", "product", "concat"):
                stored.add(node)
            if node.kind != "map":
                continue
            costs[node] = _cost(node) + sum(
                costs.get(base, 0) for base in map(base_of, node.args) if base not in stored
            )
            several = len(consumers[node]) > 1
            repeats = any(_domain(consumer) > node.size for consumer in consumers[node])
            if (several or repeats) and costs[node] > _DUPLICATE:
                stored.add(node)
        return stored

    def _make_groups(self) -> None:
        for node in self.order:
            if node not in self.stored:
                continue
            reads = list(self._reads(node))
            earliest = 0
            for base, direct in reads:
                if base in self.group_of:
                    at = self.group_of[base]
                    fits = direct and self.groups[at].elementwise and node.kind == "map"
                    earliest = max(earliest, at if fits else at + 1)
            shape = _squeezed(node.shape)
            position = len(self.groups)
            if node.kind == "map":
                for at in range(len(self.groups) - 1, earliest - 1, -1):
                    if self.groups[at].elementwise and self.groups[at].shape == shape:
                        position = at
                        break
            if position == len(self.groups):
                self.groups.append(Group([], node.kind == "map", shape))
            self.groups[position].nodes.append(node)
            self.group_of[node] = position
            for base, direct in reads:
                self.readers.setdefault(base, []).append((position, direct))

    def _reads(self, node: Node) -> Iterator[tuple[Node, bool]]:
        """Yield nodes that are read, and whether each directly: at the index of the loop."""
        shape = _squeezed(node.shape)
        for base, indices in self._walk(node, _loop_indices(node.shape), first=True):
            direct = _squeezed(base.shape) == shape and base.flat(indices) == base.flat(
                _loop_indices(base.shape)
            )
            yield base, direct and node.kind == "map"

    def _walk(
        self, node: Node, indices: Indices, *, first: bool = False
    ) -> Iterator[tuple[Node, Indices]]:
        if node.kind == "constant":
            return
        if node.kind == "input" or (node in self.stored and not first):
            yield node, indices
        elif node.kind == "view":
            yield from self._walk(node.args[0], node.detail(indices))
        elif node.kind == "map":
            for arg in node.args:
                yield from self._walk(arg, align(indices, arg.shape))
        else:  # the indices do not matter, since such a node has its own group
            for arg in node.args:
                yield from self._walk(arg, _loop_indices(arg.shape))

    # Memory

    def _plan_buffers(self) -> dict[str, int]:
        """Assign stored nodes to parts of the work arrays, each free after its last use."""
        sizes: dict[str, int] = {}
        live: list[tuple[int, int, int, str]] = []  # end, offset, size, type
        for group, last, node in sorted(self._intervals(), key=lambda interval: interval[0]):
            kind = TYPES[node.dtype]
            live = [entry for entry in live if entry[0] >= group]
            offset = _first_fit([entry for entry in live if entry[3] == kind], node.size)
            live.append((last, offset, node.size, kind))
            sizes[kind] = max(sizes.get(kind, 0), offset + node.size)
            self.locations[node] = (f"work_{kind.removesuffix('_t')}", offset)
            if node in self.targets:
                self.copies.append(node)
        return sizes

    def _intervals(self) -> Iterator[tuple[int, int, Node]]:
        """Yield nodes that need a buffer, with the groups between which they need it.

        A next state is written in place if the state before is not read later. A node that only its
        group reads is a local variable.
        """
        state = {array: name for name, array in self.names.items()}
        inputs = {node.detail: node for node in self.order if node.kind == "input"}
        for node in [node for node in self.order if node in self.stored]:
            group, reads = self.group_of[node], self.readers.get(node, [])
            target = self.targets.get(node)
            if target is not None:
                before = inputs.get(state.get(target, ""))
                readers = [] if before is None else self.readers.get(before, [])
                if all(at < group or (at == group and direct) for at, direct in readers):
                    self.locations[node] = (target, 0)
                else:
                    yield group, len(self.groups), node
            elif any(at != group for at, _ in reads) or not self.groups[group].elementwise:
                yield group, max([group, *[at for at, _ in reads]]), node

    def _element(self, node: Node, index: str) -> str:
        array, offset = self.locations[node]
        return f"{array}[{index}]" if not offset else f"{array}[{offset} + {index}]"

    # Text

    def code(self) -> Code:
        """Return the statements of all groups."""
        lines: list[str] = []
        for at, group in enumerate(self.groups):
            node = group.nodes[0]
            if group.elementwise:
                lines += self._elementwise(at, group)
            elif node.kind == "product":
                lines += self._product(node)
            elif node.kind == "reduce":
                lines += self._reduce(node)
            else:
                lines += self._concat(node)
        for node in self.copies:
            at = Index.variable("i", node.size).text()
            copy = f"{self.targets[node]}[{at}] = {self._element(node, at)};"
            lines += _loop("i", node.size, [copy])
        return Code(lines, self.work, self.helpers, self.products, self.operations)

    def _elementwise(self, at: int, group: Group) -> list[str]:
        body, stores = _Body(self, at), []
        for node in group.nodes:
            indices = _loop_indices(node.shape)
            value = body.value(node, indices)
            if node in self.locations:
                stores.append(f"{self._element(node, node.flat(indices).text())} = {value};")
        self._count(body, group.nodes[0].size)
        return _nest(group.shape, body.lines + stores)

    def _count(self, body: _Body, times: int) -> None:
        for name in body.operations:
            self.operations[name] = self.operations.get(name, 0) + times

    def _reduce(self, node: Node) -> list[str]:
        (arg,), axes, kind = node.args, node.detail, TYPES[node.dtype]
        indices = list(_loop_indices(node.shape))
        loops: list[tuple[str, int]] = []
        for number, axis in enumerate(axes):
            indices[axis] = Index.variable(f"r{number}", arg.shape[axis])
            loops.append((f"r{number}", arg.shape[axis]))
        body = _Body(self, self.group_of[node])
        value = body.value(arg, tuple(indices))
        element = self._element(node, node.flat(_loop_indices(node.shape)).text())
        self._count(body, arg.size)
        self.operations["add"] = self.operations.get("add", 0) + arg.size
        if node.operator == "sum":
            inner, start = [f"total += {value};"], [f"{kind} total = 0;"]
            return _nest(
                _squeezed(node.shape),
                [*start, *_loops(loops, body.lines + inner), f"{element} = total;"],
            )
        better = ">" if "max" in node.operator else "<"
        if len(axes) > 1 and "arg" in node.operator:
            raise OptionError("There is no C code for a position along several dimensions.")
        first = " && ".join(f"{name} == 0" for name, size in loops if size > 1) or "1"
        start = [f"{TYPES[arg.dtype]} best = 0;"]
        update = [f"best = {value};"]
        result = "best"
        if "arg" in node.operator:
            start.append("int32_t position = 0;")
            update.append(f"position = {loops[0][0] if loops[0][1] > 1 else '0'};")
            result = "position"
        inner = [f"if ({first} || {value} {better} best) {{", *_indent(update), "}"]
        return _nest(
            _squeezed(node.shape),
            [*start, *_loops(loops, body.lines + inner), f"{element} = {result};"],
        )

    def _concat(self, node: Node) -> list[str]:
        lines, offset = [], 0
        for part in node.args:
            body = _Body(self, self.group_of[node])
            indices = _loop_indices(part.shape)
            value = body.value(part, indices)
            target = list(indices)
            target[node.detail] = target[node.detail] + offset
            offset += part.shape[node.detail]
            self._count(body, part.size)
            store = f"{self._element(node, node.flat(target).text())} = {value};"
            lines += _nest(_squeezed(part.shape), [*body.lines, store])
        return lines

    def _product(self, node: Node) -> list[str]:
        x, weight = node.args[:2]
        matrix = weight.detail
        outputs, inputs = matrix.shape
        rows = _squeezed(x.shape[:-1])
        outer = _loop_indices(x.shape[:-1])
        column = Index.variable("o", outputs)
        element = self._element(node, node.flat((*outer, column)).text())
        self.products += matrix.numel() * (node.size // outputs)
        scale = None
        if self.constants.int8 and matrix.dtype != torch.int8:
            matrix, scale = quantise(matrix)
        array = self.constants.name(matrix.T)
        body, addend = _Body(self, self.group_of[node]), "0"
        if len(node.args) > 2:
            addend = body.value(node.args[2], align((*outer, column), node.args[2].shape))
        lines, finish = _loop("o", outputs, [*body.lines, f"{element} = {addend};"]), []
        if scale is not None:
            lines = _loop("o", outputs, [f"{element} = 0;"])
            total = f"{element} * {self.constants.name(scale)}[{column.text()}] + {addend}"
            finish = _loop("o", outputs, [*body.lines, f"{element} = {total};"])
        blocks = inputs // BLOCK
        if blocks:
            block = Index.variable("k", blocks) * BLOCK
            lines += _loop(
                "k", blocks, self._columns(node, block, range(BLOCK), array, element, scale)
            )
        if inputs % BLOCK:
            block, rest = Index((), blocks * BLOCK), range(inputs % BLOCK)
            lines += ["{", *_indent(self._columns(node, block, rest, array, element, scale)), "}"]
        return _nest(rows, lines + finish)

    def _columns(
        self, node: Node, block: Index, columns: range, array: str, element: str, scale: Any
    ) -> list[str]:
        """Return the statements that multiply some columns of a matrix."""
        x, outputs = node.args[0], node.args[1].detail.shape[0]
        body = _Body(self, self.group_of[node])
        outer, terms = _loop_indices(x.shape[:-1]), []
        for at in columns:
            value = body.value(x, (*outer, block + at))
            if not value.isidentifier():
                value = body.local(value, TYPES[x.dtype])
            entry = (block + at) * outputs + Index.variable("o", outputs)
            weight = f"{array}[{entry.text()}]"
            terms.append(f"{weight if scale is None else f'(float){weight}'} * {value}")
        self._count(body, max(1, block.maximum // BLOCK + 1))
        return body.lines + _loop("o", outputs, [f"{element} += {' + '.join(terms)};"])


class _Body:
    """The body of a loop: local variables, each computed once."""

    def __init__(self, lowering: _Lowering, group: int) -> None:
        self.lowering, self.group = lowering, group
        self.lines: list[str] = []
        self.operations: list[str] = []
        self._cache: dict[Any, str] = {}

    def local(self, expression: str, kind: str) -> str:
        """Return a new local variable with a value."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"const {kind} {name} = {expression};")
        return name

    def value(self, node: Node, indices: Indices) -> str:
        """Return an element of a tensor, as a literal or a local variable."""
        lowering = self.lowering
        if node.kind == "view":
            return self.value(node.args[0], node.detail(indices))
        if node.kind == "constant" and (text := _uniform(node.detail)) is not None:
            return text
        position = node.flat(indices)
        key = (node, position)
        if key in self._cache:
            return self._cache[key]
        kind = TYPES[node.dtype]
        if node.kind == "constant":
            expression = f"{lowering.constants.name(node.detail)}[{position.text()}]"
        elif node.kind == "input":
            expression = f"{lowering.names[node.detail]}[{position.text()}]"
        elif node in lowering.stored and lowering.group_of[node] != self.group:
            expression = lowering._element(node, position.text())
        else:
            expression = self._operation(node, indices)
        self._cache[key] = self.local(expression, kind)
        return self._cache[key]

    def _operation(self, node: Node, indices: Indices) -> str:
        args = [self.value(arg, align(indices, arg.shape)) for arg in node.args]
        name, double = node.operator, node.dtype == torch.float64
        self.operations.append(name)
        if name == "cast":
            kind = TYPES[node.dtype]
            return f"{args[0]} != 0" if node.dtype == torch.bool else f"({kind}){args[0]}"
        if name in EXPRESSIONS:
            text = EXPRESSIONS[name].format(*args)
            return text.replace("1.0f", "1.0") if double else text
        if name not in HELPERS:
            raise OptionError(f"There is no C code for the operator '{name}'.")
        self.lowering.helpers.add(name)
        prefix = self.lowering.constants.prefix
        if node.detail is not None:  # a table of the operator
            args.insert(0, self.lowering.constants.name(node.detail))
        if double:  # the argument is a time or a mean; the result is a feature in float32
            args = [f"(float){arg}" for arg in args]
        call = f"{prefix}_{name}({', '.join(args)})"
        return f"(double){call}" if double else call


def quantise(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return a matrix (rows, columns) as 8-bit integers, and the scale of each row."""
    scale = matrix.abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return (matrix / scale.unsqueeze(1)).round().clamp(-127, 127).to(torch.int8), scale


def literal(number: float | int | bool, dtype: torch.dtype) -> str:
    """Return a number as a C literal."""
    if not dtype.is_floating_point:
        return str(int(number))
    if dtype == torch.float32:
        number = float(torch.tensor(number, dtype=dtype))
    if number != number or number in (float("inf"), float("-inf")):
        name = "UNDAMPED_NAN" if number != number else "UNDAMPED_INFINITY"
        return f"(-{name})" if number == float("-inf") else name
    text = repr(number) if dtype == torch.float64 else f"{number:.9g}"
    text = text if any(c in text for c in ".e") else f"{text}.0"
    text = text if dtype == torch.float64 else f"{text}f"
    return f"({text})" if number < 0 or text.startswith("-") else text


def _uniform(tensor: Tensor) -> str | None:
    """Return the literal of a tensor whose elements are all the same."""
    flat = tensor.flatten()
    if not bool((flat == flat[0]).all()) and not bool(flat.isnan().all()):
        return None
    return literal(flat[0].item(), tensor.dtype)


def base_of(node: Node) -> Node:
    """Return the tensor of which a node is a view."""
    while node.kind == "view":
        node = node.args[0]
    return node


def _cost(node: Node) -> int:
    return _FUNCTION_COST if node.operator in HELPERS else _COSTS.get(node.operator, 1)


def _domain(node: Node) -> int:
    """Return how often the arguments of a node are read."""
    return max([arg.size for arg in node.args]) if node.kind in ("reduce", "product") else node.size


def topological(outputs: list[Node]) -> list[Node]:
    """Return all nodes of a graph, each after those that it reads."""
    order: dict[Node, None] = {}
    pending = [(node, False) for node in reversed(outputs)]
    while pending:
        node, ready = pending.pop()
        if node in order:
            continue
        if ready:
            order[node] = None
        else:
            pending += [(node, True), *[(arg, False) for arg in reversed(node.args)]]
    return list(order)


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size > 1)


def _loop_indices(shape: tuple[int, ...]) -> Indices:
    """Return the indices of an element inside the loops over a shape."""
    names, indices = iter("ijlmn"), []
    for size in shape:
        indices.append(Index.variable(next(names), size) if size > 1 else Index())
    return tuple(indices)


def _first_fit(live: list[tuple[int, int, int, str]], size: int) -> int:
    offset = 0
    for _, start, length, _ in sorted(live, key=lambda entry: entry[1]):
        if offset + size <= start:
            break
        offset = max(offset, start + length)
    return offset


def _indent(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _loop(name: str, count: int, body: list[str]) -> list[str]:
    if count == 1:
        return ["{", *_indent(body), "}"]
    return [f"for (int {name} = 0; {name} < {count}; {name}++) {{", *_indent(body), "}"]


def _loops(loops: list[tuple[str, int]], body: list[str]) -> list[str]:
    for name, size in reversed(loops):
        body = _loop(name, size, body)
    return body


def _nest(shape: tuple[int, ...], body: list[str]) -> list[str]:
    """Return loops over a shape without dimensions of size 1."""
    return (
        _loops(list(zip("ijlmn", shape, strict=False)), body)
        if shape
        else ["{", *_indent(body), "}"]
    )
