"""Select the implementation of a scan; only this module looks at the device.

Numba kernels run on the CPU, Triton kernels on GPUs of NVIDIA and AMD, both of which torch calls
"cuda". A scan that has Triton kernels passes `gpu=True`.
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
    """A loop over time runs step by step on a GPU because Triton is not installed."""


@contextmanager
def plain_loops() -> Iterator[None]:
    """Context manager under which recurrences run as plain PyTorch loops, which are slower.

    The compiled kernels have first derivatives only. A forward pass under this context manager can
    be differentiated any number of times, and debuggers and hooks see every step.

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
    """Return whether compiled kernels are disabled, by `plain_loops` or a transform."""
    if torch.compiler.is_compiling():  # torch.compile cannot read a context variable
        return False
    return _PLAIN.get() or inside_transform()


@contextmanager
def interpreted_kernels() -> Iterator[None]:
    """Context manager under which Triton's interpreter runs GPU kernels on the CPU, very slowly.

    The variable TRITON_INTERPRET=1 has to be set before Triton is first imported.
    """
    token = _INTERPRETED.set(True)
    try:
        yield
    finally:
        _INTERPRETED.reset(token)


def implementation(*tensors: Tensor, gpu: bool = False) -> Implementation:
    """Return the implementation for these tensors.

    The compiled kernels support float32 and float64 on the CPU and, with `gpu`, on a GPU. While
    torch compiles, and for meta tensors, a kernel is one registered operator. The plain loop runs
    for other devices and dtypes, in transforms of `torch.func` and forward-mode differentiation,
    which need operations of torch, and under `plain_loops`.

    Args:
        tensors: All inputs of the kernel.
        gpu: Whether the scan has a Triton kernel.
    """
    first = tensors[0]
    kind = first.device.type
    ours = kind in ("cpu", "meta") or (gpu and kind == "cuda" and has_triton())
    if runs_as_operator(first):  # first: torch.compile cannot read context variables
        return "operator" if ours and _supported(tensors) else "reference"
    if _PLAIN.get() or first.is_meta or not _supported(tensors) or inside_transform():
        return "reference"
    if kind == "cuda" and gpu and not ours:
        warn_about_slow_loop()
    if not ours:
        return "reference"
    return "triton" if kind == "cuda" or (gpu and _INTERPRETED.get()) else "numba"


def on_gpu(*tensors: Tensor) -> bool:
    """Return whether a GPU kernel runs for these tensors, where the CPU has another kernel."""
    way = implementation(*tensors, gpu=True)
    return way == "triton" or (way == "operator" and tensors[0].is_cuda)


def runs_triton(tensor: Tensor) -> bool:
    """Return whether Triton kernels run for a tensor: on a GPU, or in `interpreted_kernels`."""
    return tensor.is_cuda or _INTERPRETED.get()


def runs_as_operator(tensor: Tensor) -> bool:
    """Return whether a registered operator replaces the kernel: while compiling, on meta."""
    return torch.compiler.is_compiling() or tensor.is_meta


def _supported(tensors: tuple[Tensor, ...]) -> bool:
    kind, device = tensors[0].dtype, tensors[0].device
    return kind in _FLOATS and all(t.device == device and t.dtype == kind for t in tensors)


@cache
def has_triton() -> bool:
    """Return whether Triton is installed; it is imported when a kernel first runs."""
    return find_spec("triton") is not None


@cache  # one warning per process
def warn_about_slow_loop() -> None:
    """Warn that a loop on a GPU runs step by step in PyTorch."""
    warnings.warn(
        "This network runs step by step in plain PyTorch, which is slow on a GPU: its kernels for "
        "GPUs need Triton. Install it with: pip install 'undamped[gpu]'",
        SlowLoopWarning,
        stacklevel=4,
    )


def inside_transform() -> bool:
    """Return whether a transform of `torch.func` or forward-mode differentiation is active."""
    if torch.compiler.is_compiling():  # torch.compile uses the registered operator
        return False
    return inside_functional_transform() or forward_mode_open()
