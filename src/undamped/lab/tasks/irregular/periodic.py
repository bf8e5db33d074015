"""Sine waves of unknown frequency, seen at a few random times."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from undamped._base.registry import tasks
from undamped.lab.tasks.irregular.curves import CurveTask


@tasks.register("periodic")
class Periodic(CurveTask):
    """Say a sine wave of unknown frequency and level from a few points at random times.

    x(t) = sin(2π f t) + z + noise, f uniform between 0.4 and 0.8, z from a normal distribution of
    mean 1 and deviation 0.1, noise uniform between 0 and 0.01, t from 0 to 5.

    Args:
        series: How many waves there are to learn from.
        points: Points of a wave; half of them in the first half of its time.
        seen: How many of them a model sees; with `ask="second-half"` all of them lie in the
            first half.
        ask: Whether all points are asked for, those that were seen too, or the second half.
        seed: Where all random numbers come from.

    Example:
        >>> build("periodic", seen=20).batch("test", 0, 8).inputs.shape
        torch.Size([20, 8, 1])

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019; waves as in the authors' program, times
        drawn for every wave.
    """

    input_size = 1
    output_size = 1
    span = 5.0
    recipes: ClassVar = {
        "*": {"model": {"hidden_size": 32}, "train": {"batch_size": 50, "minutes": 5}}
    }

    def curves(self, count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw waves."""
        times = self.spread_times(count, random)
        frequency = random.uniform(0.4, 0.8, (count, 1))
        level = random.normal(1.0, 0.1, (count, 1))
        noise = 0.01 * random.uniform(0, 1, times.shape)
        return times, (np.sin(2 * np.pi * frequency * times) + level + noise)[..., None]
