"""Room for long sequences, in large pages where the system has them, and used again.

A fresh tensor of 64 MB is sixteen thousand small pages, and the system clears each when it is
first touched, which takes longer than a scan over it. On Linux NumPy asks for large pages for
arrays from 4 MB up; PyTorch does so only if told by the environment before it starts. Large pages
are cleared too, and come from far away. So a little of the room of tensors that are gone is kept
for those to come: chunk after chunk asks for the same sizes.
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
"""How much room that nobody uses is kept at most."""


def empty(shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised contiguous tensor of the type and on the device of `like`."""
    size = math.prod(shape) * like.element_size()
    if like.device.type != "cpu" or size < PAGE:
        return like.new_empty(tuple(shape))
    buffer = np.asarray(_Lease(_idle.taken(size), size))
    return torch.from_numpy(buffer).view(like.dtype).view(tuple(shape))


def contiguous_copy(tensor: Tensor) -> Tensor:
    """Return a copy whose numbers lie one after the other."""
    plain = tensor.detach()
    return empty(plain.shape, plain).copy_(plain)


class _Idle:
    """Room that nobody uses; what was used last comes first, since it is still near.

    There is no lock: leases end wherever Python finds that they do, in any thread and in the
    middle of anything. Each step here is one that Python does not interrupt; threads that come
    between two of them may keep a little more or less than the limit.
    """

    def __init__(self) -> None:
        self.found: deque[np.ndarray] = deque()
        self.limit = IDLE_BYTES  # here, since the last leases end when the module is gone

    def taken(self, size: int) -> np.ndarray:
        """Return room of a size, used before or new."""
        bytes_needed = size + PAGE + LINE * SHIFTS
        for _ in range(len(self.found)):
            try:
                raw = self.found.pop()
            except IndexError:  # another thread was faster
                break
            if raw.size == bytes_needed:
                return raw
            self.found.appendleft(raw)
        return np.empty(bytes_needed, np.uint8)

    def give(self, raw: np.ndarray) -> None:
        """Keep room, and let go of what was idle longest while there is too much of it."""
        self.found.append(raw)
        try:
            while sum(buffer.size for buffer in self.found) > self.limit:
                self.found.popleft()
        except (IndexError, RuntimeError):  # somebody came between, and counts too
            return


_idle = _Idle()


class _Lease:
    """Room that somebody uses; when the last array that looks into it is gone, it is idle again.

    Args:
        raw: The room.
        size: How many bytes of it are wanted.
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
    """Return the address where room begins: with a large page, so that all of them are whole.

    But not all at the same line of it: rows of several arrays would push each other out.
    """
    address = raw.ctypes.data
    return address + -address % PAGE + LINE * (address // PAGE * 13 % SHIFTS)
