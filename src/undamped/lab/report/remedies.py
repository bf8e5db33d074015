"""Remedies: changes that are advised when gradients vanish or explode, and their commands."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from undamped._base.errors import OptionError
from undamped._base.promises import Kind
from undamped._base.registry import models
from undamped.analysis.gradient_flow import GradientFlow
from undamped.analysis.oscillators import effective_steps, oscillator_cells
from undamped.analysis.recall import Recall
from undamped.lab.report.model_report import ModelReport, Remedy
from undamped.lab.training.recipes import recipe_of
from undamped.models.for_task import model_options
from undamped.nn import Cell, Recurrent

PRESERVES_SIZE = {Kind.VOLUME_PRESERVING, Kind.ISOMETRIC, Kind.STARTS_ISOMETRIC}
"""Promises of cells whose gradients do not grow."""
MIN_PERIODS = 0.25
"""An oscillator with fewer periods over a sequence hardly moves."""
TARGET_PERIODS = 4.0
UNSTABLE = 2.0
"""Radians per step from which symplectic Euler of y'' = −ω² y is unstable: Δt ω < 2."""
SMALL_CAPACITY = 0.1
"""Linear memory capacity per unit that counts as small."""
SLOW = 0.5
"""Radians per step below which the time step can be three times as large."""


@dataclass(frozen=True)
class Commands:
    """A command line, from which commands with one change are made.

    Args:
        prefix: The command up to the model's name, which is not included.
        model: Registry name of the model, if it has one.
        settings: The settings after it, such as `task.delay=5`.
    """

    prefix: str
    model: str = ""
    settings: Sequence[str] = ()

    def add_to(self, report: ModelReport, applied: Collection[str] = ()) -> ModelReport:
        """Return a report whose remedies have their command.

        Args:
            report: The report.
            applied: Settings such as `train.clip` that need no advice, because they are set already
                or were chosen by the program; their remedies are left out.
        """
        remedies = [
            replace(remedy, command=self.apply(remedy))
            for remedy in report.remedies
            if remedy.setting.partition("=")[0] not in applied or not remedy.setting
        ]
        return replace(report, remedies=remedies)

    def apply(self, remedy: Remedy) -> str:
        """Return the command that makes the change; empty if there is none."""
        if remedy.model:
            return self._with_model(remedy.model)
        trains = self.prefix.startswith("undamped train") and self.model
        if not remedy.setting or (remedy.setting.startswith("train.") and not trains):
            return ""
        key = remedy.setting.partition("=")[0]
        settings = [word for word in self.settings if word.partition("=")[0] != key]
        words = (self.prefix, self.model, *settings, remedy.setting)
        return " ".join(word for word in words if word)

    def _with_model(self, model: str) -> str:
        """Return the command for another model, with the settings that it has."""
        options = model_options(model)
        settings = []
        for word in self.settings:
            section, dot, name = word.partition("=")[0].partition(".")
            of_models = dot and section in ("model", *models)
            if not of_models or (section == "model" and name in options) or section == model:
                settings.append(word)
        return " ".join([self.prefix, model, *settings])


def remedies(
    module: nn.Module, flow: GradientFlow, recall: Recall | None = None, *, model: str = ""
) -> list[Remedy]:
    """Return changes that are advised for a network, from its measurements.

    Args:
        module: The network or model.
        flow: Its gradient flow.
        recall: Its recall, if that was measured.
        model: Registry name of the model, if it has one.
    """
    cell = _cell_class(module, model)
    advice = _oscillator_remedies(module, flow, recall)
    if flow.verdict == "vanish":
        advice += _vanishing(cell, flow)
    elif flow.verdict == "explode":
        advice += _exploding(cell, flow)
    return advice


def _cell_class(module: nn.Module, model: str) -> type[Cell]:
    """Return the class of a network's cells; `Cell` for a network of another library."""
    network = getattr(module, "network", module)
    if isinstance(network, Recurrent):
        return network.cell_class
    return getattr(models[model], "cell_class", Cell) if model in models else Cell


def _suggested(cell: type[Cell], fits: Callable[[type[Cell]], bool]) -> Iterator[tuple[str, str]]:
    """Yield models with a longer memory than this cell's, and the advice they declare.

    A model is suggested to cells that derive from the same class as its own cell, but not to its
    own cell or cells that derive from it.
    """
    cells = [(name, getattr(models[name], "cell_class", None)) for name in models]
    advised = [(name, kind) for name, kind in cells if kind and recipe_of(name).advice]
    # Cells closer to the base class of all cells are a larger change, and come first.
    for name, kind in sorted(advised, key=lambda pair: len(pair[1].__mro__)):
        of_family = issubclass(cell, kind.__mro__[1])
        if of_family and not issubclass(cell, kind) and fits(kind):
            yield name, recipe_of(name).advice


def _vanishing(cell: type[Cell], flow: GradientFlow) -> list[Remedy]:
    first = f"The first {flow.length - flow.horizon} of {flow.length} steps cannot be learned from:"
    advice = []
    for name, suggestion in _suggested(cell, lambda kind: True):
        advice.append(Remedy(f"{'Or' if advice else first} {suggestion}", model=name))
    shorten = (
        f"bring what matters within {flow.horizon} steps: shorten the sequence, or feed several "
        "samples as one step"
    )
    return [*advice, Remedy(f"Or {shorten}" if advice else shorten.capitalize())]


def _exploding(cell: type[Cell], flow: GradientFlow) -> list[Remedy]:
    clip = (
        f"Gradients grow by {_growth(flow)} over {flow.length} steps: clip them at norm 1 during "
        "training"
    )
    advice = [Remedy(clip, setting="train.clip=1")]
    if not PRESERVES_SIZE & _promised(cell):
        for name, _ in _suggested(cell, lambda kind: Kind.VOLUME_PRESERVING in _promised(kind)):
            volume = "Or use a network whose step preserves volume, so that not all gradients grow"
            advice.append(Remedy(volume, model=name))
    return advice


def _promised(cell: type[Cell]) -> set[Kind]:
    return {promise.kind for promise in cell.promises}


@dataclass(frozen=True)
class _Frequencies:
    """Time steps and frequencies of a network of oscillators.

    Args:
        dt: Largest time step of the first layer.
        largest_dt: Largest time step of all layers.
        units: Oscillators per layer.
        fastest: Upper bound of the radians per step of all oscillators.
        median: Radians per step of the median oscillator of the first layer.
    """

    dt: float
    largest_dt: float
    units: int
    fastest: float
    median: float

    def periods(self, length: int) -> float:
        """Return the number of periods of the median oscillator over a sequence."""
        return length * self.median / (2 * math.pi)


def _oscillator_remedies(
    module: nn.Module, flow: GradientFlow, recall: Recall | None
) -> list[Remedy]:
    """Return a better time step for a network of oscillators; nothing for any other network."""
    try:
        frequencies = _frequencies(module)
    except OptionError:
        return []
    problem = _time_step_problem(frequencies, flow, recall)
    if problem is None:
        return []
    advice, dt = problem
    setting = f"model.dt={float(f'{dt:.1g}'):g}"  # one significant digit
    return [Remedy(f"{advice}; try {setting}", setting=setting)]


def _frequencies(module: nn.Module) -> _Frequencies:
    cells, steps = oscillator_cells(module), effective_steps(module).steps
    weights = [cell.weight.detach().abs() for cell in cells]
    # The largest frequency of y'' = −(tanh(w y) + α y) is √(α + w).
    stiffest = max(math.sqrt(c.alpha + w.max().item()) for c, w in zip(cells, weights, strict=True))
    median = math.sqrt(cells[0].alpha + weights[0].mean().item())
    return _Frequencies(
        dt=cells[0].dt,
        largest_dt=max(cell.dt for cell in cells),
        units=cells[0].hidden_size,
        fastest=float(steps.max()) * stiffest,
        median=float(np.median(steps[0])) * median,
    )


def _time_step_problem(
    frequencies: _Frequencies, flow: GradientFlow, recall: Recall | None
) -> tuple[str, float] | None:
    """Return what is wrong with the time step, and a better one."""
    periods = frequencies.periods(flow.length)
    if frequencies.fastest >= UNSTABLE:
        advice = (
            f"Δt is too large: {frequencies.fastest:.2g} radians per step exceeds the limit of "
            f"stability, {UNSTABLE:g}"
        )
        return advice, frequencies.largest_dt / frequencies.fastest
    if 0 < periods < MIN_PERIODS:
        advice = (
            f"Δt is too small for {flow.length} steps: an oscillator completes only "
            f"{periods:.2g} periods"
        )
        return advice, min(1.0, frequencies.dt * TARGET_PERIODS / periods)
    if flow.verdict == "explode":
        advice = f"Gradients grow by {_growth(flow)}: a smaller Δt makes the steps more accurate"
        return advice, frequencies.largest_dt / 2
    slow = frequencies.fastest < SLOW
    if recall is not None and recall.capacity < SMALL_CAPACITY * frequencies.units and slow:
        advice = (
            f"Gradients do not vanish, but the memory capacity is small: a linear readout of "
            f"{frequencies.units} oscillators recovers {recall.capacity:.2f} inputs; a larger Δt "
            "increases it"
        )
        return advice, min(1.0, 3 * frequencies.dt)
    return None


def _growth(flow: GradientFlow) -> str:
    """Return the factor by which gradients grow on their way back, in words."""
    top, end = float(np.nanmax(flow.norms)), float(flow.norms[-1])
    finite = np.isfinite(top) and end > 0
    return f"a factor of {top / end:.2g}" if finite else "a factor that overflows"
