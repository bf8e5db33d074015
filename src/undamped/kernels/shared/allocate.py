"""Memory for long sequences, in large pages where the system has them, and reused.

A fresh tensor of 64 MB is sixteen thousand small pages, and the system clears each when it is
first touched, which takes longer than a scan over it. On Linux NumPy asks for large pages for
arrays from 4 MB up; PyTorch does so only if told by the environment before it starts. Large pages
are cleared too, and are not in the cache. So some buffers of freed tensors are stored for later
ones: every chunk needs the same sizes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

PAGE = 2 << 20  # bytes of a large page; NumPy asks for them for arrays from two of them up
LINE = 64  # bytes; products and scans are fastest where rows start with a cache line
SHIFTS = 61
IDLE_BYTES = 192 << 20
"""The most bytes of unused buffers that are stored."""


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised contiguous tensor of the type and on the device of `like`."""
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or size < PAGE:
        return like.new_empty(tuple(shape))
    raw = np.asarray(_Lease(_idle.take(size), size))
    return torch.from_numpy(raw).view(like.dtype).view(tuple(shape))


def contiguous_copy(tensor: Tensor) -> Tensor:
    """Return a copy whose numbers lie one after the other."""
    plain = tensor.detach()
    return empty(plain.shape, plain).copy_(plain)


class _Idle:
    """Unused buffers; what was used last comes first, since it may still be in the cache.

    There is no lock: leases end wherever Python finds that they do, in any thread and in the
    middle of anything. Each step here is one that Python does not interrupt; threads that come
    between two of them may keep a little more or less than the limit.
    """

    def __init__(self) -> None:
        self.buffers: deque[np.ndarray] = deque()
        self.limit = IDLE_BYTES  # here, since the last leases end when the module is gone

    def take(self, size: int) -> np.ndarray:
        """Return a buffer of a size, used before or new."""
        bytes_needed = size + PAGE + LINE * SHIFTS
        for _ in range(len(self.buffers)):
            try:
                raw = self.buffers.pop()
            except IndexError:  # another thread was faster
                break
            if raw.size == bytes_needed:
                return raw
            self.buffers.appendleft(raw)
        return np.empty(bytes_needed, np.uint8)

    def give(self, raw: np.ndarray) -> None:
        """Store a buffer, and free those that were idle longest while there are too many."""
        self.buffers.append(raw)
        try:
            while sum(raw.size for raw in self.buffers) > self.limit:
                self.buffers.popleft()
        except (IndexError, RuntimeError):  # somebody came between, and counts too
            return


_idle = _Idle()


class _Lease:
    """A buffer in use; when the last array that refers to it is freed, it is idle again.

    Args:
        raw: The buffer.
        size: How many bytes of it are used.
    """

    def __init__(self, raw: np.ndarray, size: int) -> None:
        self.raw = raw
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (_begin(raw), False),
        }

    def __del__(self, give: Callable[[np.ndarray], None] = _idle.give) -> None:
        give(self.raw)


def _begin(raw: np.ndarray) -> int:
    """Return the address where a buffer begins: with a large page, so that all of them are whole.

    But not all at the same line of it: rows of several arrays would push each other out.
    """
    address = raw.ctypes.data
    return address + -address % PAGE + LINE * (address // PAGE * 13 % SHIFTS)
