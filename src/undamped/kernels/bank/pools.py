"""Oscillators driven by samples, and what is counted of them while they move.

    z ← e^{(−γ + iω) Δt} z + u,    y = Re z

Counted are the samples, Σ y, max y, Σ |y − y of the sample before|, and the samples at which y was
above each of some thresholds. All of it is running: a state is as large after a million samples as
after one, and a state of zeros has seen nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation


class Pools(NamedTuple):
    """What a bank is doing and has done; of each sequence of a batch.

    Args:
        real: (batch, oscillators) Re z.
        imaginary: (batch, oscillators) Im z.
        before: (batch, oscillators) y at the sample before.
        total: (batch, oscillators) sum of y.
        peak: (batch, oscillators) largest y; 0 before the first sample.
        speed: (batch, oscillators) sum of |y − y before|.
        above: (batch, thresholds, oscillators) samples above each threshold.
        samples: (batch,) how many.
    """

    real: Tensor
    imaginary: Tensor
    before: Tensor
    total: Tensor
    peak: Tensor
    speed: Tensor
    above: Tensor
    samples: Tensor

    @classmethod
    def empty(cls, batch: int, thresholds: Tensor) -> Pools:
        """Return what a bank starts from."""
        levels, oscillators = thresholds.shape
        none = thresholds.new_zeros(batch, oscillators)
        above = thresholds.new_zeros(batch, levels, oscillators)
        return cls(none, none, none, none, none, none, above, thresholds.new_zeros(batch))

    def features(self) -> Tensor:
        """Return means, peaks, mean speeds and shares, (batch, (3 + thresholds) · oscillators)."""
        count = self.samples.clamp_min(1).unsqueeze(1)
        shares = (self.above / count.unsqueeze(1)).flatten(1)
        return torch.cat((self.total / count, self.peak, self.speed / count, shares), dim=1)


def advance(
    pools: Pools,
    drive: Tensor,
    gaps: Tensor | None,
    lengths: Tensor | None,
    damping: Tensor,
    frequency: Tensor,
    thresholds: Tensor,
) -> Pools:
    """Go on by some samples; gradients flow through the plain loop, to all but the shares.

    Args:
        pools: Where things stand; not changed.
        drive: (time, batch, oscillators) what drives each oscillator at each sample.
        gaps: (time, batch) time before each sample; 1 where not given.
        lengths: (batch,) how many of the samples each sequence has; all if not given.
        damping: (oscillators,) γ.
        frequency: (oscillators,) ω.
        thresholds: (thresholds, oscillators).
    """
    rates = (damping, frequency)
    followed = torch.is_grad_enabled() and (drive.requires_grad or pools.real.requires_grad)
    kind = "reference" if followed else implementation(drive, *rates, thresholds, *pools)
    if kind == "numba" and drive.numel():
        return _compiled(pools, drive, gaps, lengths, rates, thresholds)
    return reference_advance(pools, drive, gaps, lengths, damping, frequency, thresholds)


def reference_advance(
    pools: Pools,
    drive: Tensor,
    gaps: Tensor | None,
    lengths: Tensor | None,
    damping: Tensor,
    frequency: Tensor,
    thresholds: Tensor,
) -> Pools:
    """Say what is meant, in a plain loop; arguments are those of `advance`."""
    for t, u in enumerate(drive):
        gap = drive.new_ones(drive.shape[1], 1) if gaps is None else gaps[t].unsqueeze(1)
        moved = _move(pools, u, gap.to(drive.dtype), damping, frequency, thresholds)
        if lengths is None:
            pools = moved
            continue
        live = t < lengths
        pools = Pools(
            *[
                torch.where(live.view(-1, *[1] * (new.ndim - 1)), new, old)
                for new, old in zip(moved, pools, strict=True)
            ]
        )
    return pools


def turned(
    real: Tensor, imaginary: Tensor, gap: Tensor, damping: Tensor, frequency: Tensor
) -> tuple[Tensor, Tensor]:
    """Return z after a time without drive, as real and imaginary parts."""
    size, angle = torch.exp(-damping * gap), frequency * gap
    cosine, sine = size * angle.cos(), size * angle.sin()
    return cosine * real - sine * imaginary, sine * real + cosine * imaginary


def _move(
    pools: Pools,
    u: Tensor,
    gap: Tensor,
    damping: Tensor,
    frequency: Tensor,
    thresholds: Tensor,
) -> Pools:
    real, imaginary = turned(pools.real, pools.imaginary, gap, damping, frequency)
    y = real + u
    first = (pools.samples == 0).unsqueeze(1)
    return Pools(
        y,
        imaginary,
        y,
        pools.total + y,
        torch.where(first, y, torch.maximum(pools.peak, y)),
        pools.speed + (y - pools.before).abs(),
        pools.above + (y.unsqueeze(1) > thresholds),
        pools.samples + 1,
    )


def _compiled(
    pools: Pools,
    drive: Tensor,
    gaps: Tensor | None,
    lengths: Tensor | None,
    rates: tuple[Tensor, Tensor],
    thresholds: Tensor,
) -> Pools:
    from undamped.kernels.bank.compiled import kernel
    from undamped.kernels.shared.threads import run_in_parallel, split_batch

    steps, batch = drive.shape[:2]
    moved = Pools(*[part.contiguous().clone() for part in pools])
    timed = gaps is not None
    stamps = drive.new_ones(1, 1) if gaps is None else gaps.to(drive.dtype).contiguous()
    until = (
        torch.full((batch,), steps) if lengths is None else lengths.to(torch.int64).clamp(0, steps)
    )
    one = drive.new_ones(())
    real, imaginary = turned(one, drive.new_zeros(()), one, *rates)
    constants = [part.contiguous().numpy() for part in (real, imaginary, *rates, thresholds)]
    arrays = [part.numpy() for part in moved]
    run = kernel(timed)
    values, times, ends = drive.contiguous().numpy(), stamps.numpy(), until.numpy()

    def share(part: slice) -> Callable[[], None]:
        return lambda: run(values, times, ends, *constants, *arrays, part.start, part.stop)

    run_in_parallel([share(part) for part in split_batch(steps, batch, drive.shape[2])])
    return moved
