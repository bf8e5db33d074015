"""Which implementation of a scan runs: the one place that looks at the device.

A kernel for another device is one more module beside those compiled by Numba and one more line in
`implementation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal

import torch
from torch import Tensor

from undamped.torch_internals import forward_mode_open, inside_functional_transform

Implementation = Literal["numba", "operator", "reference"]
_PLAIN = ContextVar("plain loops", default=False)


@contextmanager
def plain_loops() -> Iterator[None]:
    """Iterate time in plain PyTorch while this lasts: slow, and open to everything torch does.

    The compiled kernels have first derivatives only. A pass made in here can be differentiated any
    number of times, and a debugger or a hook sees every step.

    Example:
        >>> with undamped.plain_loops():
        ...     output, _ = undamped.LSTM(3, 16)(torch.randn(50, 4, 3, requires_grad=True))
    """
    token = _PLAIN.set(True)
    try:
        yield
    finally:
        _PLAIN.reset(token)


def wants_plain_loops() -> bool:
    """Say whether everything that happens must be seen: in `plain_loops` and in transforms."""
    if torch.compiler.is_compiling():  # which cannot read a context variable
        return False
    return _PLAIN.get() or inside_transform()


def implementation(*tensors: Tensor) -> Implementation:
    """Name the implementation for these tensors.

    The compiled kernels take float32 and float64 in the memory of the CPU. A compiler sees them as
    one registered operator, and so do tensors without numbers (`meta`). Everything else runs the
    plain loop: other devices and types, tensors inside a transform of `torch.func` or
    forward-mode differentiation, which need operations they can see through, and whatever is
    inside `plain_loops`.
    """
    first = tensors[0]
    if through_operator(first):  # the compiler can neither read a context variable nor a level
        return "operator" if _fits(tensors, first.device.type) else "reference"
    if _PLAIN.get() or not _fits(tensors, "cpu") or inside_transform():
        return "reference"
    return "numba"


def through_operator(tensor: Tensor) -> bool:
    """Whether somebody is tracing, or there are no numbers: one operator stands for the kernel."""
    return torch.compiler.is_compiling() or tensor.is_meta


def _fits(tensors: tuple[Tensor, ...], device: str) -> bool:
    kind = tensors[0].dtype
    return (
        kind in (torch.float32, torch.float64)
        and device in ("cpu", "meta")
        and all(tensor.device.type == device and tensor.dtype == kind for tensor in tensors)
    )


def inside_transform() -> bool:
    """Say whether a transform of `torch.func` or forward-mode differentiation is going on."""
    if torch.compiler.is_compiling():  # which sees the registered operator
        return False
    return inside_functional_transform() or forward_mode_open()
