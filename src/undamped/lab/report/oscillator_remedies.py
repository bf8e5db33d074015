"""What to change about a network of oscillators: its time step, in nearly all cases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from torch import nn

from undamped._base.errors import OptionError
from undamped.analysis.gradient_flow import GradientFlow
from undamped.analysis.oscillators import effective_steps, oscillator_cells
from undamped.analysis.recall import Recall
from undamped.lab.report.commands import Commands
from undamped.lab.report.model_report import Remedy

FEWEST_TURNS = 0.25
"""An oscillator that turns less than this over a sequence has hardly begun to move."""
WANTED_TURNS = 4.0
RUNAWAY = 2.0
"""Radians a step from which symplectic Euler of y'' = −ω² y is unstable: Δt ω < 2."""
LITTLE = 0.1
"""Share of the units below which the linear memory capacity counts as little."""
ROOM = 0.5
"""Radians a step below which an oscillator can take steps three times as large."""


@dataclass(frozen=True)
class Pace:
    """How fast the oscillators of a network move.

    Args:
        dt: Largest time step of the first layer.
        largest_dt: Largest time step of all layers.
        units: Oscillators of a layer.
        fastest: Radians a step of the fastest oscillator there may be.
        usual: Radians a step of the usual oscillator of the first layer.
    """

    dt: float
    largest_dt: float
    units: int
    fastest: float
    usual: float

    def turns(self, length: int) -> float:
        """How often the usual oscillator turns over a sequence."""
        return length * self.usual / (2 * math.pi)


def oscillator_remedies(
    module: nn.Module, flow: GradientFlow, recall: Recall | None, commands: Commands
) -> list[Remedy]:
    """Say what to change about a network of oscillators; nothing about any other.

    Args:
        module: The network or model.
        flow: Its gradient flow.
        recall: What it remembers of its input, if that was measured.
        commands: The command that was called, to be changed.
    """
    try:
        pace = _pace(module)
    except OptionError:
        return []
    advised = _advice(pace, flow, recall)
    if advised is None:
        return []
    advice, dt = advised
    best = float(f"{dt:.1g}")  # one digit, as a person would suggest it
    setting = f"model.dt={best:g}"
    return [Remedy(f"{advice}; try {setting}", commands.changed(setting), "model.dt")]


def _pace(module: nn.Module) -> Pace:
    cells, steps = oscillator_cells(module), effective_steps(module).steps
    weights = [cell.weight.detach().abs() for cell in cells]
    # The largest frequency of y'' = −(tanh(w y) + α y) is √(α + w).
    stiffest = max(math.sqrt(c.alpha + w.max().item()) for c, w in zip(cells, weights, strict=True))
    usual = math.sqrt(cells[0].alpha + weights[0].mean().item())
    return Pace(
        dt=cells[0].dt,
        largest_dt=max(cell.dt for cell in cells),
        units=cells[0].hidden_size,
        fastest=float(steps.max()) * stiffest,
        usual=float(np.median(steps[0])) * usual,
    )


def _advice(pace: Pace, flow: GradientFlow, recall: Recall | None) -> tuple[str, float] | None:
    """Return what is wrong, and a better Δt."""
    turns = pace.turns(flow.length)
    if pace.fastest >= RUNAWAY:
        words = (
            f"Δt is too large: {pace.fastest:.2g} radians in one step is beyond the "
            f"{RUNAWAY:g} at which an oscillator runs away"
        )
        return words, pace.largest_dt / pace.fastest
    if 0 < turns < FEWEST_TURNS:
        words = (
            f"Δt is too small for {flow.length} steps: an oscillator turns only {turns:.2g} times "
            "from beginning to end"
        )
        return words, min(1.0, pace.dt * WANTED_TURNS / turns)
    if flow.verdict == "explode":
        words = (
            f"Gradients grow by {growth(flow)}: a smaller Δt keeps the steps closer to the "
            "oscillators they follow"
        )
        return words, pace.largest_dt / 2
    if recall is not None and recall.capacity < LITTLE * pace.units and pace.fastest < ROOM:
        words = (
            f"Gradients travel, but inputs leave little trace: a linear readout of {pace.units} "
            f"oscillators recovers {recall.capacity:.2f} of them in all; a larger Δt takes in more"
        )
        return words, min(1.0, 3 * pace.dt)
    return None


def growth(flow: GradientFlow) -> str:
    """Say by how much gradients grow on their way back."""
    top, end = float(np.nanmax(flow.norms)), float(flow.norms[-1])
    known = np.isfinite(top) and end > 0
    return f"a factor of {top / end:.2g}" if known else "more than a number holds"
