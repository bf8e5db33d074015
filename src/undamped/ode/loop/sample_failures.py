"""Samples that cannot go on: they rest at their last output, and gradients never see beyond it."""

from __future__ import annotations

import torch
from torch import Tensor

from undamped.ode.evidence import GROWN
from undamped.ode.record import Status, Trace


def failed_status(broken: Tensor, y: Tensor, y0: Tensor) -> list[Status]:
    """Return why samples needed too small a step: what is not finite, or anything else.

    Args:
        broken: Whether the last attempt of each was not finite.
        y: The states they reached.
        y0: Those they started from.
    """
    size, start = (part.detach().abs().reshape(len(y), -1).amax(1) for part in (y, y0))
    met = broken & (size <= GROWN * (1 + start))
    return [Status.NON_FINITE if one else Status.STEP_TOO_SMALL for one in met.tolist()]


def forget(trace: Trace, piece: int, failed: Tensor, written: Tensor, t: Tensor, y: Tensor) -> None:
    """Turn the recorded steps of failed samples after their last output into steps of size zero.

    No output depends on these steps, and no gradient should meet them: zero times infinity is
    not zero.

    Args:
        trace: The steps and states that were recorded.
        piece: Steps from one recorded state to the next.
        failed: Whether each sample failed, (batch,).
        written: How many steps were recorded when each last wrote an output, (batch,).
        t: Time of that output, (batch,).
        y: The state there, (batch, …).
    """
    for number in range(int(written[failed].min()), len(trace.steps)):
        after = failed & (written <= number)
        if number % piece == 0:
            (kept,) = trace.checkpoints[number // piece]
            column = after.view(-1, *(1,) * (y.dim() - 1))
            trace.checkpoints[number // piece] = (torch.where(column, y, kept),)
        step = trace.steps[number]
        if step.landed is None:
            assert isinstance(step.t, Tensor) and isinstance(step.h, Tensor)
            chosen, times = (x if step.rows is None else x[step.rows] for x in (after, t))
            chosen, times = chosen.view(step.h.shape), times.view(step.h.shape)
            step.h.masked_fill_(chosen, 0.0)
            step.t.copy_(torch.where(chosen, times, step.t))
