"""Phase volume along a learned motion: how much a small ball of initial states grows or shrinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import instruments
from undamped.analysis.core import Layout, Style, Trace
from undamped.analysis.core.figures import reference
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.instruments.motion import Motion, MotionResult, follow, percent
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel

STARTS = 2
MOMENTS = 6
"""Number of times; each needs a backward pass for every entry of a state."""
EPSILON = 1e-5


@instruments.register("motion_volume")
@dataclass(frozen=True)
class MotionVolume(MotionResult):
    """ln |det ∂z(t)/∂z(0)| of a learned motion, and of the true one.

    `learned` and `true` are (times, starts); `true` is None where the system is not
    simulated. In positions and momenta without friction the true one is zero; in velocities it
    depends on the mass matrix.
    """

    times: np.ndarray
    learned: np.ndarray
    true: np.ndarray | None
    name: str = ""

    question = "Does the learned motion preserve phase volume like the true one?"
    page_order = 16
    slow = True
    columns = ("time", "ln of the volume, learned", "true")

    @classmethod
    def of(cls, motion: Motion, name: str) -> Self:
        indices = torch.linspace(0, len(motion.times) - 1, MOMENTS + 1).round().long().unique()
        when = motion.times[indices[1:]]
        starts = motion.true[0, :STARTS]
        u = None if motion.inputs is None else motion.inputs[:STARTS]
        learned = _log_volume(_learned_jacobians(motion.model, starts, when, u))
        true = None
        if motion.system is not None:
            true = _log_volume(_true_jacobians(motion, starts, when, u)).numpy()
        return cls(when.numpy(), learned.numpy(), true, name)

    @property
    def difference(self) -> np.ndarray:
        """Largest difference from the true logarithm at every time, (times,)."""
        expected = 0.0 if self.true is None else self.true
        return np.abs(self.learned - expected).max(1)

    @property
    def sentence(self) -> str:
        than = "a preserved one" if self.true is None else "the true one"
        worst = float(np.nanmax(self.difference)) if np.isfinite(self.difference).any() else np.nan
        factor = percent(np.expm1(worst)) if worst < 5 else f"a factor of e^{worst:.0f}"
        return f"Until time {self.times[-1]:g} phase volume differs from {than} by up to {factor}."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The first initial state over time."""
        rows = []
        for number, time in enumerate(self.times):
            true = "" if self.true is None else f"{self.true[number, 0]:.2g}"
            rows.append((f"{time:.3g}", f"{self.learned[number, 0]:.2g}", true))
        return rows

    @property
    def layout(self) -> Layout:
        expected = np.zeros(len(self.times)) if self.true is None else self.true[:, 0]
        return Layout(
            "Phase volume along the learned motion",
            "time",
            "ln of the volume of a small ball of initial states",
            "Grey: the true motion. Below it initial states are contracted, above it they are "
            "expanded.",
            background=(reference(self.times, expected, "true volume"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The first initial state; for a single model all of them."""
        starts = range(self.learned.shape[1] if style.single else 1)
        both = "lines+markers"
        return [
            style.line(self.times, self.learned[:, k], f"start {k + 1}", color=k, mode=both)
            for k in starts
        ]


def motion_volume(model: StateModel, task: Task, *, name: str = "") -> MotionVolume:
    """Measure how a learned motion changes phase volume, including the steps of its solver.

    Args:
        model: A model of a dynamical system.
        task: Its task, whose longest test split has the initial states and the duration.
        name: Name of the model in figures.

    Example:
        >>> motion_volume(model, task).sentence
    """
    return MotionVolume.of(follow(model, task, STARTS), name)


def _log_volume(jacobians: Tensor) -> Tensor:
    return torch.linalg.slogdet(jacobians.nan_to_num()).logabsdet


def _learned_jacobians(model: StateModel, starts: Tensor, when: Tensor, u: Tensor | None) -> Tensor:
    """Return ∂z(t)/∂z(0) of the solver's steps, (times, starts, size, size)."""
    like = next(model.parameters())
    inputs = None if u is None else u.to(like)
    with evaluating(model), torch.enable_grad():
        z = starts.to(like).requires_grad_()
        path = model.trajectory(z, when, inputs, on_failure="return")
        rows = [
            torch.autograd.grad(value.sum(), z, retain_graph=True)[0]
            for value in path.permute(0, 2, 1).flatten(0, 1)
        ]
    size = starts.shape[1]
    jacobians = torch.stack(rows).unflatten(0, (len(when), size))  # (times, row, starts, size)
    return jacobians.permute(0, 2, 1, 3).detach().double().cpu()


def _true_jacobians(motion: Motion, starts: Tensor, when: Tensor, u: Tensor | None) -> Tensor:
    """Return the same of the true motion, by central differences."""
    size = starts.shape[1]
    epsilon = EPSILON * torch.eye(size).double()
    perturbed = torch.cat((starts.unsqueeze(1) + epsilon, starts.unsqueeze(1) - epsilon), dim=1)
    inputs = perturbed.flatten(0, 1)
    if u is not None:
        inputs = torch.cat((inputs, u.double().repeat_interleave(2 * size, dim=0)), dim=1)
    assert motion.system is not None
    times = torch.cat((torch.zeros(1).double(), when))
    ends = motion.system.simulate(inputs, times)[1:].unflatten(1, (len(starts), 2, size))
    return ((ends[:, :, 0] - ends[:, :, 1]) / (2 * EPSILON)).mT
