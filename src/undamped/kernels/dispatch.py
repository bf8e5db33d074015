"""Which implementation of a scan runs: the one place that looks at the device.

Numba's kernels are for the CPU, Triton's for GPUs of NVIDIA and AMD, both of which torch calls
"cuda". Whoever has kernels of both kinds says so (`gpu=True`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch
from torch import Tensor

from undamped._base.torch_internals import forward_mode_open, inside_functional_transform

Implementation = Literal["numba", "triton", "operator", "reference"]
_PLAIN = ContextVar("plain loops", default=False)
_INTERPRETED = ContextVar("Triton's kernels on the CPU", default=False)
_FLOATS = (torch.float32, torch.float64)


class SlowLoopWarning(RuntimeWarning):
    """A loop over time runs step by step on a GPU, for want of Triton."""


@contextmanager
def plain_loops() -> Iterator[None]:
    """Iterate time in plain PyTorch while this lasts: slow, and open to everything torch does.

    The compiled kernels have first derivatives only. A pass made in here can be differentiated any
    number of times, and a debugger or a hook sees every step.

    Example:
        >>> with undamped.plain_loops():
        ...     output, _ = undamped.nn.LSTM(3, 16)(torch.randn(50, 4, 3, requires_grad=True))
    """
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def use_plain_loops() -> bool:
    """Say whether everything that happens must be seen: in `plain_loops` and in transforms."""
    if torch.compiler.is_compiling():  # which cannot read a context variable
        return False
    return _PLAIN.get() or inside_transform()


@contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Take the kernels for GPUs on the CPU while this lasts: by Triton's interpreter, very slowly.

    The variable TRITON_INTERPRET=1 has to be set before Triton is first imported.
    """
    token = _INTERPRETED.set(True)
    try:
        yield
    finally:
        _INTERPRETED.reset(token)


def implementation(*tensors: Tensor, gpu: bool = False) -> Implementation:
    """Name the implementation for these tensors.

    The compiled kernels take float32 and float64, in the memory of the CPU or, with `gpu`, of a
    GPU. A compiler sees them as one registered operator, and so do tensors without numbers
    (`meta`). Everything else runs the plain loop: other devices and types, tensors inside a
    transform of `torch.func` or forward-mode differentiation, which need operations they can see
    through, and whatever is inside `plain_loops`.

    Args:
        tensors: All that the kernel would read.
        gpu: Whether there is a kernel for GPUs too.
    """
    first = tensors[0]
    kind = first.device.type
    ours = kind in ("cpu", "meta") or (gpu and kind == "cuda" and triton_is_there())
    if through_operator(first):  # the compiler can neither read a context variable nor a level
        return "operator" if ours and _alike(tensors) else "reference"
    if _PLAIN.get() or first.is_meta or not _alike(tensors) or inside_transform():
        return "reference"
    if kind == "cuda" and gpu and not ours:
        say_that_it_is_slow()
    if not ours:
        return "reference"
    return "triton" if kind == "cuda" or (gpu and _INTERPRETED.get()) else "numba"


def on_gpu(*tensors: Tensor) -> bool:
    """Say whether a kernel for GPUs takes these tensors, where the CPU has another one."""
    way = implementation(*tensors, gpu=True)
    return way == "triton" or (way == "operator" and tensors[0].is_cuda)


def runs_triton(tensor: Tensor) -> bool:
    """Whether Triton's kernels run for a tensor: on a GPU, or in `interpreted_kernels`."""
    return tensor.is_cuda or _INTERPRETED.get()


def through_operator(tensor: Tensor) -> bool:
    """Whether somebody is tracing, or there are no numbers: one operator stands for the kernel."""
    return torch.compiler.is_compiling() or tensor.is_meta


def _alike(tensors: tuple[Tensor, ...]) -> bool:
    kind, device = tensors[0].dtype, tensors[0].device
    return kind in _FLOATS and all(t.device == device and t.dtype == kind for t in tensors)


@cache
def triton_is_there() -> bool:
    """Say whether Triton is installed; it is imported when a kernel first runs."""
    return find_spec("triton") is not None


@cache  # said once
def say_that_it_is_slow() -> None:
    """Warn that a GPU makes the steps of a loop one by one."""
    warnings.warn(
        "this network goes through time step by step in plain PyTorch, which is slow on a GPU: its "
        "kernels there need Triton. Install it with: pip install 'undamped[gpu]'",
        SlowLoopWarning,
        stacklevel=4,
    )


def inside_transform() -> bool:
    """Say whether a transform of `torch.func` or forward-mode differentiation is going on."""
    if torch.compiler.is_compiling():  # which sees the registered operator
        return False
    return inside_functional_transform() or forward_mode_open()
