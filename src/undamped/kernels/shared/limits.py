"""Sizes that determine how a pass is divided into chunks, tiles and threads.

They change the time and the memory of a pass, and its results at most by rounding. A pass reads
them once, at its beginning, so that its backward pass is divided in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch


@dataclass(frozen=True)
class KernelLimits:
    """The limits of all passes; the defaults were measured.

    Args:
        batch_grain: Numbers per layer below which one thread is as fast as two.
        chunk_steps: Steps of a chunk of elementwise scans; by default as many as fit in the cache,
            and 512 on a GPU.
        anchors: Chunks of a reversible UnICORNN stack whose first states are stored.
        wide: Inputs of a layer per step from which its product costs more than memory.
        replay_bytes: Memory for values of tanh that replace a second product, for any length.
        inversion_tolerance: Allowed deviation of a run backwards in time from a stored state; by
            default 1e-5 in float32 and 1e-12 in float64.
        saved_bytes: Bytes that a pass in chunks may save for its backward pass, for any length.
        all_saved_bytes: If a stack of blocks needs less than this, all chunks are saved and none is
            recomputed. A layer without a block is cheap to recompute.
        tile_rows: Rows of a tile of a block; about eight arrays of them should fit in the cache of
            a core.
        tile_steps: The fewest steps of a tile; a state is stored at the beginning of each.
        tile_sequences: The most sequences that one pass over the tiles takes.
    """

    batch_grain: int = 1 << 18
    chunk_steps: int | None = None
    anchors: int = 64
    wide: int = 32
    replay_bytes: int = 64 << 20
    inversion_tolerance: float | None = None
    saved_bytes: int = 64 << 20
    all_saved_bytes: int = 640 << 20
    tile_rows: int = 256
    tile_steps: int = 16
    tile_sequences: int = 16


_DEFAULT = KernelLimits()
_LIMITS = ContextVar("kernel limits", default=_DEFAULT)


def current_limits() -> KernelLimits:
    """Return the current limits."""
    # A compiler cannot read a context variable.
    return _DEFAULT if torch.compiler.is_compiling() else _LIMITS.get()


@contextmanager
def kernel_limits(**changes: Any) -> Iterator[None]:
    """Context manager that changes some of the limits; see `KernelLimits`.

    Example:
        >>> with kernel_limits(saved_bytes=8 << 20):  # less memory, more recomputation
        ...     output, _ = undamped.nn.MinGRU(3, 16, block="layer-norm")(torch.randn(50, 4, 3))
    """
    token = _LIMITS.set(replace(_LIMITS.get(), **changes))
    try:
        yield
    finally:
        _LIMITS.reset(token)
