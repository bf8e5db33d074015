"""Driven oscillators, and running statistics (pools) of their outputs.

    z ← e^{(−γ + iω) Δt} z + u,    y = Re e^{iφ} z

The pools are the number of samples, Σ y, max y, min y, the number of samples above each of several
thresholds, and the longest run of consecutive samples above it; on request also the locations of
max y and min y, the numbers of samples up to them. The size of the state does not depend on the
number of samples, and a state of zeros is the state before the first sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation


class Pools(NamedTuple):
    """The state of the oscillators and the pools of each sequence of a batch.

    Args:
        real: (batch, oscillators) Re z.
        imaginary: (batch, oscillators) Im z.
        current: (batch, oscillators) y.
        total: (batch, oscillators) sum of y.
        peak: (batch, oscillators) largest y; 0 before the first sample.
        trough: (batch, oscillators) smallest y; 0 before the first sample.
        above: (batch, thresholds, oscillators) samples above each threshold.
        streak: (batch, thresholds, oscillators) consecutive samples above it up to the present.
        longest: (batch, thresholds, oscillators) the longest streak so far.
        peak_location: (batch, oscillators) samples up to the first largest y, with it; (batch, 0)
            without locations.
        trough_location: The same of the smallest y.
        samples: (batch,) number of samples.
    """

    real: Tensor
    imaginary: Tensor
    current: Tensor
    total: Tensor
    peak: Tensor
    trough: Tensor
    above: Tensor
    streak: Tensor
    longest: Tensor
    peak_location: Tensor
    trough_location: Tensor
    samples: Tensor

    @classmethod
    def empty(cls, batch: int, thresholds: Tensor, *, locations: bool = False) -> Pools:
        """Return the state before the first sample."""
        levels, oscillators = thresholds.shape
        zero = thresholds.new_zeros(batch, oscillators)
        level = thresholds.new_zeros(batch, levels, oscillators)
        location = thresholds.new_zeros(batch, oscillators if locations else 0)
        samples = thresholds.new_zeros(batch)
        counts = level, level, level
        return cls(zero, zero, zero, zero, zero, zero, *counts, location, location, samples)

    def features(self, *, levels: bool) -> Tensor:
        """Return the features of each sequence, (batch, features).

        They are peaks, troughs, and for each threshold the fraction of samples above it and the
        longest streak as a fraction of all samples, and the locations of peaks and troughs as
        fractions of it: `feature_count` in all.

        Args:
            levels: Whether means and current values come first.
        """
        count = self.samples.clamp_min(1).unsqueeze(1)
        counts = [(part / count.unsqueeze(1)).flatten(1) for part in (self.above, self.longest)]
        first = [self.total / count, self.current] if levels else []
        locations = self.peak_location / count, self.trough_location / count
        return torch.cat([*first, self.peak, self.trough, *counts, *locations], dim=1)


def feature_count(
    oscillators: int, thresholds: int, *, levels: bool, locations: bool = False
) -> int:
    """Return the number of features of a sequence; arguments as for `Pools`."""
    return (2 * levels + 2 + 2 * thresholds + 2 * locations) * oscillators


class Rates(NamedTuple):
    """The constants of the oscillators, (oscillators,) each.

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
    """Return the pools after further samples.

    Gradients flow through the PyTorch loop, except through the counts.

    Args:
        pools: The pools before; they are not changed.
        drive: (time, batch, oscillators) u, the input of each oscillator.
        gaps: (time, batch) time before each sample; 1 by default.
        lengths: (batch,) samples of each sequence; all by default.
        rates: The constants of the oscillators.
        thresholds: (thresholds, oscillators).
    """
    needs_grad = torch.is_grad_enabled() and (drive.requires_grad or pools.real.requires_grad)
    kind = "reference" if needs_grad else implementation(drive, *rates, thresholds, *pools)
    if kind != "numba" or not drive.numel():
        return reference_advance(pools, drive, gaps, lengths, rates, thresholds)
    from undamped.kernels.shared.threads import run_in_parallel, split_batch
    from undamped.lab.baselines.bank.kernels.compiled import Bank, Inputs, pools_loop

    steps, batch = drive.shape[:2]
    after = Pools(*[part.contiguous().clone() for part in pools])
    times = drive.new_ones(1, 1) if gaps is None else gaps.to(drive.dtype).contiguous()
    ends = torch.full((batch,), steps) if lengths is None else lengths.long().clamp(0, steps)
    inputs = tuple(Inputs(drive.contiguous().numpy(), times.numpy(), ends.numpy()))
    bank, arrays = tuple(Bank.of(rates, thresholds)), tuple(part.numpy() for part in after)
    loop = pools_loop(gaps is not None, bool(pools.peak_location.shape[1]))

    def run(rows: slice) -> Callable[[], None]:
        return lambda: loop(inputs, bank, arrays, rows.start, rows.stop)

    run_in_parallel([run(rows) for rows in split_batch(steps, batch, drive.shape[2])])
    return after


def reference_advance(
    pools: Pools,
    drive: Tensor,
    gaps: Tensor | None,
    lengths: Tensor | None,
    rates: Rates,
    thresholds: Tensor,
) -> Pools:
    """Compute `advance` by a loop in PyTorch; arguments are the same."""
    for t, u in enumerate(drive):
        gap = drive.new_ones(drive.shape[1], 1) if gaps is None else gaps[t].unsqueeze(1)
        after = _step(pools, u, gap.to(drive.dtype), rates, thresholds)
        if lengths is not None:
            live = t < lengths
            after = Pools(
                *[
                    torch.where(live.view(-1, *[1] * (new.ndim - 1)), new, old)
                    for new, old in zip(after, pools, strict=True)
                ]
            )
        pools = after
    return pools


def rotate(
    real: Tensor, imaginary: Tensor, gap: Tensor, damping: Tensor, frequency: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the real and imaginary part of e^{(−γ + iω) Δt} z."""
    size, angle = torch.exp(-damping * gap), frequency * gap
    cosine, sine = size * angle.cos(), size * angle.sin()
    return cosine * real - sine * imaginary, sine * real + cosine * imaginary


def _step(pools: Pools, u: Tensor, gap: Tensor, rates: Rates, thresholds: Tensor) -> Pools:
    real, imaginary = rotate(pools.real, pools.imaginary, gap, rates.damping, rates.frequency)
    real = real + u
    y = rates.phase.cos() * real - rates.phase.sin() * imaginary
    first = (pools.samples == 0).unsqueeze(1)
    over = (y.unsqueeze(1) > thresholds).to(y.dtype)
    streak = (pools.streak + 1) * over
    location = (pools.samples + 1).unsqueeze(1)
    peaks, troughs = first | (y > pools.peak), first | (y < pools.trough)
    if not pools.peak_location.shape[1]:
        peaks = troughs = first[:, :0]
    return Pools(
        real,
        imaginary,
        y,
        pools.total + y,
        torch.where(first, y, torch.maximum(pools.peak, y)),
        torch.where(first, y, torch.minimum(pools.trough, y)),
        pools.above + over,
        streak,
        torch.maximum(pools.longest, streak),
        torch.where(peaks, location, pools.peak_location),
        torch.where(troughs, location, pools.trough_location),
        pools.samples + 1,
    )
