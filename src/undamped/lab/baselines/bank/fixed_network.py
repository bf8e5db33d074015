"""Any recurrent network as a bank: drawn once and never trained, its outputs pooled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped._base.registry import models
from undamped.lab.baselines.bank.kernels.pools import Pools, Rates
from undamped.lab.baselines.bank.listeners import STEPS_AT_ONCE, BankState, Listeners
from undamped.nn.recurrent import Recurrent

_AT_ONCE = 1e30  # a damping that leaves nothing of the sample before


class FixedNetwork(Listeners):
    """A network with the weights it starts with, whose outputs are what is heard.

    Args:
        name: Its name in the registry.
        channels: Features of a sample.
        count: Hidden units.
        thresholds: How many levels of each output are counted.
    """

    def __init__(self, name: str, channels: int, count: int, thresholds: int) -> None:
        member = models[name]
        if not (isinstance(member, type) and issubclass(member, Recurrent)):
            raise OptionError(
                explain(
                    "model.dynamics",
                    expected="oscillators, or a recurrent network such as linoss or lstm",
                    got=name,
                    remedy="`undamped list models` shows which are recurrent.",
                )
            )
        network = models.build(name, input_size=2 * channels, hidden_size=count)
        super().__init__(channels, network.output_size, thresholds, gap=1.0)
        self.network = network.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> FixedNetwork:
        """Stay as it is: nothing of a fixed network is trained, dropped or averaged."""
        return super().train(False)

    def run(
        self,
        x: Tensor,
        times: Tensor | None = None,
        observed: Tensor | None = None,
        lengths: Tensor | None = None,
        state: BankState | None = None,
        snapshots: dict[int, Pools | None] | None = None,
    ) -> BankState:
        """Let samples drive the network; arguments are those of `Listeners.run`."""
        state = self.empty_state(x.shape[1]) if state is None else state
        pools, inner = state.pools, state.inner
        signals = self.signals(x, observed, state, lengths)
        standard = self.standard(signals)
        # An oscillator that forgets at once shows what drives it.
        still = self.thresholds.new_zeros(self.count).to(x.dtype)
        rates = Rates(still + _AT_ONCE, still, still)
        for begin in range(0, len(x), STEPS_AT_ONCE):
            piece = standard[begin : begin + STEPS_AT_ONCE]
            left = None if lengths is None else (lengths - begin).clamp(0, len(piece))
            heard, inner = self._listen(piece, inner, left)
            pools = self._advance(pools, heard, None, lengths, rates, begin, snapshots)
        return BankState(signals.held, signals.held_known, state.time, pools, inner)

    def _listen(self, piece: Tensor, inner: Any, left: Tensor | None) -> tuple[Tensor, Any]:
        """Go on by some samples; sequences that are over stay where they are."""
        if left is None:
            return self.network(piece, inner)
        before = self.network.initial_state(piece.shape[1]) if inner is None else inner
        heard, after = self.network(piece, inner, lengths=left.clamp_min(1))
        over = (left == 0).view(1, -1, 1)
        if isinstance(after, Tensor):
            return heard, torch.where(over, before, after)
        kept = (torch.where(over, old, new) for old, new in zip(before, after, strict=True))
        return heard, tuple(kept)

    def responses(
        self, x: Tensor, times: Tensor | None, observed: Tensor | None, chosen: Tensor
    ) -> Tensor:
        """Return some of the outputs; arguments are those of `Listeners.responses`."""
        signals = self.signals(x, observed, self.empty_state(1), None)
        return self.network(self.standard(signals))[0][:, 0, chosen]
