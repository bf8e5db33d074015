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
from undamped.models.model_stream import Leaf, ModelStream, check_leaves

if TYPE_CHECKING:
    from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
    from undamped.lab.baselines.bank.oscillators import Oscillators


class PoolStream:
    """The oscillators of a bank and their pools for one stream, in preallocated arrays.

    Args:
        oscillators: The oscillators.
    """

    def __init__(self, oscillators: Oscillators) -> None:
        from undamped.lab.baselines.bank.kernels.compiled import (
            Bank,
            Drivers,
            drive_loop,
            features_loop,
            pools_loop,
        )

        drivers, thresholds = oscillators.drivers, oscillators.thresholds
        rates = oscillators.rates().to(thresholds.dtype)
        self._bank = tuple(Bank.of(rates, thresholds.clone()))
        most = int((drivers != 0).sum(1).max())
        index = (drivers == 0).byte().argsort(dim=1, stable=True)[:, :most]
        weight = drivers.gather(1, index)
        statistics = oscillators.centre, oscillators.scale
        self._drivers = tuple(Drivers(*map(_copy, (index.T, weight.T, *statistics))))
        self._pools = tuple(map(_copy, Pools.empty(1, thresholds)))
        channels, dtype = drivers.shape[1] // 2, thresholds.numpy().dtype
        self._last = np.zeros(channels, dtype)
        self._has_last = np.zeros(channels, bool)
        self._drive_loop, self._features_loop = drive_loop(), features_loop()
        self._pools_loops = {with_gaps: pools_loop(with_gaps) for with_gaps in (False, True)}
        self._signals = np.zeros(2 * channels, dtype)
        self._unit_gaps = np.ones((1, 1), dtype)
        self._all_observed = np.ones((1, channels), bool)
        self._oscillators = len(drivers)

    @property
    def samples(self) -> int:
        """The number of samples so far."""
        return int(self._pools[-1][0])  # `Pools.samples`

    def push(self, x: np.ndarray, gaps: np.ndarray | None, observed: np.ndarray | None) -> None:
        """Take samples.

        Args:
            x: (samples, channels) in the type of the bank.
            gaps: (samples,) time before each, in typical gaps; 1 by default.
            observed: (samples, channels) mask of the measured values; all but NaN by default.
        """
        x = np.ascontiguousarray(x)
        mask = self._all_observed if observed is None else np.ascontiguousarray(observed)
        drive = np.empty((len(x), 1, self._oscillators), self._last.dtype)
        self._drive_loop(x, mask, self._drivers, self._last, self._has_last, self._signals, drive)
        times = self._unit_gaps if gaps is None else gaps.astype(drive.dtype)[:, None]
        inputs = drive, times, np.array([len(x)])  # as `Inputs`
        self._pools_loops[gaps is not None](inputs, self._bank, self._pools, 0, 1)

    def standard_features(
        self, levels: bool, centre: np.ndarray, scale: np.ndarray, limit: float, out: np.ndarray
    ) -> None:
        """Write the standardised features into an array.

        Args:
            levels: Whether means and current values come first.
            centre: (features,).
            scale: (features,).
            limit: Features are clipped at plus and minus this value.
            out: (features,).
        """
        self._features_loop(self._pools, levels, centre, scale, out)
        np.clip(out, -limit, limit, out=out)

    @property
    def state(self) -> dict[str, Tensor]:
        """A copy of everything that changes, by name."""
        pools = dict(zip(Pools._fields, self._pools, strict=True))
        arrays = {"last": self._last, "has_last": self._has_last, **pools}
        return {name: torch.from_numpy(array.copy()) for name, array in arrays.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Continue from a copy of `state`, whose shapes and types were checked."""
        self._last, self._has_last = _copy(state["last"]), _copy(state["has_last"])
        self._pools = tuple(_copy(state[name]) for name in Pools._fields)


def _copy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().clone().numpy()


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
        self._levels, self._limit = levels, limit
        self._gap, self._dtype = oscillators.gap, bank.dtype
        self._pools = PoolStream(oscillators)
        self._early = EarlyReadouts(bank.shape, len(bank.centre)).to(bank.dtype)
        self._early.load_state_dict(bank.early.state_dict())
        early = self._early
        self._readouts = [
            (early.centre[at].numpy(), early.scale[at].numpy(), early.weight[at], early.bias[at])
            for at in range(FULL)
        ]
        centre, scale = bank.centre.clone(), bank.scale.clone()
        weight, bias = (part.detach().clone() for part in (bank.readout.weight, bank.readout.bias))
        self._readouts.append((centre.numpy(), scale.numpy(), weight, bias))
        self._features = torch.empty_like(centre)

    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        """Take samples; arguments are those of `ModelStream.push`."""
        gaps = None if dt is None else dt.double().numpy() / self._gap
        mask = None if observed is None else observed.numpy()
        self._pools.push(x.to(self._dtype).numpy(), gaps, mask)

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Return the prediction after the samples so far, (1, outputs)."""
        mixture = self._early.mixture(self._pools.samples)
        outputs = [self._read(readout).mul_(weight) for readout, weight in mixture]
        return (outputs[0] if len(outputs) == 1 else outputs[0] + outputs[1]).unsqueeze(0)

    def _read(self, readout: int) -> Tensor:
        if readout == PRIOR:
            return self._early.prior.clone()
        centre, scale, weight, bias = self._readouts[readout]
        out = self._features
        self._pools.standard_features(self._levels, centre, scale, self._limit, out.numpy())
        return torch.addmv(bias, weight, out)

    def leaves(self) -> dict[str, Leaf]:
        """Return copies of the tensors of the state, by name."""
        return {**self._pools.state}

    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        """Restore the state that `leaves` returned."""
        check_leaves(leaves, self.leaves())
        self._pools.restore(leaves)  # type: ignore[arg-type]
