"""Pickles of plain data, read without unpickling: nothing in the file is ever called.

A pickle is a program. `pickletools` splits it into opcodes without running it, and the interpreter
here supports only those that build dicts, lists, tuples, strings, bytes and numbers, and the
pickled form of a NumPy array. Everything else is refused.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from undamped._base.errors import DataError, shortened

_ARRAY_MAKERS = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_NAMES = {"numpy ndarray", "numpy dtype", *_ARRAY_MAKERS}
_NUMBERS = {"u1", "i1", "i2", "i4", "i8", "f4", "f8"}

_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {"BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG", "BINFLOAT"}
_TEXTS = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_OLD_TEXTS = {"BINSTRING", "SHORT_BINSTRING"}  # strings and bytes of Python 2
_STORE = {"BINPUT", "LONG_BINPUT", "PUT"}
_LOAD = {"BINGET", "LONG_BINGET", "GET"}
_SKIPPED = {"PROTO", "FRAME"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_LONGEST = 10_000_000  # opcodes; a file of CIFAR has 50 thousand


class _RefusalError(Exception):
    """The pickle contains something that plain data never needs."""


@dataclass(frozen=True)
class _Name:
    """A name in the pickle; it is compared, never imported."""

    name: str


@dataclass
class _Kind:
    """A NumPy dtype that is being read."""

    code: str
    order: str = "|"


@dataclass
class _Array:
    """A NumPy array that is being read."""

    values: np.ndarray | None = None


def read_pickled(path: Path) -> Any:
    """Read a pickle of dicts, lists, strings, bytes, numbers and NumPy arrays.

    Strings of Python 2 are returned as bytes.

    Args:
        path: The file.

    Example:
        >>> read_pickled(Path("data_batch_1"))[b"labels"][:3]
        [6, 9, 9]
    """
    try:
        # From memory, so that a length in the file never makes Python reserve more than it has.
        return _plain(_Machine().run(io.BytesIO(path.read_bytes())), {})
    except _RefusalError as refusal:
        problem = str(refusal)
    except OSError as error:
        problem = error.strerror or "it cannot be read"
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, MemoryError):
        problem = "it is damaged"
    raise DataError(
        f"{path} is not a pickle of plain data (dicts, lists, strings, numbers, arrays): "
        f"{shortened(problem)}. Nothing in it was executed; fetch the file again, or convert it to "
        ".npz."
    )


class _Machine:
    """An interpreter of the opcodes of plain data; a mark starts a new stack."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.special: dict[str, Callable[[Any], None]] = {
            "MARK": lambda _: self._mark(),
            "EMPTY_DICT": lambda _: self.stack.append({}),
            "EMPTY_LIST": lambda _: self.stack.append([]),
            "MEMOIZE": lambda _: self.memo.update({len(self.memo): self.stack[-1]}),
            "APPEND": lambda _: self._extend([self.stack.pop()]),
            "APPENDS": lambda _: self._extend(self._group()),
            "SETITEM": lambda _: self._fill([self.stack.pop() for _ in range(2)][::-1]),
            "SETITEMS": lambda _: self._fill(self._group()),
            "TUPLE": lambda _: self._push(tuple(self._group())),
            "GLOBAL": self._name,
            "STACK_GLOBAL": lambda _: self._name(
                " ".join([self.stack.pop() for _ in range(2)][::-1])
            ),
            "REDUCE": lambda _: self._reduce(),
            "BUILD": lambda _: self._build(),
        }

    def run(self, file: Any) -> Any:
        """Execute the opcodes and return the object they build."""
        for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
            name = opcode.name
            if count > _LONGEST:
                raise _RefusalError(f"it has more than {_LONGEST:,} opcodes")
            if name == "STOP":
                if self.below:
                    raise ValueError
                (result,) = self.stack
                return result
            self._step(name, argument)
        raise _RefusalError("it is truncated")

    def _step(self, name: str, argument: Any) -> None:
        if name in _SKIPPED:
            return
        if name in _LITERALS or name in _TEXTS or name in _BYTES:
            self.stack.append(argument)
        elif name in _OLD_TEXTS:
            self.stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _STORE:
            self.memo[argument] = self.stack[-1]
        elif name in _LOAD:
            self.stack.append(self.memo[argument])
        elif name in _TUPLES:
            count = _TUPLES[name]
            self.stack[-count:] = [tuple(self.stack[-count:])]
        elif name in self.special:
            self.special[name](argument)
        else:
            raise _RefusalError(f"it has the opcode {name}")

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def _group(self) -> list[Any]:
        group, self.stack = self.stack, self.below.pop()
        return group

    def _extend(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], list):
            raise TypeError
        self.stack[-1].extend(items)

    def _fill(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise TypeError
        # Hashing a tuple of tuples with common elements can take exponential time.
        if not all(isinstance(key, (str, bytes, int)) for key in items[::2]):
            raise TypeError
        self.stack[-1].update(zip(items[::2], items[1::2], strict=True))

    def _name(self, name: str) -> None:
        if name not in _NAMES:
            raise _RefusalError(f"it calls {name.replace(' ', '.')!r}")
        self.stack.append(_Name(name))

    def _reduce(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if not isinstance(function, _Name) or not isinstance(arguments, tuple):
            raise TypeError
        if function.name == "numpy dtype":
            code = _text(arguments[0])
            if code not in _NUMBERS:
                raise _RefusalError(f"it has an array of dtype {code!r}")
            self.stack.append(_Kind(code))
        elif function.name in _ARRAY_MAKERS:
            self.stack.append(_Array())
        else:
            raise _RefusalError(f"it calls {function.name.replace(' ', '.')!r}")

    def _build(self) -> None:
        state, built = self.stack.pop(), self.stack[-1]
        if isinstance(built, _Kind):
            built.order = _text(state[1])
        elif isinstance(built, _Array):
            _, shape, kind, by_columns, content = state
            built.values = _array(shape, kind, by_columns, content)
        else:
            raise _RefusalError("it sets the state of an object")


def _text(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _array(shape: Any, kind: Any, by_columns: Any, content: Any) -> np.ndarray:
    if not isinstance(kind, _Kind) or not isinstance(content, bytes) or kind.order not in "<>=|":
        raise TypeError
    dtype = np.dtype(kind.order + kind.code)
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0 or math.prod(sizes) * dtype.itemsize != len(content):
        raise ValueError
    return np.frombuffer(content, dtype).reshape(sizes, order="F" if by_columns else "C")


def _plain(value: Any, ready: dict[int, Any]) -> Any:
    """Return a value with NumPy arrays in it; incomplete ones are refused.

    Args:
        value: The value.
        ready: Results for containers, by identity: one that occurs many times is copied once, and
            one that contains itself is refused.
    """
    if isinstance(value, _Array):
        if value.values is None:
            raise ValueError
        return value.values
    if isinstance(value, (_Name, _Kind)):
        raise TypeError
    if not isinstance(value, (dict, list, tuple)):
        return value
    if id(value) in ready:
        if ready[id(value)] is None:
            raise ValueError
        return ready[id(value)]
    ready[id(value)] = None
    if isinstance(value, dict):
        copied: Any = {key: _plain(item, ready) for key, item in value.items()}
    else:
        copied = type(value)(_plain(item, ready) for item in value)
    ready[id(value)] = copied
    return copied
