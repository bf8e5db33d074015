"""Lorenz-96: say where a weather-like system will be a little later."""

from __future__ import annotations

import math
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.options import NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import tasks
from undamped.lab.tasks.task import ArrayTask, Batch, Chance, Split

VARIABLES = 5
SEQUENCES = 128
STEP = 0.01
_PART = {"train": 0, "valid": 1, "test": 2}


@tasks.register("lorenz96")
class Lorenz96(ArrayTask):
    """Predict the state of a Lorenz-96 system a quarter of a time unit ahead, at every step.

    xᵢ' = (xᵢ₊₁ − xᵢ₋₂) xᵢ₋₁ − xᵢ + F for five variables in a ring. Each part has 128
    trajectories that start within ½ of the equilibrium (F, …, F); a state is read every 0.01 time
    units, 2,000 times, and the answer is the state 25 readings later. With F = 0.9 the motion is
    regular, with F = 8 it is chaotic. The score is the normalised root mean square error: the
    error's root mean square divided by that of the true states.

    Args:
        force: The external force F.
        length: Readings of a sequence.
        ahead: How many readings later the answer lies.
        data_seed: Where the starting points come from.
        seed: Where the order of training comes from.

    Example:
        >>> build("lorenz96", force=0.9)

    Reference:
        E. N. Lorenz. Predictability: a problem partly solved, 1996. Set up as in
        T. K. Rusch, S. Mishra. UnICORNN. ICML, 2021, appendix D, after coRNN, ICLR, 2021.
    """

    # Chosen on the validation part, from five pairs of Δt and α for UnICORNN.
    recipes: ClassVar = {
        "*": {
            "train": {
                "batch_size": 16,
                "learning_rate": 0.01,
                "clip": 1.0,
                "epochs": 100,
                "schedule": "cosine",
            }
        },
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
        ahead: PositiveInt = 25,
        data_seed: NonNegativeInt = 0,
        seed: NonNegativeInt = 0,
    ) -> None:
        super().__init__(seed)
        self.force = force
        self.length = length
        self.ahead = ahead
        self.data_seed = data_seed

    @cached_property
    def _data(self) -> dict[str, Tensor]:
        """States (readings, trajectories, variables) of each part."""
        return {part: self._trajectories(number) for part, number in _PART.items()}

    def _trajectories(self, part: int) -> Tensor:
        random = np.random.default_rng([self.data_seed, part])
        start = self.force + random.uniform(-0.5, 0.5, (SEQUENCES, VARIABLES))
        states = integrate(start, self.force, self.length + self.ahead)
        return torch.from_numpy(states).float()

    @property
    def chance(self) -> Chance:
        """The mean of the training answers, whatever was read."""
        mean = self._data["train"][self.ahead :].mean((0, 1))
        answers = self._data["test"][self.ahead :].double()
        loss = (answers - mean).square().mean().item()
        error = math.sqrt(loss / answers.square().mean().item())
        return Chance(loss=loss, metric=error, rule="always the mean state")

    def sequences(self, split: Split) -> int:
        """How many trajectories a split has."""
        return SEQUENCES

    def take(self, split: Split, index: Tensor, generator: torch.Generator) -> Batch:
        """Set the states that were read against those a little later."""
        states = self._data[split][:, index]
        return Batch(states[: self.length], states[self.ahead :])

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared error over all steps."""
        return F.mse_loss(prediction, batch.targets)

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Squared errors and squared answers."""
        squared = (prediction - batch.targets).double().square().sum()
        return squared, batch.targets.double().square().sum().item()

    def finish(self, mean: float) -> float:
        """The root of the error in units of the answers."""
        return math.sqrt(mean)


def integrate(start: np.ndarray, force: float, readings: int) -> np.ndarray:
    """Follow Lorenz-96 systems from their starting points.

    Args:
        start: States (systems, variables).
        force: The external force.
        readings: How many states to return, `STEP` apart; the first is the start.

    Returns:
        States (readings, systems, variables).
    """
    from scipy.integrate import solve_ivp

    def field(_: float, flat: np.ndarray) -> np.ndarray:
        x = flat.reshape(start.shape)
        ahead, behind, before = np.roll(x, -1, 1), np.roll(x, 1, 1), np.roll(x, 2, 1)
        return ((ahead - before) * behind - x + force).ravel()

    times = np.arange(readings) * STEP
    solved = solve_ivp(field, (0, times[-1]), start.ravel(), "DOP853", times, rtol=1e-8, atol=1e-8)
    return solved.y.T.reshape(readings, *start.shape)
