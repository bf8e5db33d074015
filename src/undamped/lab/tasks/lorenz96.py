"""Lorenz-96: prediction of a chaotic system."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.task import COSINE, SPLITS, ArrayTask, Batch, Chance, Split

VARIABLES = 5
STEP = 0.01


@tasks.register("lorenz96")
class Lorenz96(ArrayTask):
    """Predict the state of a Lorenz-96 system a quarter of a time unit ahead, at every step.

    xᵢ' = (xᵢ₊₁ − xᵢ₋₂) xᵢ₋₁ − xᵢ + F for five variables in a ring. Each split has 128
    trajectories that start within ½ of the equilibrium (F, …, F), with 2,000 readings every 0.01
    time units; targets are the states 25 readings later. With F = 0.9 the motion is regular, with
    F = 8 it is chaotic. The score is the normalised root mean square error: the root mean square of
    the error divided by that of the true states.

    Args:
        force: The external force F.
        length: Readings of a sequence.
        horizon: How many readings ahead the target is.
        trajectories: Number of trajectories of each split.
        data_seed: Seed of the initial states.
        seed: Seed of the order of the batches.

    Example:
        >>> build("lorenz96", force=0.9)

    Reference:
        E. N. Lorenz. Predictability: a problem partly solved, 1996. Set up as in
        T. K. Rusch, S. Mishra. UnICORNN. ICML, 2021, appendix D, after coRNN, ICLR, 2021.
    """

    # Chosen on the validation split, from five pairs of Δt and α for UnICORNN.
    recipes: ClassVar = {
        "*": {"train": {**COSINE, "batch_size": 16, "learning_rate": 0.01, "epochs": 100}},
        "lstm": {"model": {"hidden_size": 44}},
        "cornn": {"model": {"hidden_size": 64, "dt": 0.4, "gamma": 1.0, "epsilon": 2.0}},
        "unicornn": {"model": {"hidden_size": 90, "dt": 0.2, "alpha": 1.0}},
    }

    input_size = VARIABLES
    output_size = VARIABLES
    readout = "every"
    answer = "number"
    metric = "nrmse"
    higher_is_better = False

    def __init__(
        self,
        force: PositiveFloat = 8.0,
        *,
        length: PositiveInt = 2000,
        horizon: PositiveInt = 25,
        trajectories: PositiveInt = 128,
        data_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.force, self.length, self.horizon, self.data_seed = force, length, horizon, data_seed
        self.trajectories = trajectories

    @cached_property
    def _data(self) -> dict[Split, Tensor]:
        """States (readings, trajectories, variables) of each split."""
        return {split: self._trajectories(index) for index, split in enumerate(SPLITS)}

    def _trajectories(self, stream: int) -> Tensor:
        random = np.random.default_rng([self.data_seed, stream])
        start = self.force + random.uniform(-0.5, 0.5, (self.trajectories, VARIABLES))
        states = integrate(start, self.force, self.length + self.horizon)
        return torch.from_numpy(states).float()

    @property
    def chance(self) -> Chance:
        """The score of the mean training target."""
        mean = self._data["train"][self.horizon :].mean((0, 1))
        answers = self._data["test"][self.horizon :].double()
        loss = (answers - mean).square().mean().item()
        error = math.sqrt(loss / answers.square().mean().item())
        return Chance(loss=loss, metric=error, rule="always the mean state")

    def sequences(self, split: Split) -> int:
        return self.trajectories

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Return states, and those `ahead` readings later."""
        states = self._data[split][:, index]
        return Batch(states[: self.length], states[self.horizon :])

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Return the sums of squared errors and of squared targets."""
        squared = (prediction - batch.targets).double().square().sum()
        return squared, batch.targets.double().square().sum().item()

    def finish(self, mean: float) -> float:
        """Return the root of the relative squared error."""
        return math.sqrt(mean)


def integrate(start: np.ndarray, force: float, readings: int) -> np.ndarray:
    """Return trajectories of Lorenz-96 systems.

    Args:
        start: Initial states (systems, variables).
        force: The external force.
        readings: How many states to return, one per `STEP`; the first is the start.

    Returns:
        States (readings, systems, variables).
    """
    from scipy.integrate import solve_ivp

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        x = flat.reshape(start.shape)
        following, previous, second_previous = (np.roll(x, shift, 1) for shift in (-1, 1, 2))
        return ((following - second_previous) * previous - x + force).ravel()

    times = np.arange(readings) * STEP
    solved = solve_ivp(field, (0, times[-1]), start.ravel(), "DOP853", times, rtol=1e-8, atol=1e-8)
    return solved.y.T.reshape(readings, *start.shape)
