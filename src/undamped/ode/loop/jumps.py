"""Times at which the field jumps: steps end there, and evaluate it on their own side only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain

Window = tuple[float, float]


def read_stops(value: Any, name: str) -> tuple[float, ...]:
    """Return times, sorted, from what a user gave.

    Args:
        value: A tensor or a sequence of times, or None.
        name: What the option is called.
    """
    if value is None:
        return ()
    try:
        times = torch.as_tensor(value, dtype=torch.float64).detach().reshape(-1).tolist()
    except (TypeError, ValueError, RuntimeError):
        times = [math.nan]
    if not all(math.isfinite(time) for time in times):
        raise OptionError(
            explain(
                f"options.{name}",
                expected="finite times, in a tensor or a list",
                got=f"a {type(value).__name__}" if not isinstance(value, Tensor) else "NaN",
                remedy="Write them as torch.tensor([0.5, 1.0]).",
            )
        )
    return tuple(sorted(set(times)))


class Jumps:
    """On which side of a jump a step evaluates its field.

    Args:
        times: Where the field jumps.
        everywhere: Whether to take the end of every step for a jump.
    """

    def __init__(self, times: Sequence[float] = (), *, everywhere: bool = False) -> None:
        self.times, self.everywhere = frozenset(times), everywhere

    def __bool__(self) -> bool:
        """Whether there is anything to mind."""
        return self.everywhere or bool(self.times)

    def window(self, t: Any, h: Any) -> Window | None:
        """Return the times of a step within which its field may be evaluated, or None for all."""
        if not self or isinstance(t, Tensor):
            return None
        begin, end = t, t + h
        starts = self.everywhere or begin in self.times
        ends = self.everywhere or any(abs(end - time) <= 1e-14 * abs(end) for time in self.times)
        if not (starts or ends):
            return None
        return begin if starts else -math.copysign(math.inf, h), (
            end if ends else math.copysign(math.inf, h)
        )


def inside(t: Tensor, window: Window) -> Tensor:
    """Return a time, moved to the next number inside where it is at the edge of a window."""
    low, high = window
    kind = np.float32 if t.dtype == torch.float32 else np.float64
    number, begin, end = kind(t.item()), kind(low), kind(high)
    if number == begin:
        moved = np.nextafter(number, kind(math.inf if high > low else -math.inf))
    elif abs(number - end) <= np.spacing(abs(end)) if np.isfinite(end) else False:
        moved = np.nextafter(end, kind(-math.inf if high > low else math.inf))
    else:
        return t
    return torch.full_like(t, float(moved))
