"""Room for long sequences, in large pages where the system has them.

A fresh tensor of 64 MB is sixteen thousand small pages, and the system clears each when it is
first touched, which takes longer than a scan over it. On Linux NumPy asks for large pages for
arrays from 4 MB up; PyTorch does so only if told by the environment before it starts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import count

import numpy as np
import torch
from torch import Tensor

PAGE = 2 << 20  # bytes of a large page; NumPy asks for them for arrays from two of them up
LINE = 64  # bytes; products and scans are fastest where rows start with a cache line
SHIFTS = 61
_allocated = count()


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised contiguous tensor of the type and on the device of `like`."""
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or size < PAGE:
        return like.new_empty(tuple(shape))
    # Room for a page more, of which little is touched, so that ours begin where large ones do. But
    # not all at the same line: rows of several arrays at once would push each other out.
    shift = LINE * (next(_allocated) * 13 % SHIFTS)
    raw = np.empty(size + PAGE + LINE * SHIFTS, np.uint8)
    start = -raw.ctypes.data % PAGE + shift
    return torch.from_numpy(raw[start : start + size]).view(like.dtype).view(tuple(shape))


def contiguous_copy(tensor: Tensor) -> Tensor:
    """Return a copy whose numbers lie one after the other."""
    plain = tensor.detach()
    return empty(plain.shape, plain).copy_(plain)
