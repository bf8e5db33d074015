"""Scores of predicted trajectories: relative error, energy error, valid time."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from undamped._base.contract import Batch, StateSpace
from undamped.lab.tasks.task import ArrayTask, Chance, Task

VALID = 0.1
"""The relative error up to which a prediction is valid."""


def relative_error(predicted: Tensor, true: Tensor, space: StateSpace | None) -> Tensor:
    """Return |a − b| / (|a| + |b|) of states (…, size), (…,), which is between 0 and 1.

    Angles are compared by cosine and sine, so that a full turn is no error. The error of states
    that are not finite is 1.

    Args:
        predicted: Predicted states.
        true: True states.
        space: The state space.
    """
    a, b = _embedded(predicted.double(), space), _embedded(true.double(), space)
    size = a.norm(dim=-1) + b.norm(dim=-1)
    error = (a - b).norm(dim=-1) / size.clamp_min(1e-300)
    return error.nan_to_num(nan=1.0, posinf=1.0).clamp(1e-16, 1.0)


def _embedded(states: Tensor, space: StateSpace | None) -> Tensor:
    """Return states with the cosines and sines of angles in place of the angles."""
    columns = list(space.indices("angle")) if space is not None else []
    if space is None or not columns:
        return states
    others = [k for k in range(space.size) if k not in columns]
    angles = states[..., columns]
    return torch.cat((states[..., others], torch.cos(angles), torch.sin(angles)), dim=-1)


def valid_time(errors: Tensor, times: Tensor) -> Tensor:
    """Return the time up to which each prediction is valid, (batch,).

    Args:
        errors: Relative errors (times, batch).
        times: The times, (times, batch).
    """
    invalid = errors > VALID
    first = torch.where(invalid.any(0), invalid.to(torch.uint8).argmax(0), len(errors))
    padded = torch.cat((torch.zeros_like(times[:1]), times))
    return padded.gather(0, first.unsqueeze(0)).squeeze(0).double()


class RolloutScores(ArrayTask):
    """Trajectories from states of the test split of a task.

    Args:
        task: The task.
    """

    sequential: ClassVar[bool] = False
    input_kind = "states"
    answer = "trajectory"
    metric = "relative_error"
    higher_is_better = False

    def __init__(self, task: Task) -> None:
        super().__init__(task.seed)
        self.state_space = task.state_space
        self.input_size, self.output_size = task.input_size, task.output_size

    @abstractmethod
    def energy(self, states: Tensor) -> Tensor | None:
        """Return the true energy of states (…, size), or None where it is unknown."""

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Return the mean squared error of finite predictions; NaN if there are none."""
        return (prediction - batch.targets)[torch.isfinite(prediction)].square().mean()

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Return the sum of logarithms of relative errors, and their number."""
        errors = relative_error(prediction, batch.targets, self.state_space).log()
        return errors.sum(), errors.numel()

    def finish(self, mean: float) -> float:
        return math.exp(mean)

    def more_scores(self, prediction: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Return valid time, energy error, and the fraction that is not finite, if any is."""
        assert batch.target_times is not None
        errors = relative_error(prediction, batch.targets, self.state_space)
        times = valid_time(errors, batch.target_times)
        scores = {"valid_time": (times.sum().item(), float(len(times)))}
        finite = torch.isfinite(prediction).all(-1)
        energy = self.energy(prediction[finite])
        if energy is not None and len(energy):
            true = self.energy(batch.targets[finite])
            assert true is not None
            scores["energy_mse"] = ((energy - true).square().sum().item(), float(len(energy)))
        if not bool(finite.all()):
            scores["lost"] = (float((~finite).sum()), float(finite.numel()))
        return scores

    @property
    def chance(self) -> Chance:
        """The score of predicting no motion."""
        return self._chance

    @cached_property
    def _chance(self) -> Chance:
        batch = self.batch("test", 0, self.sequences("test"))
        still = batch.inputs[:, : self.output_size].expand_as(batch.targets)
        total, count = self.score(still, batch)
        loss = (still - batch.targets).double().square().mean().item()
        return Chance(loss, self.finish(total.item() / count), "it stays where it is")
