"""The Brusselator, a chemical reaction that oscillates, with a little noise."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from undamped._base.registry import tasks
from undamped.lab.tasks.irregular.sporadic import SporadicTask


@tasks.register("brusselator")
class Brusselator(SporadicTask):
    """Say the next measurement of a chemical reaction that oscillates.

    dx = (1 + (b + 1)(−x) + a x² y) dt + noise,  dy = (b x − a x² y) dt + noise, with a = 0.3 and
    b = 1.4, from near its resting point; 50 units of time, some 25 measurements, four fifths of
    them of both substances. Tests see what lies before time 20.

    Args:
        series: How many reactions there are to learn from.
        ahead: How many measurements are asked for in training.
        seed: Where all random numbers come from.

    Example:
        >>> build("brusselator", series=50).batch("test", 0, 8).inputs.shape[1:]
        torch.Size([8, 2])

    Reference:
        E. De Brouwer, J. Simm, A. Arany, Y. Moreau. GRU-ODE-Bayes: continuous modeling of
        sporadically-observed time series. NeurIPS, 2019; constants as in the authors' program,
        whose noise of 0.1 is multiplied by 0.1 once more.
    """

    span, step, rate, joint, cut = 50.0, 0.1, 0.5, 0.8, 20.0
    a, b, noise, correlation = 0.3, 1.4, 0.01, -0.99
    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 32},
            "train": {"batch_size": 100, "minutes": 5, "learning_rate": 3e-3},
        }
    }

    def simulate(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw reactions."""
        moments = round(self.span / self.step)
        first = random.normal(size=(count, moments))
        other = random.normal(size=(count, moments))
        second = self.correlation * first + np.sqrt(1 - self.correlation**2) * other
        pushes = self.noise * np.sqrt(self.step) * np.stack([first, second], -1)
        values = np.zeros((count, moments, 2))
        values[:, 0] = [1.0, self.b / self.a] + 0.3 * random.normal(size=(count, 2))
        for i in range(1, moments):
            x, y = values[:, i - 1].T
            made = self.a * x**2 * y
            slope = np.stack([1 - (self.b + 1) * x + made, self.b * x - made], -1)
            values[:, i] = values[:, i - 1] + slope * self.step + pushes[:, i]
        return values
