"""Values that are computed from the parameters of a module once, and how they are computed.

`ModuleCache` keeps a value as long as the module is the same, byte for byte. Address and version do
not tell whether a tensor has changed: fused optimisers, `.data`, NumPy and other processes write
without raising the version, and an allocator reuses addresses. So the bytes are copied and
compared, which is a hundred times cheaper than an exponential or a linear system.

`on_one_thread` computes small matrices with a single thread. An exponential of a small matrix
is many small products; threads of the matrix library would synchronise at each of them, which on a
busy machine takes a hundred times as long as the arithmetic (`kernels.shared.threads`).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

from undamped.kernels.dispatch import inside_transform
from undamped.kernels.shared.threads import single_threaded

T = TypeVar("T")
Tensors = tuple[Tensor, ...]
_TENSORS = frozenset((Tensor, nn.Parameter))
_NUMBERS = frozenset((bool, int, float, str))


class ModuleCache(Generic[T]):
    """One value, and a copy of the tensors and numbers of the module it was computed from.

    Copies and pickles of the cache are empty.

    Example:
        >>> cache = ModuleCache()
        >>> matrix = cache.get(cell, cell.constants)
    """

    def __init__(self) -> None:
        self._entry: tuple[list[_Copy], list[Any], T] | None = None

    def __reduce__(self) -> tuple[type[ModuleCache[T]], tuple[()]]:
        return type(self), ()

    def get(self, module: nn.Module, compute: Callable[[], T]) -> T:
        """Return `compute()`, or its last result if the module has not changed since.

        Call `may_cache` first.
        """
        tensors, numbers = contents(module)
        entry = self._entry
        if entry is not None and entry[1] == numbers and _same(entry[0], tensors):
            return entry[2]
        self._entry = None
        if not tensors or not all(_plain(tensor) for tensor in tensors):
            return compute()
        copies = [_Copy(tensor) for tensor in tensors]
        value = compute()
        if _same(copies, tensors):  # another thread may have written meanwhile
            self._entry = (copies, numbers, value)
        return value


def may_cache() -> bool:
    """Return whether values may be reused: not under autograd, a compiler or a transform."""
    return not (torch.is_grad_enabled() or torch.compiler.is_compiling() or inside_transform())


def contents(module: nn.Module) -> tuple[list[Tensor], list[Any]]:
    """Return every tensor and every plain number of a module and of its submodules.

    The tree is traversed by hand, since `parameters` and `buffers` cost more than a step of a small
    network.
    """
    tensors: list[Tensor] = []
    numbers: list[Any] = []
    modules = [module]
    while modules:
        attributes = vars(modules.pop())
        numbers += [value for value in attributes.values() if type(value) in _NUMBERS]
        for group in (attributes["_parameters"], attributes["_buffers"]):
            tensors += [tensor for tensor in group.values() if tensor is not None]
        modules += [child for child in attributes["_modules"].values() if child is not None]
    return tensors, numbers


def _plain(tensor: Tensor) -> bool:
    return type(tensor) in _TENSORS and tensor.device.type != "meta"


def _same(copies: list[_Copy], tensors: list[Tensor]) -> bool:
    return len(copies) == len(tensors) and all(
        copy.equals(tensor) for copy, tensor in zip(copies, tensors, strict=True)
    )


class _Copy:
    """A copy of a tensor, to be compared with the tensor later."""

    __slots__ = ("bytes", "device", "dtype", "in_memory", "pointer", "shape", "tensor")

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor.detach().clone(memory_format=torch.contiguous_format)
        self.shape, self.dtype, self.device = tensor.shape, tensor.dtype, tensor.device
        self.pointer, self.bytes = self.tensor.data_ptr(), self.tensor.nbytes
        self.in_memory = tensor.is_cpu and _compare is not None

    def equals(self, tensor: Tensor) -> bool:
        """Return whether a tensor has the same type, device, shape and bits."""
        # Every microsecond counts: this runs for each parameter at each step.
        if tensor.dtype is not self.dtype or tensor.shape != self.shape:
            return False
        if type(tensor) not in _TENSORS:
            return False
        if self.in_memory and tensor.is_cpu and tensor.is_contiguous():
            assert _compare is not None
            return _compare(self.pointer, tensor.data_ptr(), self.bytes) == 0
        # As bytes: as numbers 0 would equal −0, and NaN would equal nothing.
        return tensor.device == self.device and torch.equal(_bytes(self.tensor), _bytes(tensor))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _memory_comparison() -> Callable[[int, int, int], int] | None:
    """Return C's memcmp, about ten times as fast as `torch.equal`; None on Windows."""
    if sys.platform == "win32":
        return None
    compare = ctypes.PyDLL(None).memcmp  # releasing the interpreter lock would double the cost
    compare.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    compare.restype = ctypes.c_int
    return compare


_compare = _memory_comparison()


def on_one_thread(compute: Callable[[], Tensors], sources: Tensors) -> Tensors:
    """Return `compute()`, computed and differentiated by one thread.

    Args:
        compute: Computes tensors from the sources, without arguments.
        sources: All tensors that `compute` reads; the results are differentiable by them.
    """
    differentiable = tuple(source for source in sources if source.requires_grad)
    if not differentiable or not torch.is_grad_enabled():
        with single_threaded():
            return compute()
    return _OnOneThread.apply(compute, *differentiable)  # type: ignore[return-value]


class _OnOneThread(torch.autograd.Function):
    """Differentiates a separate graph by one thread; autograd itself would use all of them."""

    @staticmethod
    def forward(ctx: Any, compute: Callable[[], Tensors], *sources: Tensor) -> Tensors:
        with single_threaded(), torch.enable_grad():
            ctx.results = compute()
        ctx.save_for_backward(*sources)
        return tuple(result.detach() for result in ctx.results)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> Any:  # type: ignore[override]
        pairs = [
            (result, grad)
            for result, grad in zip(ctx.results, grad_outputs, strict=True)
            if result.requires_grad
        ]
        with single_threaded():
            gradients = torch.autograd.grad(
                [result for result, _ in pairs],
                ctx.saved_tensors,
                [grad for _, grad in pairs],
                retain_graph=True,  # for a second backward pass through the outer graph
                create_graph=torch.is_grad_enabled(),
                allow_unused=True,
            )
        return None, *gradients
