"""A recurrent network as the dynamics of a bank: its weights stay as initialised."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.lab.baselines.bank.dynamics import CHUNK, BankState, FixedDynamics, Snapshots
from undamped.lab.baselines.bank.kernels.pools import Rates
from undamped.nn.recurrent import Recurrent

_NO_MEMORY = 1e30  # a damping after which nothing of the previous sample remains


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
