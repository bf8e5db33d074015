"""Energy along a learned motion: the true energy, which nature keeps, and the model's own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace, positive
from undamped.lab.instruments.motion import Motion, follow, motion_of
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel


@instruments.register("motion_energy")
@dataclass(frozen=True)
class MotionEnergy(Result):
    """How far energies along the learned motion are from where they should be.

    `true_energy` is the mean over trajectories of |E(learned) − E(true)| at every time, None where
    the system is nobody's simulation; `own_energy` the mean of |Ê(learned) − Ê(start)| for the
    model's own energy Ê, None where it has none or inputs do work. `scale` is the spread of the
    energies of the starts, `own_scale` that of the model's own.
    """

    times: np.ndarray
    true_energy: np.ndarray | None
    own_energy: np.ndarray | None
    scale: float
    own_scale: float
    lost: float
    name: str = ""

    question = "Does the energy stay where it should while the model goes on?"
    place = 12
    of_motion = True
    columns = ("energy", "error at the end", "of the spread", "growth")

    @classmethod
    def measure(cls, probe: Probe) -> MotionEnergy:
        """Look at the trajectories of the longest test."""
        return _drift(motion_of(probe), probe.name)

    @property
    def sentence(self) -> str:
        """What the energies are off by at the end."""
        said = [f"the {row[0]} is off by {row[1]} ({row[2]} of its spread)" for row in self.rows]
        lost = f" {100 * self.lost:.0f} % could not be followed." if self.lost else ""
        return f"At time {self.times[-1]:g} " + " and ".join(said) + f".{lost}"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Error at the end, as a share of the spread, and the exponent with which it grows."""
        rows = []
        for title, curve, scale in self._curves():
            share = f"{100 * curve[-1] / scale:.2g} %" if scale else ""
            rows.append((title, f"{curve[-1]:.2g}", share, f"t^{_exponent(self.times, curve):.1f}"))
        return rows

    def _curves(self) -> list[tuple[str, np.ndarray, float]]:
        found = []
        if self.true_energy is not None:
            found.append(("true energy", self.true_energy, self.scale))
        if self.own_energy is not None:
            found.append(("model's own energy", self.own_energy, self.own_scale))
        return found

    @property
    def layout(self) -> Layout:
        """Time across, error in decades upwards."""
        return Layout(
            "Energy along the learned motion",
            "time",
            "mean |error of the energy|",
            "A line that stays flat is an energy that is kept; the true one is kept as well as it "
            "was learned, the model's own as well as the steps are fine.",
            log_y=True,
        )

    def traces(self, style: Style) -> list[Trace]:
        """A line for each energy; among other models, the true one alone where it is known."""
        curves = self._curves() if style.alone else self._curves()[:1]
        return [
            style.line(self.times[1:], positive(curve[1:]), title, part=number)
            for number, (title, curve, _) in enumerate(curves)
        ]


def motion_energy(model: StateModel, task: Task, *, count: int = 6, name: str = "") -> MotionEnergy:
    """Measure the error of energies along a learned motion.

    Args:
        model: A model of a moving system.
        task: Its task, whose longest test says where to start and for how long.
        count: How many trajectories.
        name: What to call the model.

    Example:
        >>> motion_energy(model, task).sentence
    """
    return _drift(follow(model, task, count), name)


def _drift(motion: Motion, name: str) -> MotionEnergy:
    finite = motion.learned.isfinite().all(-1)
    true = own = None
    scale = own_scale = 0.0
    if motion.energy is not None:
        reached = motion.energy(motion.learned.nan_to_num())
        wanted = motion.energy(motion.true)
        true, scale = _mean_error(reached - wanted, finite), _spread(wanted[0])
    quiet = motion.inputs is None or not bool(motion.inputs.any())
    energy = _own_energy(motion) if quiet else None
    if energy is not None:
        own, own_scale = _mean_error(energy - energy[:1], finite), _spread(energy[0])
    if true is None and own is None:
        raise OptionError("neither the system nor the model has an energy that is known")
    lost = 1 - finite.double().mean().item()
    return MotionEnergy(motion.times.numpy(), true, own, scale, own_scale, lost, name)


def _spread(energies: Tensor) -> float:
    """Return the standard deviation of energies; nothing where there is but one."""
    return energies.std().item() if len(energies) > 1 else 0.0


def _own_energy(motion: Motion) -> Tensor | None:
    like = next(motion.model.parameters())
    try:
        with torch.no_grad():
            return motion.model.energy(motion.learned.nan_to_num().to(like)).double().cpu()
    except OptionError:  # it learns none
        return None


def _mean_error(error: Tensor, finite: Tensor) -> np.ndarray:
    """Return mean |error| over what could be followed, (times,); NaN where nothing could."""
    weight = finite.double()
    return ((error.abs() * weight).sum(1) / weight.sum(1)).numpy()


def _exponent(times: np.ndarray, curve: np.ndarray) -> float:
    """Return p of the power t^p that fits a curve best, from its middle to its end."""
    half = max(1, len(times) // 4)
    good = (curve[half:] > 0) & np.isfinite(curve[half:])
    if good.sum() < 2:
        return 0.0
    return float(np.polyfit(np.log(times[half:][good]), np.log(curve[half:][good]), 1)[0])
