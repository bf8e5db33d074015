"""Which implementation of a scan runs: the one place that looks at the device.

A kernel for another device is one more module beside `oscillator_numba` and one more line in
`implementation`.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch._C import _functorch  # pyright: ignore[reportAttributeAccessIssue]
from torch.autograd import forward_ad

Implementation = Literal["numba", "reference"]


def implementation(*tensors: Tensor) -> Implementation:
    """Name the implementation for these tensors.

    The compiled kernels take float32 and float64 in the memory of the CPU. Everything else runs
    the plain loop: other devices and types, and tensors inside a transform of `torch.func` or
    forward-mode differentiation, which need operations they can see through.
    """
    first = tensors[0]
    fits = first.dtype in (torch.float32, torch.float64) and all(
        tensor.device.type == "cpu" and tensor.dtype == first.dtype for tensor in tensors
    )
    return "numba" if fits and not _inside_transform() else "reference"


def _inside_transform() -> bool:
    if torch.compiler.is_compiling():  # which sees the registered operator
        return False
    return _functorch.maybe_current_level() is not None or forward_ad._current_level >= 0
