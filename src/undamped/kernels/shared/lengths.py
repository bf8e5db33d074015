"""How long sequences of a batch live: the one place that reads `lengths`."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor


def remaining_steps(lengths: Tensor | None, start: int, stop: int) -> Any:
    """Return how many of the steps from `start` to `stop` each sequence lives, as int64.

    None where all live on. `lengths` (batch,) may be whole numbers of any size: a small type
    would overflow when something is taken from it.
    """
    if lengths is None or not len(lengths):
        return None
    ends = lengths.numpy().astype(np.int64)
    if ends.min() >= stop:
        return None
    return np.clip(ends - start, 0, stop - start)


def remaining_by_column(
    lengths: Tensor | None, start: int, stop: int, hidden: int, unused: Any
) -> tuple[bool, Any]:
    """Say whether a sequence ends before `stop`, and how many steps each column lives.

    A column is one unit of one sequence. Counts are kept as numbers of the type the kernel works
    in, since they share its array; `unused`, one number for each column and of that type, stands
    for them where nobody looks at them.
    """
    remaining = remaining_steps(lengths, start, stop)
    if remaining is None:
        return False, unused
    return True, np.repeat(remaining, hidden).astype(unused.dtype)
