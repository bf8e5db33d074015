"""A linear regression on the past: ridge on lags."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches
from undamped.lab.baselines.forecast_model import ForecastModel, History
from undamped.lab.baselines.ridge import PENALTIES, fit_ridge
from undamped.lab.data.recordings.prepared import interpolate

_FOLDS = (0.4, 0.6, 0.8)  # fractions of the windows, in time; the next fifth validates the fit
_SCALES = ("values", "roots", "logarithms")
_TOLERANCE = 1.1  # times the smallest error: forms that are considered equally good
_FEWEST = 10  # windows for the selection of a form
_MOST_MISSING = 0.5  # of the targets of a window


class _Form(NamedTuple):
    """How values are transformed.

    Args:
        scale: An index of `_SCALES`.
        seasonal: Whether the regression predicts the difference from the last season, instead of
            the last value.
    """

    scale: int
    seasonal: bool


@models.register("ridge-lags")
class RidgeOnLags(ForecastModel):
    """Ridge on lags: every future value is a linear function of the past.

    Equation:
        ŷ_{T+h} = a_{T+h} + w_h · (x_{T−k} − x_T)_{k<L} + v_h · x_T + b_h

    Symbols:
        x all channels, y the forecast ones, L the lags; a the last value or the last season. v, w,
        b ridge regression.

    Promise:
        None.

    a may be the last value or the last season, and values may be replaced by their roots (if none
    is negative) or logarithms (if all are positive). Each of these forms has its best penalty. The
    prediction is the mean over the forms whose error is within 10 % of the smallest, measured by
    fits to the first 40, 60 and 80 % of the training windows and tests on the next fifth. It needs
    a past as long as in training, and cannot follow a stream.

    Args:
        shape: The shape of the task.
        lags: Number of past steps in the regression; by default all of the window.

    Example:
        >>> shape = undamped.lab.baselines.RidgeOnLags.example_shape()
        >>> model = undamped.lab.baselines.RidgeOnLags(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        A. E. Hoerl, R. W. Kennard. Ridge regression: biased estimation for nonorthogonal problems.
        Technometrics, 1970.
    """

    @checked
    def __init__(self, shape: TaskShape, *, lags: PositiveInt | None = None) -> None:
        super().__init__(shape)
        self.lags = lags
        self._training_data: tuple[History, np.ndarray] | None = None

    # Fit

    @torch.no_grad()
    def fit_closed_form(self, batches: Batches) -> None:
        """Choose forms and penalties on the last windows, then fit to all."""
        self._fit_effects(batches)
        history, targets = self._collect(batches)
        shortest = min(map(len, history.values))
        self.arrays.store(steps=torch.tensor(min(self.lags or shortest, shortest)))
        scale, seasonal, penalty = self._select(history, targets)
        self.arrays.store(scale=scale, seasonal=seasonal, penalty=penalty)  # each (forms,)
        self._training_data = history, targets
        self._solve(history, targets)

    @torch.no_grad()
    def refit(self, batches: Batches) -> None:
        """Fit to further windows too, with unchanged forms and penalties."""
        further, training_data = list(batches), self._training_data
        self._training_data = None
        if further and training_data is not None:
            history, targets = self._collect(further, fewest=0)
            before, earlier_targets = training_data
            both = History(before.values + history.values, before.inputs + history.inputs)
            self._solve(both, np.concatenate([earlier_targets, targets]))

    def findings(self) -> list[str]:
        if not self.is_fitted:
            return []
        names = [
            f"{_SCALES[form.scale]} from the last {'season' if form.seasonal else 'value'}"
            for form in self._forms()
        ]
        lags = int(self.arrays["steps"])
        if len(names) == 1:
            return [
                f"Ridge on {lags} lags, of differences of {names[0]}.",
                *self._effect_findings(),
            ]
        return [
            f"Ridge on {lags} lags, the mean over {len(names)} kinds of differences with about "
            f"equal errors on later windows: {', '.join(names)}.",
            *self._effect_findings(),
        ]

    def _collect(self, batches: Batches, fewest: int = 2) -> tuple[History, np.ndarray]:
        """Return windows and their targets; missing targets are interpolated."""
        values, inputs, targets = [], [], []
        for batch in batches:
            rows, history = self._targets(batch), self._history(batch)
            effects, _, later = self._covariates(history)
            history = self._without_effects(history)
            rows = rows if effects is None else effects.remove(rows, later)
            # Windows with more missing targets would consist of interpolated values.
            for i in np.flatnonzero(np.isnan(rows).mean((1, 2)) <= _MOST_MISSING):
                values.append(history.values[i])
                inputs.append(history.inputs[i])
                extended = np.concatenate([history.values[i][-1:], rows[i]])
                targets.append(interpolate(extended, ~np.isnan(extended))[1:])
        if len(values) < fewest:
            raise DataError(
                "ridge-lags needs at least two windows with half of their targets measured, got "
                f"{len(values)}. Use more data, a shorter horizon or a shorter window."
            )
        shape = len(values), self.shape.horizon, -1
        return History(values, inputs), np.array(targets).reshape(shape)

    def _select(self, history: History, targets: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return scales, seasons and penalties of the forms with the smallest errors."""
        count = len(targets)
        seasonal = 1 < self.forecast.season <= min(map(len, history.values))
        if count < _FEWEST:
            return np.array([0]), np.array([seasonal]), np.array([1.0])
        lowest = min(min(values.min() for values in history.values), targets.min())
        scales = [0] if lowest < 0 else [0, 1] if lowest == 0 else [0, 1, 2]
        forms = [_Form(*f) for f in itertools.product(scales, (False, True)[: 1 + seasonal])]
        errors = np.zeros((len(forms), len(PENALTIES)))
        for index, form in enumerate(forms):
            features, base = self._features(history, form)
            differences = (_transform(targets, form.scale) - base).reshape(count, -1)
            for fraction in _FOLDS:
                first, stop = int(fraction * count), int((fraction + 0.2) * count)
                predictions = _predictions(features[:stop], differences[:first])
                added = base[first:stop]
                values = _invert(added + predictions.reshape(-1, *added.shape), form.scale)
                errors[index] += np.abs(values - targets[first:stop]).mean((1, 2, 3))
        errors = np.where(np.isfinite(errors), errors, np.inf)
        best = np.flatnonzero(errors.min(1) <= _TOLERANCE * errors.min())
        return (
            np.array([forms[index].scale for index in best]),
            np.array([forms[index].seasonal for index in best]),
            PENALTIES.numpy()[errors[best].argmin(1)],
        )

    def _solve(self, history: History, targets: np.ndarray) -> None:
        weights, biases = [], []
        for form, penalty in zip(self._forms(), self.arrays["penalty"].tolist(), strict=True):
            features, base = self._features(history, form)
            scale = _spread(features)
            differences = (_transform(targets, form.scale) - base).reshape(len(targets), -1)
            x, y = torch.from_numpy(features / scale), torch.from_numpy(differences)
            ridge = fit_ridge(x, y, penalty)
            weights.append(ridge.weight / scale)
            biases.append(ridge.bias)
        self.arrays.store(weight=torch.stack(weights), bias=torch.stack(biases))

    def _forms(self) -> list[_Form]:
        scale, seasonal = self.arrays.numpy("scale", "seasonal")
        return [_Form(int(a), bool(b)) for a, b in zip(scale, seasonal, strict=True)]

    # Predictions

    @property
    def is_fitted(self) -> bool:
        """Whether there are weights: forms and penalties alone are stored before them."""
        return "weight" in self.arrays

    def _features(self, history: History, form: _Form) -> tuple[np.ndarray, np.ndarray]:
        """Return lags (windows, features), and the base a (windows, horizon, channels)."""
        steps, season = int(self.arrays["steps"]), self.forecast.season
        cycle = season if form.seasonal else 1
        self._refuse_short(history, max(steps, cycle), "as in training")
        lags = np.stack([inputs[-steps:] for inputs in history.inputs])
        lags[:, :, list(self.forecast.channels)] = np.stack(
            [_transform(values[-steps:], form.scale) for values in history.values]
        )
        last = lags[:, -1:]
        table = np.concatenate([lags[:, :-1] - last, last], axis=1)
        # Later values of covariates reach back as well.
        table = np.delete(table, [now for now, _ in self.forecast.covariates], axis=2)
        table = table.reshape(len(lags), -1)
        return table, _transform(self._repeat(history, cycle), form.scale)

    def _forecast(self, history: History) -> np.ndarray:
        forecasts = []
        weights, biases = self.arrays.numpy("weight", "bias")
        for form, weight, bias in zip(self._forms(), weights, biases, strict=True):
            features, base = self._features(history, form)
            differences = (features @ weight.T + bias).reshape(base.shape)
            forecasts.append(_invert(base + differences, form.scale))
        return np.mean(forecasts, axis=0)


def _transform(values: np.ndarray, scale: int) -> np.ndarray:
    # Values below those of training are clipped to zero or to a very small number.
    if scale == 0:
        return values
    return np.sqrt(np.maximum(values, 0)) if scale == 1 else np.log(np.maximum(values, 1e-12))


def _invert(values: np.ndarray, scale: int) -> np.ndarray:
    if scale == 0:
        return values
    return np.square(np.maximum(values, 0)) if scale == 1 else np.exp(np.minimum(values, 700.0))


def _spread(features: np.ndarray) -> float:
    """Return one scale for all lags, so that penalties mean the same in all units."""
    spread = float(np.sqrt(np.square(features - features.mean(0)).mean()))
    return spread if spread > 0 else 1.0


def _predictions(features: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the predictions of the last windows by fits to the first, for every penalty.

    Args:
        features: (windows, features) of all windows.
        targets: (first windows, values).

    Returns:
        (penalties, last windows, values).
    """
    first = len(targets)
    scale = _spread(features[:first])
    x, later = features[:first] / scale, features[first:] / scale
    centre, mean = x.mean(0), targets.mean(0)
    u, values, vt = np.linalg.svd(x - centre, full_matrices=False)
    coefficients, projected = u.T @ (targets - mean), (later - centre) @ vt.T
    shrink = values / (np.square(values) + PENALTIES.numpy()[:, None])  # (penalties, directions)
    return np.stack([projected @ (row[:, None] * coefficients) + mean for row in shrink])
