"""Phase volume along a learned motion: how much a small ball of starts grows or shrinks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout, reference
from undamped.analysis.core.probe import Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.lab.instruments.motion import Motion, follow, motion_of
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel

STARTS = 2
MOMENTS = 6
"""Times that are looked at: each takes a backward pass for every number of a state."""
NUDGE = 1e-5


@instruments.register("motion_volume")
@dataclass(frozen=True)
class MotionVolume(Result):
    """ln |det ∂z(t)/∂z(0)| of a learned motion, and of the true one.

    `learned` and `true` are (times, starts); `true` is None where the system is nobody's
    simulation. In positions and momenta without friction the true one is zero; in velocities it
    is what turning masses make of it.
    """

    times: np.ndarray
    learned: np.ndarray
    true: np.ndarray | None
    name: str = ""

    question = "Does the learned motion keep phase volume as the true one does?"
    place = 16
    of_motion = True
    columns = ("time", "ln of the volume, learned", "true")

    @classmethod
    def measure(cls, probe: Probe) -> MotionVolume:
        """Look at two starts of the longest test."""
        return _volume(motion_of(probe), probe.name)

    @property
    def apart(self) -> np.ndarray:
        """Largest difference from the true logarithm at every time, (times,)."""
        wanted = 0.0 if self.true is None else self.true
        return np.abs(self.learned - wanted).max(1)

    @property
    def sentence(self) -> str:
        """The largest difference."""
        than = "kept" if self.true is None else "the true one"
        worst = float(np.nanmax(self.apart)) if np.isfinite(self.apart).any() else np.nan
        factor = f"{100 * np.expm1(worst):.2g} %" if worst < 5 else f"a factor of e^{worst:.0f}"
        return f"Until time {self.times[-1]:g} phase volume differs from {than} by up to {factor}."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The first start, moment by moment."""
        rows = []
        for number, time in enumerate(self.times):
            true = "" if self.true is None else f"{self.true[number, 0]:.2g}"
            rows.append((f"{time:.3g}", f"{self.learned[number, 0]:.2g}", true))
        return rows

    @property
    def layout(self) -> Layout:
        """Time across, the logarithm upwards."""
        wanted = np.zeros(len(self.times)) if self.true is None else self.true[:, 0]
        return Layout(
            "Phase volume along the learned motion",
            "time",
            "ln of the volume of a small ball of starts",
            "Grey: the true motion. A line that leaves it makes starts forget where they were, or "
            "tears them apart.",
            background=(reference(self.times, wanted, "true volume"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The first start; alone, all of them."""
        shown = range(self.learned.shape[1] if style.alone else 1)
        both = "lines+markers"
        return [
            style.line(self.times, self.learned[:, k], f"start {k + 1}", part=k, mode=both)
            for k in shown
        ]


def motion_volume(model: StateModel, task: Task, *, name: str = "") -> MotionVolume:
    """Measure how a learned motion changes phase volume, through its own steps.

    Args:
        model: A model of a moving system.
        task: Its task, whose longest test says where to start and for how long.
        name: What to call the model.

    Example:
        >>> motion_volume(model, task).sentence
    """
    return _volume(follow(model, task, STARTS), name)


def _volume(motion: Motion, name: str) -> MotionVolume:
    chosen = torch.linspace(0, len(motion.times) - 1, MOMENTS + 1).round().long().unique()
    when = motion.times[chosen[1:]]
    starts = motion.true[0, :STARTS]
    u = None if motion.inputs is None else motion.inputs[:STARTS]
    learned = _log_volume(_learned_jacobians(motion.model, starts, when, u))
    true = None
    if motion.system is not None:
        true = _log_volume(_true_jacobians(motion, starts, when, u)).numpy()
    return MotionVolume(when.numpy(), learned.numpy(), true, name)


def _log_volume(jacobians: Tensor) -> Tensor:
    return torch.linalg.slogdet(jacobians.nan_to_num()).logabsdet


def _learned_jacobians(model: StateModel, starts: Tensor, when: Tensor, u: Tensor | None) -> Tensor:
    """Return ∂z(t)/∂z(0) of the steps that the model takes, (times, starts, size, size)."""
    like = next(model.parameters())
    given = None if u is None else u.to(like)
    with evaluating(model), torch.enable_grad():
        z = starts.to(like).requires_grad_()
        path = model.trajectory(z, when, given, on_failure="return")
        rows = [
            torch.autograd.grad(value.sum(), z, retain_graph=True)[0]
            for value in path.permute(0, 2, 1).flatten(0, 1)
        ]
    size = starts.shape[1]
    found = torch.stack(rows).unflatten(0, (len(when), size))  # (times, row, starts, size)
    return found.permute(0, 2, 1, 3).detach().double().cpu()


def _true_jacobians(motion: Motion, starts: Tensor, when: Tensor, u: Tensor | None) -> Tensor:
    """Return the same of the true motion, by differences of nudged starts."""
    size = starts.shape[1]
    nudge = NUDGE * torch.eye(size).double()
    moved = torch.cat((starts.unsqueeze(1) + nudge, starts.unsqueeze(1) - nudge), dim=1)
    given = moved.flatten(0, 1)
    if u is not None:
        given = torch.cat((given, u.double().repeat_interleave(2 * size, dim=0)), dim=1)
    assert motion.system is not None
    times = torch.cat((torch.zeros(1).double(), when))
    ends = motion.system.simulate(given, times)[1:].unflatten(1, (len(starts), 2, size))
    return ((ends[:, :, 0] - ends[:, :, 1]) / (2 * NUDGE)).mT
