"""The base of baselines that read a complete series before they predict."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape
from undamped._base.errors import DataError
from undamped.lab.baselines.closed_form import Batches, ClosedFormModel, FittedArrays, check_readout
from undamped.lab.baselines.ridge import ridge_targets, sample_weights


class LabelledSeries(NamedTuple):
    """A split of the data in memory.

    Args:
        series: Each (channels, time), without padding.
        observed: Masks of the measured values, each (channels, time).
        targets: (series, outputs); ±1 for classes.
        weights: (series,) weights of the series without those of their classes; None if equal.
    """

    series: list[np.ndarray]
    observed: list[np.ndarray]
    targets: Tensor
    weights: Tensor | None = None

    def concat(self, further: LabelledSeries) -> LabelledSeries:
        """Return the series of both."""
        weights = None
        if self.weights is not None and further.weights is not None:
            weights = torch.cat((self.weights, further.weights))
        targets = torch.cat((self.targets, further.targets))
        return LabelledSeries(
            self.series + further.series, self.observed + further.observed, targets, weights
        )


class WholeSeriesModel(ClosedFormModel):
    """A model that needs a complete series to predict, and therefore cannot follow a stream.

    Args:
        shape: The shape of the task.
    """

    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number"})
    input_kinds = frozenset[InputKind]({"vectors", "pixels"})
    sequential = True

    def __init__(self, shape: TaskShape) -> None:
        super().__init__()
        check_readout(type(self).__name__, shape)
        self.shape = shape
        self.arrays = FittedArrays()
        self.offset = nn.Parameter(torch.zeros(shape.output_size))
        self._training_data: LabelledSeries | None = None

    @property
    def why_no_stream(self) -> str:
        return "one that needs a whole series before it answers"

    def parameter_count(self) -> int:
        """Return how many numbers were fitted to the data: weights, biases, trees, series."""
        return super().parameter_count() + self.arrays.parameter_count()

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return a prediction for every series; a model that is not fitted predicts a constant."""
        if not len(self.arrays):
            return self.offset.expand(batch.inputs.shape[1], -1), None
        outputs = self._predict(*_series_of(batch))
        return outputs.to(self.offset.dtype) + self.offset, None

    @abstractmethod
    def _predict(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        """Return predictions (series, outputs) without their common offset."""

    @abstractmethod
    def _fit_series(self, data: LabelledSeries, *, select: bool) -> None:
        """Fit the model to series; `select` says whether to choose hyperparameters on them."""

    @torch.no_grad()
    def fit_closed_form(self, batches: Batches) -> None:
        self._training_data = self._collect(batches)
        self._fit_series(self._training_data, select=True)

    @torch.no_grad()
    def refit(self, batches: Batches) -> None:
        """Fit the model to both splits, with the hyperparameters of the first."""
        training_data, self._training_data = self._training_data, None
        further = list(batches)
        if training_data is not None and further:
            data = training_data.concat(self._collect(further, fewest=0))
            self._fit_series(data, select=False)

    def _collect(self, batches: Batches, fewest: int = 2) -> LabelledSeries:
        """Return the series that have a target; fewer than `fewest` are refused."""
        series: list[np.ndarray] = []
        observed: list[np.ndarray] = []
        targets = [torch.zeros(0, self.shape.output_size, dtype=torch.float64)]
        weights: list[Tensor] = []
        for batch in batches:
            rows, mask = ridge_targets(self.shape, batch)
            row_weights = sample_weights(self.shape, rows, batch.weights)
            if row_weights is not None:
                mask = mask & (row_weights > 0)
            batch_series, batch_observed = _series_of(batch)
            index = mask.nonzero().squeeze(1).tolist()
            series += [batch_series[i] for i in index]
            observed += [batch_observed[i] for i in index]
            targets.append(rows[mask])
            if batch.weights is not None:
                weights.append(batch.weights[mask])
        if len(series) < fewest:
            raise DataError(
                f"{type(self).__name__} needs at least two series with a target, got "
                f"{len(series)}. Add training data."
            )
        all_weights = torch.cat(weights) if weights else None
        return LabelledSeries(series, observed, torch.cat(targets), all_weights)

    def _refuse_missing(self, array: np.ndarray) -> None:
        if np.isnan(array).any():
            raise DataError(
                f"{type(self).__name__} cannot use series with missing values. Fill them "
                "(missing=interpolate), or choose bank or boosting."
            )


def lengths_of(batch: Batch) -> list[int]:
    """Return the number of samples of each series of a batch."""
    steps, count = batch.inputs.shape[:2]
    return [steps] * count if batch.lengths is None else batch.lengths.tolist()


def _series_of(batch: Batch) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return series and masks of the measured values, each (channels, time)."""
    values = batch.inputs.detach().cpu().float().permute(1, 2, 0).numpy()
    mask = ~np.isnan(values)
    if batch.observed is not None:
        mask &= batch.observed.cpu().permute(1, 2, 0).numpy()
    lengths = lengths_of(batch)
    return (
        [series[:, :length] for series, length in zip(values, lengths, strict=True)],
        [series[:, :length] for series, length in zip(mask, lengths, strict=True)],
    )


@contextmanager
def preserve_global_state() -> Iterator[None]:
    """Restore the random numbers of NumPy and torch, and the numbers of threads, on exit.

    aeon seeds the global generators of both, Hydra sets torch's number of threads and the shapelet
    transform that of Numba. Numba warns of casts and lists in aeon's loops when it compiles them,
    and NumPy of a tensor that aeon rounds by it.
    """
    import numba
    from numba.core.errors import NumbaPendingDeprecationWarning

    state, threads = np.random.get_state(), torch.get_num_threads()
    numba_threads = numba.get_num_threads()
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*(unsafe cast|__array_wrap__)")
            warnings.simplefilter("ignore", NumbaPendingDeprecationWarning)
            yield
    finally:
        np.random.set_state(state)
        numba.set_num_threads(numba_threads)
        if torch.get_num_threads() != threads:
            torch.set_num_threads(threads)
