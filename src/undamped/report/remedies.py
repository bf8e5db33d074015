"""Remedies: what to change when a network forgets, by name and with the command."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from torch import nn

from undamped.analysis.gradient_flow import GradientFlow
from undamped.analysis.oscillators import effective_steps, oscillator_cells
from undamped.analysis.recall import Recall
from undamped.errors import OptionError
from undamped.report.commands import Commands
from undamped.report.model_report import Remedy

FEWEST_TURNS = 0.25
"""An oscillator that turns less than this over a sequence has hardly begun to move."""
WANTED_TURNS = 4.0
LITTLE = 0.1
"""Share of the units below which the linear memory capacity counts as little."""


ROOM = 0.5
"""Radians a step below which an oscillator can take steps three times as large."""


def remedies(
    module: nn.Module,
    flow: GradientFlow,
    recall: Recall | None = None,
    *,
    command: str = "undamped diagnose",
    model: str = "",
    settings: Sequence[str] = (),
) -> list[Remedy]:
    """Say what to change about a network, given what was measured.

    Args:
        module: The network or model.
        flow: Its gradient flow.
        recall: What it remembers, if that was measured.
        command: The command to which settings are added, up to and without the model's name.
        model: The registry name of the model, if it has one.
        settings: Settings that were given, which the commands keep.
    """
    commands = Commands(command, model, settings)
    found = _oscillators(module, flow, recall, commands)
    if flow.verdict == "vanish":
        found += _vanishing(flow, commands)
    elif flow.verdict == "explode":
        found.append(
            Remedy(
                f"Gradients grow by {_growth(flow)} over {flow.length} steps: cut them off at "
                "norm 1 while training",
                commands.changed("train.clip=1")
                if command.startswith("undamped train") and model
                else "",
            )
        )
        if model not in ("unicornn", "rnn-orth"):
            found.append(
                Remedy(
                    "Or take a network whose step keeps volume, so that nothing can grow for good",
                    commands.with_model("unicornn"),
                )
            )
    return found


def _oscillators(
    module: nn.Module, flow: GradientFlow, recall: Recall | None, commands: Commands
) -> list[Remedy]:
    try:
        cells = oscillator_cells(module)
    except OptionError:
        return []
    steps = effective_steps(module).steps
    found = []
    stiffness = max(
        _stiffness(cell.alpha, cell.weight.detach().abs().max().item()) for cell in cells
    )
    if steps.max() * stiffness >= 2:
        # The linear step y'' = −ω² y by symplectic Euler is stable for Δt ω < 2.
        best = _round(max(c.dt for c in cells) / (steps.max() * stiffness))
        found.append(
            Remedy(
                f"Δt is too large: {steps.max() * stiffness:.2g} radians in one step is beyond the "
                f"2 at which an oscillator runs away; try model.dt={best:g}",
                commands.changed(f"model.dt={best:g}"),
            )
        )
        return found
    middle = float(np.median(steps[0]))
    pace = _stiffness(cells[0].alpha, cells[0].weight.detach().abs().mean().item())
    turns = flow.length * middle * pace / (2 * math.pi)
    if 0 < turns < FEWEST_TURNS:
        best = _round(min(1.0, cells[0].dt * WANTED_TURNS / turns))
        found.append(
            Remedy(
                f"Δt is too small for {flow.length} steps: an oscillator turns only "
                f"{turns:.2g} times from beginning to end; try model.dt={best:g}",
                commands.changed(f"model.dt={best:g}"),
            )
        )
    elif flow.verdict == "explode":
        best = _round(max(c.dt for c in cells) / 2)
        found.append(
            Remedy(
                f"Gradients grow by {_growth(flow)}: a smaller Δt keeps the steps closer to the "
                f"oscillators they follow; try model.dt={best:g}",
                commands.changed(f"model.dt={best:g}"),
            )
        )
    elif (
        recall is not None
        and recall.capacity < LITTLE * cells[0].hidden_size
        and steps.max() * stiffness < ROOM
    ):
        best = _round(min(1.0, 3 * cells[0].dt))
        found.append(
            Remedy(
                f"Gradients travel, but inputs leave little trace: a linear readout of "
                f"{cells[0].hidden_size} oscillators recovers {recall.capacity:.2f} of them in "
                f"all; a larger Δt takes in more, try model.dt={best:g}",
                commands.changed(f"model.dt={best:g}"),
            )
        )
    return found


def _vanishing(flow: GradientFlow, commands: Commands) -> list[Remedy]:
    model = commands.model
    lost = flow.length - flow.horizon
    found = []
    if model != "unicornn":
        found.append(
            Remedy(
                f"The first {lost} of {flow.length} steps cannot be learned from: take a network "
                "of undamped oscillators",
                commands.with_model("unicornn"),
            )
        )
    if model in ("rnn", "irnn"):
        found.append(
            Remedy(
                "Or start from an orthogonal recurrent matrix, which keeps every norm",
                commands.with_model("rnn-orth"),
            )
        )
    found.append(
        Remedy(
            f"Or bring what matters within {flow.horizon} steps: shorten the sequence, or feed "
            "several samples as one step"
        )
    )
    return found


def _stiffness(alpha: float, weight: float) -> float:
    """The largest frequency of y'' = −(tanh(w y) + α y): √(α + w)."""
    return math.sqrt(alpha + weight)


def _growth(flow: GradientFlow) -> str:
    top, end = float(np.nanmax(flow.norms)), float(flow.norms[-1])
    return (
        f"a factor of {top / end:.2g}"
        if np.isfinite(top) and end > 0
        else "more than a number holds"
    )


def _round(value: float) -> float:
    """Round to one digit, as a person would suggest it."""
    return float(f"{value:.1g}")
