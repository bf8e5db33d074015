"""Energy along a learned motion, and the learned potential, compared with the true ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Style, Trace
from undamped.analysis.core.figures import positive, reference
from undamped.lab.instruments.motion import Motion, MotionResult, at_rest, follow, pairs, percent
from undamped.lab.tasks.task import Task
from undamped.models.physics.state_model import StateModel


@instruments.register("motion_energy")
@dataclass(frozen=True)
class MotionEnergy(MotionResult):
    """Errors of the energy along the learned motion.

    `true_energy` is the mean over trajectories of |E(learned) − E(true)| at every time, None where
    E is unknown; `model_energy` the mean of |Ê(learned) − Ê(start)| for the energy Ê of the model,
    None where it has none or inputs do work. `scale` and `model_scale` are the standard deviations
    of E and Ê over the initial states, `failed` is the fraction of states without a solution.
    """

    times: np.ndarray
    true_energy: np.ndarray | None
    model_energy: np.ndarray | None
    scale: float
    model_scale: float
    failed: float
    name: str = ""

    question = "Is the energy conserved along the learned motion?"
    page_order = 12
    columns = ("energy", "error at the end", "relative to its spread", "growth")
    figure_layout = Layout(
        "Energy along the learned motion",
        "time",
        "mean |error of the energy|",
        "A flat line is a conserved energy; the error of the true energy shows how well it was "
        "learned, that of the model's energy how accurate the solver is.",
        log_y=True,
    )

    @classmethod
    def of(cls, motion: Motion, name: str) -> Self:
        finite = motion.learned.isfinite().all(-1)
        true = model_energy = None
        scale = model_scale = 0.0
        if motion.energy is not None:
            reached = motion.energy(motion.learned.nan_to_num())
            expected = motion.energy(motion.true)
            true, scale = _mean_error(reached - expected, finite), _spread(expected[0])
        quiet = motion.inputs is None or not bool(motion.inputs.any())
        energy = _model_energy(motion) if quiet else None
        if energy is not None:
            model_energy, model_scale = _mean_error(energy - energy[:1], finite), _spread(energy[0])
        if true is None and model_energy is None:
            raise OptionError("neither the system nor the model has a known energy")
        failed = 1 - finite.double().mean().item()
        return cls(motion.times.numpy(), true, model_energy, scale, model_scale, failed, name)

    @property
    def sentence(self) -> str:
        errors = [
            f"the error of the {row[0]} is {row[1]} ({row[2]} of its spread)" for row in self.rows
        ]
        failed = (
            f" {100 * self.failed:.0f} % of the states have no solution." if self.failed else ""
        )
        return f"At time {self.times[-1]:g} " + " and ".join(errors) + f".{failed}"

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Error at the end, relative to the spread, and the exponent of its growth."""
        rows = []
        for title, curve, scale in self._curves():
            relative = percent(curve[-1] / scale) if scale else ""
            growth = f"t^{_exponent(self.times, curve):.1f}"
            rows.append((title, f"{curve[-1]:.2g}", relative, growth))
        return rows

    def _curves(self) -> list[tuple[str, np.ndarray, float]]:
        curves = []
        if self.true_energy is not None:
            curves.append(("true energy", self.true_energy, self.scale))
        if self.model_energy is not None:
            curves.append(("energy of the model", self.model_energy, self.model_scale))
        return curves

    def traces(self, style: Style) -> list[Trace]:
        """A line for each energy; with several models only the first of each."""
        curves = self._curves() if style.single else self._curves()[:1]
        return [
            style.line(self.times[1:], positive(curve[1:]), title, color=number)
            for number, (title, curve, _) in enumerate(curves)
        ]


def motion_energy(model: StateModel, task: Task, *, count: int = 6, name: str = "") -> MotionEnergy:
    """Measure the error of energies along a learned motion.

    Args:
        model: A model of a dynamical system.
        task: Its task, whose longest test split has the initial states and the duration.
        count: Number of trajectories.
        name: Name of the model in figures.

    Example:
        >>> motion_energy(model, task).sentence
    """
    return MotionEnergy.of(follow(model, task, count), name)


def _spread(energies: Tensor) -> float:
    """Return the standard deviation of energies; 0 for a single one."""
    return energies.std().item() if len(energies) > 1 else 0.0


def _model_energy(motion: Motion) -> Tensor | None:
    like = next(motion.model.parameters())
    try:
        with torch.no_grad():
            return motion.model.energy(motion.learned.nan_to_num().to(like)).double().cpu()
    except OptionError:  # the model has no energy
        return None


def _mean_error(error: Tensor, finite: Tensor) -> np.ndarray:
    """Return the mean |error| over states with a solution, (times,); NaN without any."""
    weight = finite.double()
    return ((error.abs() * weight).sum(1) / weight.sum(1)).numpy()


def _exponent(times: np.ndarray, curve: np.ndarray) -> float:
    """Return the exponent p of the power law t^p that fits the end of a curve."""
    half = max(1, len(times) // 4)
    good = (curve[half:] > 0) & np.isfinite(curve[half:])
    if good.sum() < 2:
        return 0.0
    return float(np.polyfit(np.log(times[half:][good]), np.log(curve[half:][good]), 1)[0])


@instruments.register("motion_potential")
@dataclass(frozen=True)
class MotionPotential(MotionResult):
    """The energy of states at rest, learned and true, at the positions of true trajectories.

    A motion determines the potential up to a constant; without momenta and forces, only up to a
    `factor` as well. The constant and this factor are fitted, and removed from `learned`.
    `position` are values of the only position, None where there are several.
    """

    true: np.ndarray
    learned: np.ndarray
    position: np.ndarray | None
    coordinate: str
    factor: float
    fitted: bool
    name: str = ""

    question = "Is the learned potential the true one?"
    page_order = 14
    columns = ("positions", "largest error", "relative to the range", "factor")

    @classmethod
    def of(cls, motion: Motion, name: str) -> Self:
        if motion.energy is None:
            raise InapplicableError("the true potential is unknown")
        space = motion.space
        resting = at_rest(space, motion.true.flatten(0, 1))
        like = next(motion.model.parameters())
        with torch.no_grad():
            learned = motion.model.energy(resting.to(like)).double().cpu()
        true = motion.energy(resting)
        if float(true.max() - true.min()) < 1e-9:
            raise InapplicableError("the true potential is constant")
        fitted = "velocity" in space.kinds and not space.inputs
        factor = 1.0
        if fitted:
            centred, true_centred = learned - learned.mean(), true - true.mean()
            factor = ((centred * true_centred).sum() / true_centred.square().sum()).item()
            if not factor:
                raise InapplicableError("the learned potential is constant")
        learned = learned / factor
        learned = learned - (learned - true).mean()
        position = _only_position(motion, resting)
        if position is not None:
            order = torch.argsort(position)
            position, learned, true = position[order], learned[order], true[order]
        return cls(
            true.numpy(),
            learned.numpy(),
            None if position is None else position.numpy(),
            space.names[pairs(space)[0][0]],
            factor,
            fitted,
            name,
        )

    @property
    def worst(self) -> float:
        """The largest error."""
        return float(np.abs(self.learned - self.true).max())

    @property
    def relative(self) -> float:
        """The largest error relative to the true range."""
        return self.worst / max(float(np.ptp(self.true)), 1e-300)

    @property
    def sentence(self) -> str:
        unknown = f"a constant and a factor of {self.factor:.3g}" if self.fitted else "a constant"
        error = percent(self.relative)
        return f"Up to {unknown} the largest error is {error} of the true range."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        factor = f"{self.factor:.3g}" if self.fitted else "1 (known)"
        errors = (f"{self.worst:.2g}", percent(self.relative))
        return [(f"{len(self.true):,}", *errors, factor)]

    @property
    def layout(self) -> Layout:
        """Over the only position; or learned over true, where there are several."""
        if self.position is not None:
            line = reference(self.position, self.true, "true potential")
            return Layout(
                "Potential",
                self.coordinate,
                "energy at rest",
                "Grey: the true potential. The constant, which no motion determines, is removed.",
                background=(line,),
            )
        ends = [float(self.true.min()), float(self.true.max())]
        return Layout(
            "Potential",
            "true potential",
            "learned potential",
            "Points on the grey line are exact. The undetermined constant is removed.",
            background=(reference(ends, ends, "true"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A curve, or a point for every position."""
        if self.position is not None:
            return [style.line(self.position, self.learned, "learned potential")]
        return [style.points(self.true, self.learned, "positions", marker={"size": 4})]


def motion_potential(
    model: StateModel, task: Task, *, count: int = 6, name: str = ""
) -> MotionPotential:
    """Compare the learned potential with the true one, at positions of true trajectories.

    Args:
        model: A model of a dynamical system, with an energy.
        task: Its task, of a simulated system.
        count: Number of trajectories.
        name: Name of the model in figures.

    Example:
        >>> motion_potential(model, task).sentence
    """
    return MotionPotential.of(follow(model, task, count), name)


def _only_position(motion: Motion, states: Tensor) -> Tensor | None:
    """Return the values of the only position, angles by −π to π; None where there are several."""
    coordinates = pairs(motion.space)
    if len(coordinates) > 1:
        return None
    kind, position = motion.space.kinds[coordinates[0][0]], states[:, coordinates[0][0]]
    if kind == "cosine":
        return torch.atan2(states[:, motion.space.indices("sine")[0]], position)
    return torch.atan2(position.sin(), position.cos()) if kind == "angle" else position
