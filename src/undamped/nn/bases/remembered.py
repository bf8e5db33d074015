"""A value made from a module, remembered for as long as the module is the same, byte for byte.

An address and a version do not say that a tensor is the same: fused optimisers, `.data`, NumPy and
other processes write without raising the version, and an allocator gives one address to many
tensors. So the bytes themselves are kept and compared: a pass over the parameters, where an
exponential or a linear system costs a hundred times that.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from undamped.kernels.dispatch import inside_transform

T = TypeVar("T")
_TENSORS = frozenset((Tensor, nn.Parameter))
_NUMBERS = frozenset((bool, int, float, str))


class Remembered(Generic[T]):
    """One value, and a copy of the tensors and numbers of the module it was made from.

    Copies and pickles of it start empty.

    Example:
        >>> memory = Remembered()
        >>> matrix = memory.get(cell, cell.constants)
    """

    def __init__(self) -> None:
        self._kept: tuple[list[_Copy], list[Any], T] | None = None

    def __reduce__(self) -> tuple[type[Remembered[T]], tuple[()]]:
        return type(self), ()

    def get(self, module: nn.Module, make: Callable[[], T]) -> T:
        """Return what `make` returns for the module as it is now; ask `may_remember` first."""
        tensors, numbers = contents(module)
        kept = self._kept
        if kept is not None and kept[1] == numbers and _same(kept[0], tensors):
            return kept[2]
        self._kept = None
        if not tensors or not all(_plain(tensor) for tensor in tensors):
            return make()
        copies = [_Copy(tensor) for tensor in tensors]
        value = make()
        if _same(copies, tensors):  # nobody wrote in between
            self._kept = (copies, numbers, value)
        return value


def may_remember() -> bool:
    """Say whether values may outlive a call.

    They may not while a gradient, a compiler or a transform wants to see how they are made.
    """
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling() or inside_transform())


def contents(module: nn.Module) -> tuple[list[Tensor], list[Any]]:
    """Return every tensor and every plain number of a module and of those inside it.

    The tree is walked by hand, since `parameters` and `buffers` cost more than a step of a small
    network.
    """
    tensors: list[Tensor] = []
    numbers: list[Any] = []
    modules = [module]
    while modules:
        one = modules.pop()
        inside = vars(one)
        numbers += [value for value in inside.values() if type(value) in _NUMBERS]
        for group in (inside["_parameters"], inside["_buffers"]):
            tensors += [tensor for tensor in group.values() if tensor is not None]
        modules += [child for child in inside["_modules"].values() if child is not None]
    return tensors, numbers


def _plain(tensor: Tensor) -> bool:
    return type(tensor) in _TENSORS and tensor.device.type != "meta"


def _same(copies: list[_Copy], tensors: list[Tensor]) -> bool:
    return len(copies) == len(tensors) and all(
        copy.equals(tensor) for copy, tensor in zip(copies, tensors, strict=True)
    )


class _Copy:
    """A tensor as it was.

    Args:
        tensor: The tensor, which is copied.
    """

    __slots__ = ("bytes", "device", "dtype", "in_memory", "pointer", "shape", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self.pointer, self.bytes = self.tensor.data_ptr(), self.tensor.nbytes
        self.in_memory = tensor.is_cpu and _compare is not None

    def equals(self, tensor: Tensor) -> bool:
        """Say whether a tensor is alike in type, device, shape and every bit."""
        # Every microsecond counts: this runs for each parameter at each step.
        if tensor.dtype is not self.dtype or tensor.shape != self.shape:
            return False
        if type(tensor) not in _TENSORS:
            return False
        if self.in_memory and tensor.is_cpu and tensor.is_contiguous():
            assert _compare is not None
            return _compare(self.pointer, tensor.data_ptr(), self.bytes) == 0
        # As bytes, since of numbers 0 would equal −0, and NaN nothing.
        return tensor.device == self.device and torch.equal(_bytes(self.tensor), _bytes(tensor))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _memory_comparison() -> Callable[[int, int, int], int] | None:
    """Return C's memcmp, some ten times as fast as `torch.equal`; none where there is none."""
    if sys.platform == "win32":
        return None
    compare = ctypes.PyDLL(None).memcmp  # handing over the interpreter would cost as much again
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    compare.restype = ctypes.c_int
    return compare


_compare = _memory_comparison()
