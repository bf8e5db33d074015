"""Streaming with a bank of oscillators: a compiled step per sample, predictions on request.

The arithmetic is that of `FixedDynamics.signals` and `pools.advance`, except that the drive of an
oscillator is summed in an order that does not depend on how many samples are pushed at once. The
result therefore has the same bits for blocks of any size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from undamped.lab.baselines.bank.early import FULL, PRIOR, EarlyReadouts
from undamped.lab.baselines.bank.kernels.pools import Pools
from undamped.lab.streams import Leaf, ModelStream, check_leaves

if TYPE_CHECKING:
    from undamped.lab.baselines.bank.dynamics import Oscillators
    from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank


class BankStream(ModelStream):
    """A stream over a copy of a bank of oscillators; later training does not change it.

    Args:
        bank: The bank.
        oscillators: Its oscillators.
        levels: Whether means and current values are among its features.
        limit: Standard deviations at which features are clipped.
    """

    in_blocks = True

    @torch.no_grad()
    def __init__(
        self, bank: OscillatorBank, oscillators: Oscillators, levels: bool, limit: float
    ) -> None:
        self._levels, self._gap, self._dtype = levels, oscillators.gap, bank.dtype
        self._allocate(oscillators)
        self._early = EarlyReadouts(bank.shape, len(bank.centre)).to(bank.dtype)
        self._early.load_state_dict(bank.early.state_dict())
        early = self._early
        self._readouts = [
            (early.centre[at].numpy(), early.scale[at].numpy(), early.weight[at], early.bias[at])
            for at in range(FULL)
        ]
        weight, bias = (part.detach().clone() for part in (bank.readout.weight, bank.readout.bias))
        self._readouts.append((_copy(bank.centre), _copy(bank.scale), weight, bias))
        self._features = torch.empty_like(bank.centre)
        self._feature_array = self._features.numpy()
        self._limit = self._feature_array.dtype.type(limit)

    def _allocate(self, oscillators: Oscillators) -> None:
        """Set the constants, the state and the buffers of the compiled loops."""
        from undamped.lab.baselines.bank.kernels.compiled import (
            Bank,
            Drivers,
            drive_loop,
            features_loop,
            pools_loop,
        )

        self._drive_loop, self._features_loop = drive_loop(), features_loop()
        self._pools_loops = {
            with_gaps: pools_loop(with_gaps, oscillators.locations) for with_gaps in (False, True)
        }
        drivers, thresholds = oscillators.drivers, oscillators.thresholds
        rates = oscillators.rates().to(thresholds.dtype)
        self._bank = tuple(Bank.of(rates, thresholds.clone()))
        most = int((drivers != 0).sum(1).max())
        index = (drivers == 0).byte().argsort(dim=1, stable=True)[:, :most]
        weight = drivers.gather(1, index)
        statistics = oscillators.centre, oscillators.scale
        self._drivers = tuple(Drivers(*map(_copy, (index.T, weight.T, *statistics))))
        empty = Pools.empty(1, thresholds, locations=oscillators.locations)
        self._pools = tuple(map(_copy, empty))
        channels, dtype = drivers.shape[1] // 2, thresholds.numpy().dtype
        self._last = np.zeros(channels, dtype)
        self._has_last = np.zeros(channels, bool)
        self._signals = np.zeros(2 * channels, dtype)
        self._unit_gaps = np.ones((1, 1), dtype)
        self._all_observed = np.ones((1, channels), bool)
        self._oscillators = len(drivers)

    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        inputs = np.ascontiguousarray(x.to(self._dtype).numpy())
        mask = self._all_observed if observed is None else np.ascontiguousarray(observed.numpy())
        drive = np.empty((len(x), 1, self._oscillators), self._last.dtype)
        state = self._last, self._has_last, self._signals
        self._drive_loop(inputs, mask, self._drivers, *state, drive)
        gaps = self._unit_gaps
        if dt is not None:
            gaps = (dt.double().numpy() / self._gap).astype(drive.dtype)[:, None]
        loop = self._pools_loops[dt is not None]
        loop((drive, gaps, np.array([len(x)])), self._bank, self._pools, 0, 1)

    @torch.no_grad()
    def outputs(self) -> Tensor:
        samples = int(self._pools[-1][0])  # `Pools.samples`
        mixture = self._early.mixture(samples)
        outputs = [self._read(readout).mul_(weight) for readout, weight in mixture]
        return (outputs[0] if len(outputs) == 1 else outputs[0] + outputs[1]).unsqueeze(0)

    def _read(self, readout: int) -> Tensor:
        if readout == PRIOR:
            return self._early.prior.clone()
        centre, scale, weight, bias = self._readouts[readout]
        arguments = (self._levels, centre, scale, self._limit, self._feature_array)
        self._features_loop(self._pools, *arguments)
        return torch.addmv(bias, weight, self._features)

    def leaves(self) -> dict[str, Leaf]:
        pools = dict(zip(Pools._fields, self._pools, strict=True))
        arrays = {"last": self._last, "has_last": self._has_last, **pools}
        return {
            name: torch.from_numpy(array.copy()) for name, array in arrays.items() if array.size
        }

    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        check_leaves(leaves, self.leaves())
        arrays = {name: _copy(torch.as_tensor(leaf)) for name, leaf in leaves.items()}
        self._last, self._has_last = arrays["last"], arrays["has_last"]
        pools = zip(Pools._fields, self._pools, strict=True)
        self._pools = tuple(arrays.get(name, empty) for name, empty in pools)


def _copy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().clone().numpy()
