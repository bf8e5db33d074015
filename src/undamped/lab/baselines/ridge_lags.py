"""A linear regression on the past: ridge on lags."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError, explain
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.continuation import Continuation, Pasts, refuse_short, repeat_season
from undamped.lab.baselines.learns_at_once import Part
from undamped.lab.baselines.ridge import PENALTIES, fit_ridge
from undamped.lab.data.recordings.prepared import interpolate

_FOLDS = (0.4, 0.6, 0.8)  # of the windows, in time: learnt from while the next fifth is asked
_SCALES = ("values", "roots", "logarithms")
_NEARLY = 1.1  # times the smallest error: forms that are not told apart
_FEWEST = 10  # windows to choose a form with
_MOST_MISSING = 0.5  # of the values after a window


class _Form(NamedTuple):
    """How values are seen.

    Args:
        scale: 0 for values as they are, 1 for their roots, 2 for their logarithms.
        seasonal: Whether what is learnt is the difference from the last season, and not from the
            last value.
    """

    scale: int
    seasonal: bool


@models.register("ridge-lags")
class RidgeOnLags(Continuation):
    """Ridge on lags: every value to come is a linear function of the past.

    Equation:
        ŷ_{T+h} = a_{T+h} + w_h · (x_{T−k} − x_T)_{k<L} + v_h · x_T + b_h

    Symbols:
        x all channels, y the predicted ones, L the lags; a the last value or the last season. v, w,
        b ridge regression.

    Promise:
        None.

    a may be the last value or the last season, and roots or logarithms may be taken (where no value
    is negative, or none zero). Of these forms, each with its best penalty, the answer is the mean
    over those that are nearly as good as the best one, by what the first 40, 60 and 80 % of the
    training windows say about the fifth that comes after them. It wants a past as long as it learnt
    from, and cannot follow a stream.

    Args:
        shape: The shape of the task.
        lags: How many of the last steps are looked at; all of the window if not given.

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
        self._kept: tuple[Pasts, np.ndarray] | None = None

    # Learning

    @torch.no_grad()
    def learn(self, part: Part) -> None:
        """Choose form and penalty by the last windows, then learn from all."""
        pasts, truth = self._collect(part)
        shortest = min(map(len, pasts.known))
        steps = min(self.lags or shortest, shortest)
        self.learnt.keep(steps=torch.tensor(steps))
        scale, seasonal, penalty = self._chosen(pasts, truth)
        self.learnt.keep(scale=scale, seasonal=seasonal, penalty=penalty)  # each (forms,)
        self._kept = pasts, truth
        self._solve(pasts, truth)

    @torch.no_grad()
    def refit(self, part: Part) -> None:
        """Learn from further windows too, with the form and the penalty as they are."""
        batches, kept = list(part), self._kept
        self._kept = None
        if batches and kept is not None:
            pasts, truth = self._collect(batches, fewest=0)
            both = Pasts(kept[0].known + pasts.known, kept[0].inputs + pasts.inputs)
            self._solve(both, np.concatenate([kept[1], truth]))

    def findings(self) -> list[str]:
        """Say which form was chosen."""
        if "weight" not in dict(self.learnt.named_buffers()):
            return []
        kept = [
            f"{_SCALES[form.scale]} from the last {'season' if form.seasonal else 'value'}"
            for form in self._forms()
        ]
        lags = int(self.learnt["steps"])
        if len(kept) == 1:
            return [f"Ridge on {lags} lags, of differences of {kept[0]}."]
        return [
            f"Ridge on {lags} lags, the mean over {len(kept)} kinds of differences that did about "
            f"equally well on later windows: {', '.join(kept)}."
        ]

    def _collect(self, part: Part, fewest: int = 2) -> tuple[Pasts, np.ndarray]:
        """Return windows and what came after them; of values that are missing there, a guess."""
        known, inputs, truth = [], [], []
        for batch in part:
            rows, pasts = self._truth(batch), self._pasts(batch)
            # Windows of which more than half is missing would be made of guesses.
            there = np.flatnonzero(np.isnan(rows).mean((1, 2)) <= _MOST_MISSING)
            known += [pasts.known[i] for i in there]
            inputs += [pasts.inputs[i] for i in there]
            for i in there:
                whole = np.concatenate([pasts.known[i][-1:], rows[i]])
                truth.append(interpolate(whole, ~np.isnan(whole))[1:])
        if len(known) < fewest:
            raise DataError(
                explain(
                    "ridge-lags",
                    expected="at least two windows of whose values to come half are known",
                    got=len(known),
                    remedy="Give more data, a shorter horizon or a shorter window.",
                )
            )
        return Pasts(known, inputs), np.array(truth).reshape(len(known), self.shape.horizon, -1)

    def _chosen(self, pasts: Pasts, truth: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return scale, season and penalty of the forms that are best on windows to come."""
        count = len(truth)
        seasonal = 1 < self.forecast.season <= min(map(len, pasts.known))
        if count < _FEWEST:
            return np.array([0]), np.array([seasonal]), np.array([1.0])
        lowest = min(min(one.min() for one in pasts.known), truth.min())
        scales = [0] if lowest < 0 else [0, 1] if lowest == 0 else [0, 1, 2]
        forms = [_Form(*f) for f in itertools.product(scales, (False, True)[: 1 + seasonal])]
        errors = np.zeros((len(forms), len(PENALTIES)))
        for place, form in enumerate(forms):
            features, base = self._features(pasts, form)
            answers = (_seen(truth, form.scale) - base).reshape(count, -1)
            for share in _FOLDS:
                first, stop = int(share * count), int((share + 0.2) * count)
                said = _predictions(features[:stop], answers[:first])
                added = base[first:stop]
                values = _unseen(added + said.reshape(-1, *added.shape), form.scale)
                errors[place] += np.abs(values - truth[first:stop]).mean((1, 2, 3))
        errors = np.where(np.isfinite(errors), errors, np.inf)
        kept = np.flatnonzero(errors.min(1) <= _NEARLY * errors.min())
        return (
            np.array([forms[one].scale for one in kept]),
            np.array([forms[one].seasonal for one in kept]),
            PENALTIES.numpy()[errors[kept].argmin(1)],
        )

    def _solve(self, pasts: Pasts, truth: np.ndarray) -> None:
        weights, biases = [], []
        for form, penalty in zip(self._forms(), self.learnt["penalty"].tolist(), strict=True):
            features, base = self._features(pasts, form)
            scale = _scale(features)
            answers = (_seen(truth, form.scale) - base).reshape(len(truth), -1)
            x, y = torch.from_numpy(features / scale), torch.from_numpy(answers)
            solved = fit_ridge(x, y, penalty)
            weights.append(solved.weight / scale)
            biases.append(solved.bias)
        self.learnt.keep(weight=torch.stack(weights), bias=torch.stack(biases))

    def _forms(self) -> list[_Form]:
        scale, seasonal = self.learnt.numpy("scale", "seasonal")
        return [_Form(int(a), bool(b)) for a, b in zip(scale, seasonal, strict=True)]

    # Answers

    def _features(self, pasts: Pasts, form: _Form) -> tuple[np.ndarray, np.ndarray]:
        """Return lags (windows, features) and what is added to (windows, horizon, channels)."""
        steps, season = int(self.learnt["steps"]), self.forecast.season
        needed = max(steps, season if form.seasonal else 1)
        refuse_short("ridge-lags", min(map(len, pasts.known)), needed, "as it learnt from")
        lags = np.stack([one[-steps:] for one in pasts.inputs])
        lags[:, :, list(self.forecast.channels)] = np.stack(
            [_seen(one[-steps:], form.scale) for one in pasts.known]
        )
        last = lags[:, -1:]
        table = np.concatenate([lags[:, :-1] - last, last], axis=1).reshape(len(lags), -1)
        cycle = season if form.seasonal else 1
        horizon = self.shape.horizon
        base = np.stack([repeat_season(one[-cycle:], cycle, horizon) for one in pasts.known])
        return table, _seen(base, form.scale)

    def _continued(self, pasts: Pasts) -> np.ndarray:
        if "weight" not in dict(self.learnt.named_buffers()):
            return np.stack([repeat_season(one, 1, self.shape.horizon) for one in pasts.known])
        found = []
        weights, biases = self.learnt.numpy("weight", "bias")
        for form, weight, bias in zip(self._forms(), weights, biases, strict=True):
            features, base = self._features(pasts, form)
            said = (features @ weight.T + bias).reshape(base.shape)
            found.append(_unseen(base + said, form.scale))
        return np.mean(found, axis=0)


def _seen(values: np.ndarray, scale: int) -> np.ndarray:
    # Smaller values than in training may come; they are taken for very small ones.
    if scale == 0:
        return values
    return np.sqrt(np.maximum(values, 0)) if scale == 1 else np.log(np.maximum(values, 1e-12))


def _unseen(values: np.ndarray, scale: int) -> np.ndarray:
    if scale == 0:
        return values
    return np.square(np.maximum(values, 0)) if scale == 1 else np.exp(np.minimum(values, 700.0))


def _scale(features: np.ndarray) -> float:
    """Return one scale for all lags, so that penalties mean the same in all units."""
    spread = float(np.sqrt(np.square(features - features.mean(0)).mean()))
    return spread if spread > 0 else 1.0


def _predictions(features: np.ndarray, answers: np.ndarray) -> np.ndarray:
    """Return what each penalty says about the last windows after the first ones.

    Args:
        features: (windows, features) of all.
        answers: (first windows, values) of the first.

    Returns:
        (penalties, last windows, values).
    """
    first = len(answers)
    scale = _scale(features[:first])
    x, later = features[:first] / scale, features[first:] / scale
    centre, middle = x.mean(0), answers.mean(0)
    left, values, right = np.linalg.svd(x - centre, full_matrices=False)
    seen, turned = left.T @ (answers - middle), (later - centre) @ right.T
    strengths = PENALTIES.numpy()[:, None]
    shrink = values / (np.square(values) + strengths)  # (penalties, directions)
    return np.stack([turned @ (one[:, None] * seen) + middle for one in shrink])
