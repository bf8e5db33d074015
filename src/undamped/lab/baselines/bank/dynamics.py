"""The dynamics of a bank, which are never trained: oscillators, or a recurrent network."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.lab.baselines.bank.kernels.pools import Pools, Rates, advance, rotate
from undamped.models.timestamped import time_gaps
from undamped.nn.recurrent import Recurrent

Snapshots = dict[int, Pools | None]
"""The pools after some numbers of samples; None before a run has reached them."""
CHUNK = 64
"""Steps whose outputs are in memory at the same time."""

DAMPING_RATIOS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 1.0)
"""γ / ω; each oscillator has one of them."""
SHORTEST_PERIOD = 2.5  # typical gaps, a little more than the Nyquist limit of 2
_MOST_DRIVERS = 3.0
_NO_MEMORY = 1e30  # a damping after which nothing of the previous sample remains


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
        self.locations = False
        self.register_buffer("levels", 0.1 + 0.8 * torch.rand(thresholds, count))
        # Estimated from the training data.
        self.register_buffer("centre", torch.zeros(2 * channels))
        self.register_buffer("scale", torch.ones(2 * channels))
        self.register_buffer("thresholds", torch.zeros(thresholds, count))

    def empty_state(self, batch: int) -> BankState:
        """Return the state before the first sample."""
        last = self.thresholds.new_zeros(batch, self.channels)
        time = torch.zeros(batch, dtype=torch.float64, device=last.device)
        pools = Pools.empty(batch, self.thresholds, locations=self.locations)
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


class Oscillators(FixedDynamics):
    """Fixed oscillators, each driven by a few channels or their changes from sample to sample.

    Args:
        channels: Features of a sample.
        count: Number of oscillators.
        thresholds: Number of thresholds per oscillator.
        gap: The typical time between two samples.
    """

    drivers: Tensor
    position: Tensor
    damping_ratio: Tensor
    phase: Tensor
    longest: Tensor

    def __init__(self, channels: int, count: int, thresholds: int, gap: float) -> None:
        super().__init__(channels, count, thresholds, gap)
        # These depend on the seed only. `centre`, `scale` and `longest` adapt them to the data.
        self.register_buffer("drivers", _random_drivers(count, 2 * channels))
        self.register_buffer("position", torch.rand(count, dtype=torch.float64))
        index = torch.randint(len(DAMPING_RATIOS), (count,))
        ratios = torch.tensor(DAMPING_RATIOS, dtype=torch.float64)
        self.register_buffer("damping_ratio", ratios[index])
        self.register_buffer("phase", 2 * math.pi * torch.rand(count, dtype=torch.float64))
        self.register_buffer("longest", torch.tensor(100.0, dtype=torch.float64))

    def rates(self) -> Rates:
        """Return γ and ω of every oscillator, per typical gap, and φ."""
        longest = (self.longest / SHORTEST_PERIOD).clamp_min(2.0)
        frequency = 2 * math.pi / (SHORTEST_PERIOD * longest**self.position)
        return Rates(self.damping_ratio * frequency, frequency, self.phase)

    def set_span(self, span: float) -> None:
        """Set the longest period, so that the slowest oscillator turns twice in a sequence."""
        self.longest.fill_(span / 2)

    def run(
        self, batch: Batch, state: BankState | None = None, snapshots: Snapshots | None = None
    ) -> BankState:
        x = batch.inputs
        state = self.empty_state(x.shape[1]) if state is None else state
        rates, pools = self.rates().to(x.dtype), state.pools
        gaps, end_time = self._gaps(batch, state.time)
        signals = self.signals(batch, state)
        inputs = self.standardise(signals)
        for begin in range(0, len(x), CHUNK):
            stop = begin + CHUNK
            drive = inputs[begin:stop] @ self.drivers.T
            part = None if gaps is None else gaps[begin:stop]
            pools = self._advance(pools, drive, part, batch.lengths, rates, begin, snapshots)
        return BankState(signals.last, signals.has_last, end_time, pools)

    def _gaps(self, batch: Batch, before: Tensor) -> tuple[Tensor | None, Tensor]:
        """Return the gaps before the samples (None for 1 each), and the time of the last sample."""
        if batch.times is None:
            return None, before
        elapsed = time_gaps(batch.times, batch.lengths, self.gap, before)
        return elapsed / self.gap, before + elapsed.sum(0)

    def responses(self, sequence: Batch, index: Tensor) -> Tensor:
        """Return y of some oscillators; arguments are those of `FixedDynamics.responses`."""
        state = self.empty_state(1)
        inputs = self.standardise(self.signals(sequence, state))
        drive = inputs[:, 0] @ self.drivers[index].T
        gaps, _ = self._gaps(sequence, state.time)
        steps = drive.new_ones(len(drive)) if gaps is None else gaps[:, 0].to(drive.dtype)
        damping, frequency, phase = (rate[index] for rate in self.rates().to(drive.dtype))
        real = imaginary = drive.new_zeros(len(index))
        outputs = []
        for u, gap in zip(drive, steps, strict=True):
            real, imaginary = rotate(real, imaginary, gap, damping, frequency)
            real = real + u
            outputs.append(phase.cos() * real - phase.sin() * imaginary)
        return torch.stack(outputs)


def _random_drivers(oscillators: int, signals: int) -> Tensor:
    """Return the weights of the signals (oscillators, signals): one to a few, with random signs."""
    most = min(signals, _MOST_DRIVERS)
    counts = torch.exp(torch.rand(oscillators) * math.log(most)).long().clamp(1, signals)
    order = torch.rand(oscillators, signals).argsort(1).argsort(1)
    mask = order < counts.unsqueeze(1)
    signs = torch.randint(2, (oscillators, signals)) * 2.0 - 1.0
    return mask * signs / counts.sqrt().unsqueeze(1)


class FixedNetwork(FixedDynamics):
    """A recurrent network with its initial weights, whose outputs are pooled.

    Args:
        name: Its name in the registry.
        channels: Features of a sample.
        count: Hidden units.
        thresholds: Number of thresholds per output.
    """

    def __init__(self, name: str, channels: int, count: int, thresholds: int) -> None:
        network_class = models[name]
        if not (isinstance(network_class, type) and issubclass(network_class, Recurrent)):
            raise OptionError(
                "model.dynamics must be oscillators or the name of a recurrent network such as "
                f"linoss, got {name}. `undamped list models` shows which are recurrent."
            )
        network = models.build(name, input_size=2 * channels, hidden_size=count)
        super().__init__(channels, network.output_size, thresholds, gap=1.0)
        self.network = network.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> FixedNetwork:
        """Stay in evaluation mode: a fixed network has no dropout and no running statistics."""
        return super().train(False)

    def run(
        self, batch: Batch, state: BankState | None = None, snapshots: Snapshots | None = None
    ) -> BankState:
        x, lengths = batch.inputs, batch.lengths
        state = self.empty_state(x.shape[1]) if state is None else state
        pools, inner = state.pools, state.inner
        signals = self.signals(batch, state)
        inputs = self.standardise(signals)
        # The output of an oscillator without memory is its drive.
        zero = self.thresholds.new_zeros(self.count).to(x.dtype)
        rates = Rates(zero + _NO_MEMORY, zero, zero)
        for begin in range(0, len(x), CHUNK):
            chunk = inputs[begin : begin + CHUNK]
            remaining = None if lengths is None else (lengths - begin).clamp(0, len(chunk))
            outputs, inner = self._run_chunk(chunk, inner, remaining)
            pools = self._advance(pools, outputs, None, lengths, rates, begin, snapshots)
        return BankState(signals.last, signals.has_last, state.time, pools, inner)

    def _run_chunk(self, chunk: Tensor, inner: Any, remaining: Tensor | None) -> tuple[Tensor, Any]:
        """Return outputs and state after a chunk; the state of finished sequences stays."""
        if remaining is None:
            return self.network(chunk, inner)
        before = self.network.initial_state(chunk.shape[1]) if inner is None else inner
        outputs, after = self.network(chunk, inner, lengths=remaining.clamp_min(1))
        finished = (remaining == 0).view(1, -1, 1)
        if isinstance(after, Tensor):
            return outputs, torch.where(finished, before, after)
        states = zip(before, after, strict=True)
        return outputs, tuple(torch.where(finished, old, new) for old, new in states)

    def responses(self, sequence: Batch, index: Tensor) -> Tensor:
        signals = self.signals(sequence, self.empty_state(1))
        return self.network(self.standardise(signals))[0][:, 0, index]
