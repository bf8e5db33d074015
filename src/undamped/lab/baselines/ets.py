"""Exponential smoothing in all its forms, by statsforecast."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.local_forecasts import LocalForecaster

LONGEST = 60
"""The longest season that is taken from the task: each of its steps is a parameter."""
_LETTERS = "NAMD"  # none, additive, multiplicative, damped
_FORM = re.compile("[AMZ][NAMZ][NAMZ]")


@models.register("ets")
class ETS(LocalForecaster):
    """ETS: exponential smoothing with additive or multiplicative errors, trend and season.

    Equation:
        y_t = (l_{t−1} + b_{t−1}) s_{t−m} (1 + ε_t), for one of its forms
        l_t = (l_{t−1} + b_{t−1}) (1 + α ε_t),  s_t = s_{t−m} (1 + γ ε_t)
        b_t = b_{t−1} + β (l_{t−1} + b_{t−1}) ε_t

    Symbols:
        l level, b trend, s season of m steps, ε errors; α, β, γ smoothing rates.

    Promise:
        None.

    The implementation is statsforecast's (`pip install 'undamped[forecast]'`). The form is chosen
    once, by the corrected Akaike criterion on the longest history of the training split. Level,
    trend, season and rates are fitted to the history of every forecast, one channel at a time, so
    that training is cheap and every prediction is a fit. It models one season, cannot be fitted to
    several series together, and cannot follow a stream. Its own intervals are not used, since all
    models have the same kind of bands.

    Args:
        shape: The shape of the task.
        season: Steps of the season, for instance a day instead of a week; by default that of the
            task, if it has at most 60 steps: each of them is a parameter.
        form: Three letters for errors, trend and season: N none, A additive, M multiplicative, Z
            chosen by the criterion. A long season has many parameters, so that the criterion
            prefers none: ZZA insists on one.
        past: The largest number of past steps that is used.

    Example:
        >>> shape = undamped.lab.baselines.ETS.example_shape()
        >>> model = undamped.lab.baselines.ETS(shape)
        >>> model(torch.randn(20, 8, 1)).shape
        torch.Size([8, 3])

    Reference:
        R. J. Hyndman, A. B. Koehler, R. D. Snyder, S. Grose. A state space framework for automatic
        forecasting using exponential smoothing methods. International Journal of Forecasting, 2002.
    """

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        season: PositiveInt | None = None,
        form: str = "ZZZ",
        past: PositiveInt = 600,
    ) -> None:
        super().__init__(shape, past)
        task_season = self.forecast.season
        self.season = season or (task_season if task_season <= LONGEST else 1)
        self.form = form
        if not _FORM.fullmatch(form):
            raise OptionError(
                "ets.form must be three letters, A, M or Z for errors, then N, A, M or Z for trend "
                f"and for season, got {form}. For example ZZA, or ZZZ to let the criterion choose."
            )
        if form[2] in "AM" and self.season == 1:
            reason = (
                "the data have none"
                if task_season == 1
                else f"that of the data, {task_season} steps, is longer than {LONGEST}"
            )
            raise OptionError(
                f"ets.form={form} needs a season, but {reason}. Set model.season=, or use Z or N "
                "as the third letter."
            )

    def _choose_form(self, values: np.ndarray) -> None:
        forms = []
        for column in values.T:
            letters = self._fit(_smoother(self.form, None, self.season), column)
            forms.append([_LETTERS.index(letter) for letter in letters])
        self.arrays.store(forms=torch.tensor(forms))

    def findings(self) -> list[str]:
        if not self.is_fitted:
            return []
        names = []
        for form in self.arrays["forms"].tolist():
            error, trend, season, damped = (_LETTERS[letter] for letter in form)
            names.append(f"ETS({error},{trend}{'d' if damped == 'D' else ''},{season})")
        sentences = [f"{', '.join(names)} with a season of {self.season} steps."]
        if self.season == 1 < self.forecast.season:
            sentences.append(
                f"A season of {self.forecast.season} steps is too long for ETS. Set a shorter one "
                "with model.season=."
            )
        return [*sentences, *self._effect_findings()]

    def _continue(self, values: np.ndarray, channel: int) -> np.ndarray:
        form = self.arrays["forms"][channel].tolist()
        letters = "".join(_LETTERS[letter] for letter in form[:3])
        damped = _LETTERS[form[3]] == "D"
        if "M" in letters and values.min() <= 0:  # multiplicative forms need positive values
            letters = letters.replace("M", "A")
        smoother = _smoother(letters, damped, self.season)
        self._fit(smoother, values)
        return self._finite(smoother.predict(self.shape.horizon)["mean"])

    def _fit(self, smoother: Any, values: np.ndarray) -> str:
        """Fit a smoother, and return the letters of its form."""
        try:
            smoother.fit(np.ascontiguousarray(values))
            return smoother.model_["components"]
        except Exception as error:  # statsforecast raises various types for unsuitable values
            raise self._fit_error(error) from error


def _smoother(form: str, damped: bool | None, season: int) -> Any:
    from statsforecast.models import AutoETS

    return AutoETS(season_length=season, model=form, damped=damped)
