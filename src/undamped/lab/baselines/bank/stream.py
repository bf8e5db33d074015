"""A bank that hears one stream: a compiled step, and answers when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped.lab.baselines.bank.early import PRIOR, WHOLE, EarlyReadouts
from undamped.lab.baselines.bank.kernels.stream import PoolStream
from undamped.models.model_stream import Leaf, ModelStream, check_leaves

if TYPE_CHECKING:
    from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
    from undamped.lab.baselines.bank.oscillators import Oscillators


class BankStream(ModelStream):
    """A bank of oscillators as it was when the stream began.

    Args:
        bank: The bank.
        oscillators: What it hears with.
        levels: Whether means and present values are among its features.
        farthest: Standard deviations to which a feature is believed.
    """

    in_blocks = True

    @torch.no_grad()
    def __init__(
        self, bank: OscillatorBank, oscillators: Oscillators, levels: bool, farthest: float
    ) -> None:
        self._bank, self._levels, self._farthest = bank, levels, farthest
        self._gap, self._dtype = oscillators.gap, bank.dtype
        self._pools = PoolStream(
            oscillators.rates(),
            oscillators.drivers,
            oscillators.centre,
            oscillators.scale,
            oscillators.thresholds,
        )
        self._early = EarlyReadouts(bank.shape, len(bank.centre)).to(bank.dtype)
        self._early.load_state_dict(bank.early.state_dict())
        early = self._early
        self._readouts = [
            (early.centre[at].numpy(), early.scale[at].numpy(), early.weight[at], early.bias[at])
            for at in range(WHOLE)
        ]
        whole = [part.clone() for part in (bank.centre, bank.scale)]
        linear = [part.detach().clone() for part in (bank.readout.weight, bank.readout.bias)]
        self._readouts.append((whole[0].numpy(), whole[1].numpy(), linear[0], linear[1]))
        self._features = torch.empty_like(whole[0])

    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        """Take samples; arguments are those of `ModelStream.push`."""
        gaps = None if dt is None else dt.double().numpy() / self._gap
        seen = None if observed is None else observed.numpy()
        self._pools.push(x.to(self._dtype).numpy(), gaps, seen)

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Return what the bank says after the samples so far, (1, outputs)."""
        shares = self._early.mixture(self._pools.samples)
        answers = [self._read(place).mul_(share) for place, share in shares]
        return (answers[0] if len(answers) == 1 else answers[0] + answers[1]).unsqueeze(0)

    def _read(self, place: int) -> Tensor:
        if place == PRIOR:
            return self._early.prior.clone()
        centre, scale, weight, bias = self._readouts[place]
        out = self._features
        self._pools.standard_features(self._levels, centre, scale, self._farthest, out.numpy())
        return torch.addmv(bias, weight, out)

    def leaves(self) -> dict[str, Leaf]:
        """Return the tensors that the state is made of, by name."""
        return {**self._pools.state}

    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        """Go on from what `leaves` returned."""
        check_leaves(leaves, self.leaves())
        self._pools.restore(leaves)  # type: ignore[arg-type]
