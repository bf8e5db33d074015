"""Memory for long sequences, in large pages where the system has them, and reused.

A new tensor of 64 MB has sixteen thousand small pages, and the system clears each at its first
access, which takes longer than a scan over it. On Linux NumPy requests large pages for arrays from
4 MB on; PyTorch does so only if an environment variable is set before it starts. Large pages are
cleared too, and are not in the cache. So some buffers of freed tensors are kept for later ones:
every chunk needs the same sizes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

PAGE = 2 << 20  # bytes of a large page; NumPy requests them for arrays of at least two
LINE = 64  # bytes of a cache line; products and scans are fastest if rows start with one
SHIFTS = 61
IDLE_BYTES = 192 << 20
"""The most bytes of unused buffers that are kept."""


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised contiguous tensor of the type and on the device of `like`."""
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or size < PAGE:
        return like.new_empty(tuple(shape))
    raw = np.asarray(_Lease(_idle.take(size), size))
    return torch.from_numpy(raw).view(like.dtype).view(tuple(shape))


def contiguous_copy(tensor: Tensor) -> Tensor:
    """Return a contiguous copy."""
    plain = tensor.detach()
    return empty(plain.shape, plain).copy_(plain)


class _Idle:
    """Unused buffers; the last one used comes first, since it may still be in the cache.

    There is no lock: Python ends leases at any time, in any thread, also while a lock would be
    held. Each operation here is atomic; concurrent threads may keep a little more or less than the
    limit.
    """

    def __init__(self) -> None:
        self.buffers: deque[np.ndarray] = deque()
        self.limit = IDLE_BYTES  # the last leases end after the globals are cleared

    def take(self, size: int) -> np.ndarray:
        """Return a buffer of a size, an unused or a new one."""
        bytes_needed = size + PAGE + LINE * SHIFTS
        for _ in range(len(self.buffers)):
            try:
                raw = self.buffers.pop()
            except IndexError:  # another thread took it
                break
            if raw.size == bytes_needed:
                return raw
            self.buffers.appendleft(raw)
        return np.empty(bytes_needed, np.uint8)

    def release(self, raw: np.ndarray) -> None:
        """Keep a buffer, and free those that were idle longest while there are too many."""
        self.buffers.append(raw)
        try:
            while sum(raw.size for raw in self.buffers) > self.limit:
                self.buffers.popleft()
        except (IndexError, RuntimeError):  # another thread changes the list, and counts too
            return


_idle = _Idle()


class _Lease:
    """A buffer in use; it becomes idle when the last array that refers to it is freed.

    Args:
        raw: The buffer.
        size: The number of bytes in use.
    """

    def __init__(self, raw: np.ndarray, size: int) -> None:
        self.raw = raw
        self.__array_interface__: dict[str, Any] = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (_begin(raw), False),
        }

    def __del__(self, release: Callable[[np.ndarray], None] = _idle.release) -> None:
        release(self.raw)


def _begin(raw: np.ndarray) -> int:
    """Return the aligned start of a buffer: at a large page, so that all pages are whole.

    Starts differ in their cache line, since rows of several arrays would evict each other.
    """
    address = raw.ctypes.data
    return address + -address % PAGE + LINE * (address // PAGE * 13 % SHIFTS)
