"""Scores of predicted trajectories: relative error, energy error, valid time."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor

from undamped._base.contract import Batch, StateSpace
from undamped.lab.tasks.task import ArrayTask, Chance

VALID = 0.1
"""Relative error above which a prediction is no longer one."""


def relative_error(found: Tensor, true: Tensor, space: StateSpace | None) -> Tensor:
    """Return |a − b| / (|a| + |b|) of states (…, size), (…,): 0 is exact, 1 is lost.

    Angles are compared by cosine and sine, so that a full turn is no error; what is not finite
    counts as lost.

    Args:
        found: Predicted states.
        true: True states.
        space: What the coordinates are.
    """
    a, b = _unrolled(found.double(), space), _unrolled(true.double(), space)
    size = a.norm(dim=-1) + b.norm(dim=-1)
    error = (a - b).norm(dim=-1) / size.clamp_min(1e-300)
    return error.nan_to_num(nan=1.0, posinf=1.0).clamp(1e-16, 1.0)


def _unrolled(states: Tensor, space: StateSpace | None) -> Tensor:
    angles = list(space.indices("angle")) if space is not None else []
    if space is None or not angles:
        return states
    others = [k for k in range(space.size) if k not in angles]
    turned = states[..., angles]
    return torch.cat((states[..., others], torch.cos(turned), torch.sin(turned)), dim=-1)


def valid_time(errors: Tensor, times: Tensor) -> Tensor:
    """Return until when each prediction holds, (batch,).

    Args:
        errors: Relative errors (times, batch).
        times: When, (times, batch).
    """
    lost = errors > VALID
    first = torch.where(lost.any(0), lost.to(torch.uint8).argmax(0), len(errors))
    padded = torch.cat((torch.zeros_like(times[:1]), times))
    return padded.gather(0, first.unsqueeze(0)).squeeze(0).double()


class RolloutScores(ArrayTask):
    """A task whose answers are trajectories of a system whose energy may be known."""

    sequential: ClassVar[bool] = False
    input_kind = "states"
    answer = "trajectory"
    metric = "relative_error"
    higher_is_better = False

    @abstractmethod
    def energy(self, states: Tensor) -> Tensor | None:
        """Return the true energy of states (…, size), or None where nobody knows it."""

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared error of what could be predicted."""
        known = torch.isfinite(prediction)
        return (prediction - batch.targets)[known].square().mean() if known.any() else _nothing()

    def score(self, prediction: Tensor, batch: Batch) -> tuple[Tensor, float]:
        """Logarithms of relative errors: their mean is that of orders of magnitude."""
        errors = relative_error(prediction, batch.targets, self.state_space).log()
        return errors.sum(), errors.numel()

    def finish(self, mean: float) -> float:
        """The geometric mean."""
        return math.exp(mean)

    def more_scores(self, prediction: Tensor, batch: Batch) -> dict[str, tuple[float, float]]:
        """Energy error, valid time, and which share was lost on the way, if any was."""
        assert batch.target_times is not None
        errors = relative_error(prediction, batch.targets, self.state_space)
        lasted = valid_time(errors, batch.target_times)
        found = {"valid_time": (lasted.sum().item(), float(len(lasted)))}
        finite = torch.isfinite(prediction).all(-1)
        energy = self.energy(prediction[finite])
        if energy is not None and len(energy):
            true = self.energy(batch.targets[finite])
            assert true is not None
            found["energy_mse"] = ((energy - true).square().sum().item(), float(len(energy)))
        if not bool(finite.all()):
            found["lost"] = (float((~finite).sum()), float(finite.numel()))
        return found

    @property
    def chance(self) -> Chance:
        """It stays where it is."""
        return self._chance

    @cached_property
    def _chance(self) -> Chance:
        batch = self.batch("test", 0, self.sequences("test"))
        guess = batch.inputs[:, : self.output_size].expand_as(batch.targets)
        total, count = self.score(guess, batch)
        loss = (guess - batch.targets).double().square().mean().item()
        return Chance(loss, self.finish(total.item() / count), "it stays where it is")


def _nothing() -> Tensor:
    return torch.tensor(math.nan)
