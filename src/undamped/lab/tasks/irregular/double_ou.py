"""Two Ornstein–Uhlenbeck processes that move together."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from undamped._base.registry import tasks
from undamped.lab.tasks.irregular.sporadic import SporadicTask


@tasks.register("double-ou")
class DoubleOU(SporadicTask):
    """Say the next measurement of two correlated Ornstein–Uhlenbeck processes.

    dx = (m − x) dt + 0.1 dW from x = 0, the two noises correlated by 0.99, the levels m uniform
    within half a unit of 1 and of −1; 10 units of time, some 20 measurements, a fifth of them of
    both processes. Tests see what lies before time 4.

    Args:
        series: How many pairs of processes there are to learn from.
        ahead: How many measurements are asked for in training.
        seed: Where all random numbers come from.

    Example:
        >>> build("double-ou", series=50).batch("test", 0, 8).inputs.shape[1:]
        torch.Size([8, 2])

    Reference:
        E. De Brouwer, J. Simm, A. Arany, Y. Moreau. GRU-ODE-Bayes: continuous modeling of
        sporadically-observed time series. NeurIPS, 2019; constants as in the authors' program.
    """

    span, step, rate, joint, cut = 10.0, 0.05, 2.0, 0.2, 4.0
    pull, noise, correlation = 1.0, 0.1, 0.99
    recipes: ClassVar = {
        "*": {
            "model": {"hidden_size": 32},
            "train": {"batch_size": 100, "minutes": 5, "learning_rate": 3e-3},
        },
        # Two evaluations a gap learn as much as four, in two thirds of the time.
        # A rate of 1e-2 that stays leaves the answer to where the last updates happen to end.
        "ode-rnn": {
            "model": {"method": "midpoint"},
            "train": {"learning_rate": 1e-2, "clip": 1.0, "schedule": "cosine"},
        },
        "decay-rnn": {"train": {"learning_rate": 1e-2, "clip": 1.0, "schedule": "cosine"}},
    }

    def simulate(self, count: int, random: np.random.Generator) -> np.ndarray:
        """Draw pairs of processes."""
        moments = round(self.span / self.step)
        level = random.uniform(-0.5, 0.5, (count, 2)) + np.array([1.0, -1.0])
        first = random.normal(size=(count, moments))
        other = random.normal(size=(count, moments))
        second = self.correlation * first + np.sqrt(1 - self.correlation**2) * other
        pushes = self.noise * np.sqrt(self.step) * np.stack([first, second], -1)
        values = np.zeros((count, moments, 2))
        for i in range(1, moments):
            before = values[:, i - 1]
            values[:, i] = before + self.pull * (level - before) * self.step + pushes[:, i]
        return values
