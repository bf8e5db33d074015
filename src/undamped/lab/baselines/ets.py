"""Exponential smoothing in all its forms, by statsforecast."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.continuation import Continuation, Pasts, repeat_season
from undamped.lab.baselines.learns_at_once import Part

LONGEST = 60
"""Steps of the longest season that is taken from the task: every one is a number to be fitted."""
_LETTERS = "NAMD"  # none, additive, multiplicative, damped
_FORM = re.compile("[AMZ][NAMZ][NAMZ]")


@models.register("ets")
class ETS(Continuation):
    """ETS: exponential smoothing with errors, trend and season that add or multiply.

    Equation:
        y_t = (l_{t−1} + b_{t−1}) s_{t−m} (1 + ε_t), for one of its forms
        l_t = (l_{t−1} + b_{t−1}) (1 + α ε_t),  s_t = s_{t−m} (1 + γ ε_t)
        b_t = b_{t−1} + β (l_{t−1} + b_{t−1}) ε_t

    Symbols:
        l level, b trend, s season of m steps, ε errors; α, β, γ how fast they are forgotten.

    Promise:
        None.

    statsforecast's (`pip install 'undamped[forecast]'`). The form is chosen once, by the corrected
    criterion of Akaike on the longest past of the training part; level, trend, season and rates are
    fitted anew to everything before a forecast, one channel at a time, so that learning costs
    nothing and every answer a fit. It knows one season, cannot learn from several series together,
    and cannot follow a stream. Its own intervals are not used: all models have bands of one kind.

    Args:
        shape: The shape of the task.
        season: Another season than that of the task, of which none is taken that has more than 60
            steps, since every one is a number to be fitted: a day in the place of a week.
        form: Three letters for errors, trend and season: N none, A additive, M multiplicative, Z
            whichever the criterion prefers. A long season has many numbers to be fitted, for which
            the criterion likes none better: ZZA insists on one.
        past: How many of the last steps are looked at, at most.

    Example:
        >>> shape = undamped.lab.baselines.ETS.example_shape()
        >>> model = undamped.lab.baselines.ETS(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        R. J. Hyndman, A. B. Koehler, R. D. Snyder, S. Grose. A state space framework for automatic
        forecasting using exponential smoothing methods. International Journal of Forecasting, 2002.
    """

    packages = ("statsforecast",)
    reads_whole_past = True

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        season: PositiveInt | None = None,
        form: str = "ZZZ",
        past: PositiveInt = 600,
    ) -> None:
        super().__init__(shape)
        found = self.forecast.season
        self.season, self.past = season or (found if found <= LONGEST else 1), past
        if not _FORM.fullmatch(form):
            raise OptionError(
                explain(
                    "ets.form",
                    expected="three letters: A, M or Z for errors, then N, A, M or Z for trend and "
                    "for season",
                    got=form,
                    remedy="For example ZZA, or ZZZ to leave all of it to the criterion.",
                )
            )
        if form[2] in "AM" and self.season == 1:
            raise OptionError(
                explain(
                    "ets.form",
                    expected="a season of more than one step, which the form asks for",
                    got=f"{form}, and {self._no_season(found)}",
                    remedy="Say it with model.season=, or leave the third letter to Z or N.",
                )
            )
        self.form = form
        # Every answer is a fit, and some are asked for twice.
        self._answered: dict[bytes, np.ndarray] = {}

    @staticmethod
    def _no_season(found: int) -> str:
        if found == 1:
            return "data in which none was found"
        return f"one of {found} steps, more than {LONGEST}"

    def learn(self, part: Part) -> None:
        """Choose the form of every channel on the longest past there is."""
        longest = np.zeros((0, 0))
        for batch in part:
            for one in self._pasts(batch).known:
                longest = one if len(one) >= len(longest) else longest
        if not len(longest):
            raise DataError("ets: expected at least one series to learn from, got none.")
        forms = []
        for values in longest[-self.past :].T:
            chosen: Any = _smoother(self.form, None, self.season)
            forms.append([_LETTERS.index(letter) for letter in _fitted(chosen, values)])
        self.learnt.keep(forms=torch.tensor(forms))

    def refit(self, part: Part) -> None:
        """The form stays; everything else is fitted when it is asked."""

    def findings(self) -> list[str]:
        """Say which forms were chosen."""
        if not len(self.learnt):
            return []
        names = []
        for form in self.learnt["forms"].tolist():
            error, trend, season, damped = (_LETTERS[letter] for letter in form)
            names.append(f"ETS({error},{trend}{'d' if damped == 'D' else ''},{season})")
        told = [f"{', '.join(names)} with a season of {self.season} steps."]
        if self.season == 1 < self.forecast.season:
            told.append(
                f"A season of {self.forecast.season} steps is too long for it: give a shorter one "
                "with model.season=."
            )
        return told

    def _continued(self, pasts: Pasts) -> np.ndarray:
        horizon = self.shape.horizon
        if not len(self.learnt):
            return np.stack([repeat_season(one, 1, horizon) for one in pasts.known])
        forms = self.learnt["forms"].tolist()
        found = np.zeros((len(pasts.known), horizon, len(forms)))
        for number, one in enumerate(pasts.known):
            for channel, form in enumerate(forms):
                values = one[-self.past :, channel]
                found[number, :, channel] = self._ahead(values, form)
        return found

    def _ahead(self, values: np.ndarray, form: list[int]) -> np.ndarray:
        key = bytes(form) + values.tobytes()
        if key not in self._answered:
            self._answered[key] = self._fit_and_continue(values, form)
        return self._answered[key]

    def _fit_and_continue(self, values: np.ndarray, form: list[int]) -> np.ndarray:
        letters = "".join(_LETTERS[letter] for letter in form[:3])
        damped = _LETTERS[form[3]] == "D"
        if "M" in letters and values.min() <= 0:  # what multiplies needs values above zero
            letters = letters.replace("M", "A")
        fitted: Any = _smoother(letters, damped, self.season)
        _fitted(fitted, values)
        ahead = np.asarray(fitted.predict(self.shape.horizon)["mean"])
        if not np.isfinite(ahead).all():
            raise _unfit("values that have no end")
        return ahead


def _smoother(form: str, damped: bool | None, season: int) -> Any:
    from statsforecast.models import AutoETS

    return AutoETS(season_length=season, model=form, damped=damped)


def _fitted(smoother: Any, values: np.ndarray) -> str:
    """Fit, and return the letters of the form."""
    try:
        smoother.fit(np.ascontiguousarray(values))
        return smoother.model_["components"]
    except Exception as error:  # whatever it raises, it is about the values
        raise _unfit(str(error).splitlines()[0] if str(error) else "a fit that failed") from error


def _unfit(got: str) -> DataError:
    return DataError(
        explain(
            "ets",
            expected="a past that exponential smoothing can be fitted to",
            got=got,
            remedy="Give a longer past, another season=, or choose ridge-lags.",
        )
    )
