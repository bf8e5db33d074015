"""What hears a sequence and is never trained: what is common to oscillators and fixed networks."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from undamped.lab.baselines.bank.kernels.pools import Pools, Rates, advance

STEPS_AT_ONCE = 64


class BankState(NamedTuple):
    """Where a bank stands.

    Args:
        held: (batch, channels) the last value that was measured of each.
        known: (batch, channels) whether there was one.
        time: (batch,) when the last sample came.
        pools: The listeners, and what was counted of them.
        inner: The state of a fixed network; none for oscillators, whose state is in the pools.
    """

    held: Tensor
    known: Tensor
    time: Tensor
    pools: Pools
    inner: Any = None


class Signals(NamedTuple):
    """What drives a bank: values and their changes from sample to sample.

    Args:
        values: (time, batch, 2 · channels), anything where nothing is known.
        known: (time, batch, 2 · channels) where something is.
        held: (batch, channels) the last value that was measured of each channel.
        held_known: (batch, channels) whether there was one.
    """

    values: Tensor
    known: Tensor
    held: Tensor
    held_known: Tensor


class Listeners(nn.Module):
    """Fixed dynamics, driven by channels and their changes from sample to sample.

    Args:
        channels: Features of a sample.
        count: How many listeners there are.
        thresholds: How many levels of each are counted.
        gap: The usual time between two samples.
    """

    levels: Tensor
    centre: Tensor
    scale: Tensor
    thresholds: Tensor

    def __init__(self, channels: int, count: int, thresholds: int, gap: float) -> None:
        super().__init__()
        self.channels, self.count, self.gap = channels, count, gap
        spread = 0.1 + 0.8 * torch.rand(thresholds, count)
        self.register_buffer("levels", spread)
        # Found in the data
        self.register_buffer("centre", torch.zeros(2 * channels))
        self.register_buffer("scale", torch.ones(2 * channels))
        self.register_buffer("thresholds", torch.zeros(thresholds, count))

    def empty_state(self, batch: int) -> BankState:
        """Return the state before the first sample."""
        held = self.thresholds.new_zeros(batch, self.channels)
        time = torch.zeros(batch, dtype=torch.float64, device=held.device)
        return BankState(
            held, torch.zeros_like(held).bool(), time, Pools.empty(batch, self.thresholds)
        )

    @staticmethod
    def signals(
        x: Tensor, observed: Tensor | None, state: BankState, lengths: Tensor | None
    ) -> Signals:
        """Return values and their changes, where they are known, and what is held at the end.

        Args:
            x: (time, batch, channels).
            observed: (time, batch, channels) what was measured.
            state: Where the bank stands.
            lengths: (batch,) samples of each sequence.
        """
        measured = ~x.isnan() if observed is None else observed & ~x.isnan()
        if lengths is not None:
            steps = torch.arange(len(x), device=x.device).view(-1, 1, 1)
            measured = measured & (steps < lengths.view(1, -1, 1))
        # The last known value at and before every step, by the number of the step it came from.
        numbers = torch.arange(1, len(x) + 1, device=x.device).view(-1, 1, 1)
        latest = torch.where(measured, numbers, 0).cummax(0).values
        values = torch.cat((state.held.unsqueeze(0), torch.where(measured, x, 0)))
        filled = values.gather(0, latest)
        earlier = torch.cat((state.held.unsqueeze(0), filled[:-1]))
        had = torch.cat((state.known.unsqueeze(0), (latest[:-1] > 0) | state.known))
        both = torch.cat((x, filled - earlier), dim=-1)
        there = torch.cat((measured, measured & had), dim=-1)
        return Signals(both, there, filled[-1], (latest[-1] > 0) | state.known)

    def standard(self, signals: Signals) -> Tensor:
        """Return standardised signals, 0 where nothing is known."""
        return torch.where(signals.known, (signals.values - self.centre) / self.scale, 0)

    def hear_span(self, span: float) -> None:
        """Take notice of how long a usual sequence lasts, in usual gaps; most need not."""

    @abstractmethod
    def run(
        self,
        x: Tensor,
        times: Tensor | None = None,
        observed: Tensor | None = None,
        lengths: Tensor | None = None,
        state: BankState | None = None,
        snapshots: dict[int, Pools | None] | None = None,
    ) -> BankState:
        """Let samples drive the bank; return where it stands afterwards.

        Args:
            x: (time, batch, channels).
            times: (time, batch) when the samples came; one usual gap after the other if not given.
            observed: (time, batch, channels) what was measured.
            lengths: (batch,) samples of each sequence.
            state: Where to go on from.
            snapshots: By numbers of samples: filled with where the pools stood after so many.
        """

    def _advance(
        self,
        pools: Pools,
        drive: Tensor,
        gaps: Tensor | None,
        lengths: Tensor | None,
        rates: Rates,
        begin: int,
        snapshots: dict[int, Pools | None] | None,
    ) -> Pools:
        """Go on by one piece of the samples, and stop where a snapshot is wanted.

        Args:
            pools: Where things stand.
            drive: (steps, batch, listeners).
            gaps: (steps, batch), or None.
            lengths: (batch,) samples of each sequence in all, or None.
            rates: What the oscillators are.
            begin: Samples before this piece.
            snapshots: Those of `run`.
        """
        wanted = {stop - begin for stop in snapshots or ()}
        ends = sorted({stop for stop in wanted if 0 < stop < len(drive)} | {len(drive)})
        for low, high in zip([0, *ends], ends, strict=False):
            left = None if lengths is None else (lengths - begin - low).clamp(0, high - low)
            part = None if gaps is None else gaps[low:high]
            pools = advance(pools, drive[low:high], part, left, rates, self.thresholds)
            if snapshots is not None and begin + high in snapshots:
                snapshots[begin + high] = pools
        return pools

    @abstractmethod
    def responses(
        self, x: Tensor, times: Tensor | None, observed: Tensor | None, chosen: Tensor
    ) -> Tensor:
        """Return y of some listeners at every sample of one sequence, (time, chosen).

        Args:
            x: (time, 1, channels).
            times: (time, 1), as `run` takes them.
            observed: (time, 1, channels).
            chosen: Numbers of listeners.
        """
