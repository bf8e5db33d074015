"""Oscillators driven by samples, and what is counted of them while they move.

    z ← e^{(−γ + iω) Δt} z + u,    y = Re e^{iφ} z

Counted are the samples, Σ y, max y, min y, the samples at which y was above each of some
thresholds, and the longest stretch of samples that were. All of it is running: a state is as large
after a million samples as after one, and a state of zeros has seen nothing.
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
        now: (batch, oscillators) y.
        total: (batch, oscillators) sum of y.
        peak: (batch, oscillators) largest y; 0 before the first sample.
        trough: (batch, oscillators) smallest y; 0 before the first sample.
        above: (batch, thresholds, oscillators) samples above each threshold.
        stretch: (batch, thresholds, oscillators) how many of the last ones were, one after another.
        longest: (batch, thresholds, oscillators) the longest such stretch so far.
        samples: (batch,) how many.
    """

    real: Tensor
    imaginary: Tensor
    now: Tensor
    total: Tensor
    peak: Tensor
    trough: Tensor
    above: Tensor
    stretch: Tensor
    longest: Tensor
    samples: Tensor

    @classmethod
    def empty(cls, batch: int, thresholds: Tensor) -> Pools:
        """Return what a bank starts from."""
        levels, oscillators = thresholds.shape
        none = thresholds.new_zeros(batch, oscillators)
        level = thresholds.new_zeros(batch, levels, oscillators)
        seen = thresholds.new_zeros(batch)
        return cls(none, none, none, none, none, none, level, level, level, seen)

    def features(self, *, levels: bool) -> Tensor:
        """Return what is known of each sequence, (batch, features).

        Peaks, troughs, shares of the samples above each threshold and longest stretches as shares
        of all samples: `feature_count` of them.

        Args:
            levels: Whether means and present values come first.
        """
        count = self.samples.clamp_min(1).unsqueeze(1)
        counted = [(part / count.unsqueeze(1)).flatten(1) for part in (self.above, self.longest)]
        first = [self.total / count, self.now] if levels else []
        return torch.cat([*first, self.peak, self.trough, *counted], dim=1)


def feature_count(oscillators: int, thresholds: int, *, levels: bool) -> int:
    """Return how many features a sequence has.

    Args:
        oscillators: How many there are.
        thresholds: How many levels of each are counted.
        levels: Whether means and present values are among them.
    """
    return (2 * levels + 2 + 2 * thresholds) * oscillators


class Rates(NamedTuple):
    """What an oscillator is; (oscillators,) each.

    Args:
        damping: γ.
        frequency: ω.
        phase: φ.
    """

    damping: Tensor
    frequency: Tensor
    phase: Tensor

    def to(self, dtype: torch.dtype) -> Rates:
        """Return them in another precision."""
        return Rates(*[part.to(dtype) for part in self])


def advance(
    pools: Pools,
    drive: Tensor,
    gaps: Tensor | None,
    lengths: Tensor | None,
    rates: Rates,
    thresholds: Tensor,
) -> Pools:
    """Go on by some samples; gradients flow through the plain loop, to all but what is counted.

    Args:
        pools: Where things stand; not changed.
        drive: (time, batch, oscillators) what drives each oscillator at each sample.
        gaps: (time, batch) time before each sample; 1 where not given.
        lengths: (batch,) how many of the samples each sequence has; all if not given.
        rates: What the oscillators are.
        thresholds: (thresholds, oscillators).
    """
    followed = torch.is_grad_enabled() and (drive.requires_grad or pools.real.requires_grad)
    kind = "reference" if followed else implementation(drive, *rates, thresholds, *pools)
    if kind == "numba" and drive.numel():
        return _compiled(pools, drive, gaps, lengths, rates, thresholds)
    return reference_advance(pools, drive, gaps, lengths, rates, thresholds)


def reference_advance(
    pools: Pools,
    drive: Tensor,
    gaps: Tensor | None,
    lengths: Tensor | None,
    rates: Rates,
    thresholds: Tensor,
) -> Pools:
    """Say what is meant, in a plain loop; arguments are those of `advance`."""
    for t, u in enumerate(drive):
        gap = drive.new_ones(drive.shape[1], 1) if gaps is None else gaps[t].unsqueeze(1)
        moved = _move(pools, u, gap.to(drive.dtype), rates, thresholds)
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


def _move(pools: Pools, u: Tensor, gap: Tensor, rates: Rates, thresholds: Tensor) -> Pools:
    real, imaginary = turned(pools.real, pools.imaginary, gap, rates.damping, rates.frequency)
    real = real + u
    y = rates.phase.cos() * real - rates.phase.sin() * imaginary
    first = (pools.samples == 0).unsqueeze(1)
    over = (y.unsqueeze(1) > thresholds).to(y.dtype)
    stretch = (pools.stretch + 1) * over
    return Pools(
        real,
        imaginary,
        y,
        pools.total + y,
        torch.where(first, y, torch.maximum(pools.peak, y)),
        torch.where(first, y, torch.minimum(pools.trough, y)),
        pools.above + over,
        stretch,
        torch.maximum(pools.longest, stretch),
        pools.samples + 1,
    )


def _compiled(
    pools: Pools,
    drive: Tensor,
    gaps: Tensor | None,
    lengths: Tensor | None,
    rates: Rates,
    thresholds: Tensor,
) -> Pools:
    from undamped.kernels.shared.threads import run_in_parallel, split_batch
    from undamped.lab.baselines.bank.kernels.compiled import kernel

    steps, batch = drive.shape[:2]
    moved = Pools(*[part.contiguous().clone() for part in pools])
    timed = gaps is not None
    timestamps = drive.new_ones(1, 1) if gaps is None else gaps.to(drive.dtype).contiguous()
    until = (
        torch.full((batch,), steps) if lengths is None else lengths.to(torch.int64).clamp(0, steps)
    )
    one = drive.new_ones(())
    turn = turned(one, drive.new_zeros(()), one, rates.damping, rates.frequency)
    shown = rates.phase.cos(), rates.phase.sin()
    constants = [
        part.contiguous().numpy()
        for part in (*turn, *shown, rates.damping, rates.frequency, thresholds)
    ]
    arrays = [part.numpy() for part in moved]
    run = kernel(timed)
    values, times, ends = drive.contiguous().numpy(), timestamps.numpy(), until.numpy()

    def share(part: slice) -> Callable[[], None]:
        return lambda: run(values, times, ends, *constants, *arrays, part.start, part.stop)

    run_in_parallel([share(part) for part in split_batch(steps, batch, drive.shape[2])])
    return moved
