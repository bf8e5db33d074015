"""The dynamics of a bank, which are never trained: oscillators, or a recurrent network."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped.lab.baselines.bank.kernels.pools import Pools, Rates, advance

Snapshots = dict[int, Pools | None]
"""The pools after some numbers of samples; None before a run has reached them."""
CHUNK = 64
"""Steps whose outputs are in memory at the same time."""


class BankState(NamedTuple):
    """The state of a bank after some samples.

    Args:
        last: (batch, channels) the last measured value of each channel.
        has_last: (batch, channels) whether there is one.
        time: (batch,) time of the last sample.
        pools: The pools; for oscillators, with their state.
        inner: The state of a fixed network.
    """

    last: Tensor
    has_last: Tensor
    time: Tensor
    pools: Pools
    inner: Any = None


class Signals(NamedTuple):
    """The inputs of a bank: the channels, then their changes from sample to sample.

    Args:
        values: (time, batch, 2 · channels), arbitrary where the mask is false.
        mask: (time, batch, 2 · channels) which values exist.
        last: (batch, channels) the last measured value of each channel.
        has_last: (batch, channels) whether there is one.
    """

    values: Tensor
    mask: Tensor
    last: Tensor
    has_last: Tensor


class FixedDynamics(nn.Module):
    """Dynamics that are never trained, driven by channels and their changes between samples.

    Args:
        channels: Features of a sample.
        count: Number of outputs.
        thresholds: Number of thresholds per output.
        gap: The typical time between two samples.
    """

    levels: Tensor
    centre: Tensor
    scale: Tensor
    thresholds: Tensor

    def __init__(self, channels: int, count: int, thresholds: int, gap: float) -> None:
        super().__init__()
        self.channels, self.count, self.gap = channels, count, gap
        self.register_buffer("levels", 0.1 + 0.8 * torch.rand(thresholds, count))
        # Estimated from the training data.
        self.register_buffer("centre", torch.zeros(2 * channels))
        self.register_buffer("scale", torch.ones(2 * channels))
        self.register_buffer("thresholds", torch.zeros(thresholds, count))

    def empty_state(self, batch: int) -> BankState:
        """Return the state before the first sample."""
        last = self.thresholds.new_zeros(batch, self.channels)
        time = torch.zeros(batch, dtype=torch.float64, device=last.device)
        pools = Pools.empty(batch, self.thresholds)
        return BankState(last, torch.zeros_like(last).bool(), time, pools)

    @staticmethod
    def signals(batch: Batch, state: BankState) -> Signals:
        """Return values and changes after a state, and the last measured values at the end."""
        x = batch.inputs
        mask = ~x.isnan() if batch.observed is None else batch.observed & ~x.isnan()
        if batch.lengths is not None:
            steps = torch.arange(len(x), device=x.device).view(-1, 1, 1)
            mask = mask & (steps < batch.lengths.view(1, -1, 1))
        # Row i + 1 of `values` is sample i, and row 0 the last value before the first sample.
        rows = torch.arange(1, len(x) + 1, device=x.device).view(-1, 1, 1)
        latest = torch.where(mask, rows, 0).cummax(0).values
        values = torch.cat((state.last.unsqueeze(0), torch.where(mask, x, 0)))
        filled = values.gather(0, latest)
        earlier = torch.cat((state.last.unsqueeze(0), filled[:-1]))
        has_earlier = torch.cat((state.has_last.unsqueeze(0), (latest[:-1] > 0) | state.has_last))
        signals = torch.cat((x, filled - earlier), dim=-1)
        signal_mask = torch.cat((mask, mask & has_earlier), dim=-1)
        return Signals(signals, signal_mask, filled[-1], (latest[-1] > 0) | state.has_last)

    def standardise(self, signals: Signals) -> Tensor:
        """Return standardised signals, 0 where the mask is false."""
        return torch.where(signals.mask, (signals.values - self.centre) / self.scale, 0)

    def set_span(self, span: float) -> None:
        """Adapt to the median duration of a sequence, in typical gaps; by default do nothing."""

    @abstractmethod
    def run(
        self, batch: Batch, state: BankState | None = None, snapshots: Snapshots | None = None
    ) -> BankState:
        """Return the state after further samples.

        Args:
            batch: The samples; without times, they are one typical gap apart.
            state: The state before.
            snapshots: The numbers of samples after which pools are stored in it.
        """

    def _advance(
        self,
        pools: Pools,
        drive: Tensor,
        gaps: Tensor | None,
        lengths: Tensor | None,
        rates: Rates,
        begin: int,
        snapshots: Snapshots | None,
    ) -> Pools:
        """Return the pools after a chunk of samples, and store the snapshots in it.

        Args:
            pools: The pools before.
            drive: (steps, batch, outputs).
            gaps: (steps, batch), or None.
            lengths: (batch,) samples of each sequence in all, or None.
            rates: The constants of the oscillators.
            begin: Samples before this chunk.
            snapshots: As for `run`.
        """
        stops = {stop - begin for stop in snapshots or ()}
        ends = sorted({stop for stop in stops if 0 < stop < len(drive)} | {len(drive)})
        for low, high in zip([0, *ends], ends, strict=False):
            remaining = None if lengths is None else (lengths - begin - low).clamp(0, high - low)
            part = None if gaps is None else gaps[low:high]
            pools = advance(pools, drive[low:high], part, remaining, rates, self.thresholds)
            if snapshots is not None and begin + high in snapshots:
                snapshots[begin + high] = pools
        return pools

    @abstractmethod
    def responses(self, sequence: Batch, index: Tensor) -> Tensor:
        """Return some outputs at every sample of one sequence, (time, len(index)).

        Args:
            sequence: A batch of one sequence.
            index: Which outputs.
        """
