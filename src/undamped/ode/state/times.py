"""Output times: read and checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, ShapeError, explain
from undamped.kernels.dispatch import inside_transform

Times = Tensor | Sequence[float]


def read_times(t: Times, y: Tensor, *, open_end: bool = False) -> Tensor:
    """Return output times as a float64 tensor, (outputs,) or (outputs, batch), checked.

    Args:
        t: One list of times for all, or a column for each sample.
        y: The packed start value.
        open_end: Whether the last time may be infinite, for a solve that ends at an event.
    """
    try:
        times = t if isinstance(t, Tensor) else torch.as_tensor(t, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        raise _not_times(f"a {type(t).__name__}") from None
    if times.is_complex():
        raise _not_times("complex numbers")
    times = times.detach().to(device=y.device, dtype=torch.float64)
    if times.dim() not in (1, 2) or times.shape[0] < 2:
        raise ShapeError(
            explain(
                "times",
                expected="at least two, in one list or one column per sample",
                got=f"shape {tuple(times.shape)}",
                remedy="Give the start first, then the times to look at.",
            )
        )
    if times.dim() == 2 and (y.dim() < 1 or times.shape[1] != y.shape[0]):
        raise ShapeError(
            explain(
                "times",
                expected=f"(outputs, batch) with a batch of {y.shape[0] if y.dim() else 0}",
                got=tuple(times.shape),
                remedy="Give every sample its column of times.",
            )
        )
    # In NumPy: a few numbers, for which operations of torch cost three times as much. Inside
    # transforms of `torch.func` tensors have no memory of their own to share.
    numbers = np.array(times.tolist()) if inside_transform() else times.cpu().numpy()
    if not np.isfinite(numbers[:-1] if open_end else numbers).all() or np.isnan(numbers).any():
        raise OptionError(
            explain(
                "times",
                expected="finite numbers",
                got="NaN or infinity",
                remedy="Check where they were computed.",
            )
        )
    before, after = numbers[:-1], numbers[1:]
    strict = times.dim() == 1
    rising = (after > before) if strict else (after >= before)
    falling = (after < before) if strict else (after <= before)
    if not (rising.all(0) | falling.all(0)).all():
        raise OptionError(_not_monotone(times))
    return times


def _not_times(got: str) -> OptionError:
    return OptionError(
        explain(
            "times",
            expected="real numbers, the start first",
            got=got,
            remedy="Give a list such as [0.0, 1.0] or a tensor.",
        )
    )


def _not_monotone(times: Tensor) -> str:
    listed = times if times.dim() == 1 else times[:, 0]
    shown = ", ".join(f"{value:.6g}" for value in listed[:6].tolist())
    return explain(
        "times",
        expected="strictly increasing or strictly decreasing times",
        got=f"[{shown}{', …' if len(listed) > 6 else ''}]",
        remedy="Sort them and drop repetitions; to go back in time, start from the latest.",
    )


def coincide(time: Any, other: Any, scale: Any) -> Any:
    """Whether two times, numbers or tensors, are the same but for rounding; NaN is none.

    Args:
        time: A time, or some.
        other: Another, or one for every sample.
        scale: The largest time of the solve, without sign: what rounding goes by.
    """
    return abs(time - other) <= 1e-14 * scale
