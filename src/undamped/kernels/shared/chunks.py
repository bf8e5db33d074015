"""The number of time steps of a chunk.

A chunk of steps runs through all layers before the next one starts. It should be long enough for
large matrix products and few calls, and short enough for the arrays of the backward pass to stay in
the last-level cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

FALLBACK = 8 << 20


@cache
def cache_bytes() -> int:
    """Return the size of the last-level cache in bytes, 8 MB if it is unknown."""
    sizes = []
    for entry in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = entry.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20}.get(text[-1:])
        if unit and text[:-1].isdigit():
            sizes.append(int(text[:-1]) * unit)
    return max(sizes, default=FALLBACK)


@dataclass(frozen=True)
class Limits:
    """Limits of the steps and the bytes of a chunk.

    Args:
        shortest: The fewest steps.
        longest: The most.
        cache_fraction: Of the last-level cache.
        most: The most bytes, for any size of the cache.
        multiple: The number of steps is a multiple of it, unless the sequence is shorter.
    """

    shortest: int
    longest: int
    cache_fraction: float
    most: int = 1 << 40
    multiple: int = 1


ELEMENTWISE = Limits(16, 1024, cache_fraction=0.75, multiple=16)
"""For scans of all layers, which leave cache for weights; multiples for `row_stable_matmul`."""
COUPLED = Limits(8, 64, cache_fraction=0.5, most=4 << 20)
"""For products at every step: the part of the cache for one thread."""


def chunk_length(steps: int, step_bytes: int, limits: Limits = ELEMENTWISE) -> int:
    """Return the number of steps of a chunk.

    Args:
        steps: Length of the sequence.
        step_bytes: Bytes of all arrays of a chunk per step.
        limits: The limits of this kind of chunk.
    """
    fitting = min(int(cache_bytes() * limits.cache_fraction), limits.most) // max(1, step_bytes)
    fitting -= fitting % limits.multiple
    return min(steps, max(limits.shortest, min(limits.longest, fitting)))


def scan_bytes(columns: int, layers: int, item_size: int) -> int:
    """Return the bytes of a step of elementwise layers.

    Each layer keeps positions, tanh and a gradient; one more buffer is shared.

    Args:
        columns: Batch × hidden units.
        layers: Number of layers.
        item_size: Bytes of a number.
    """
    return columns * item_size * (3 * layers + 1)


def replay_chunks(total: int, chunk: int, columns: int, layers: int, item_size: int) -> int:
    """Return the number of chunks whose values of tanh may be stored.

    Args:
        total: Bytes for all of them.
        chunk: Steps of a chunk.
        columns: Batch × hidden units.
        layers: Layers whose values are stored.
        item_size: Bytes of a number.
    """
    size = chunk * columns * layers * item_size
    return total // size if size else 0


def ranges(steps: int, chunk: int) -> list[tuple[int, int]]:
    """Return the first and the past-the-last step of each chunk."""
    return [(start, min(start + chunk, steps)) for start in range(0, steps, chunk)]


def remaining_steps(lengths: Tensor | None, start: int, stop: int) -> Any:
    """Return how many of the steps from `start` to `stop` each sequence has, as int64.

    None if all sequences have all of them. `lengths` (batch,) may have any integer dtype; it is
    converted because a small one would overflow in the subtraction.
    """
    if lengths is None or not len(lengths):
        return None
    ends = lengths.numpy().astype(np.int64)
    if ends.min() >= stop:
        return None
    return np.clip(ends - start, 0, stop - start)
