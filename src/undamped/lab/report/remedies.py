"""Remedies: what to change when a network forgets, by name and with the command."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

from torch import nn

from undamped._base.promises import Kind
from undamped._base.registry import models
from undamped.analysis.gradient_flow import GradientFlow
from undamped.analysis.recall import Recall
from undamped.lab.report.commands import Commands
from undamped.lab.report.model_report import Remedy
from undamped.lab.report.oscillator_remedies import growth, oscillator_remedies
from undamped.nn import Cell, Recurrent

KEEPS_SIZE = {Kind.VOLUME_PRESERVING, Kind.ISOMETRIC, Kind.STARTS_ISOMETRIC}
"""Promises of those that need no advice about growing."""


def remedies(
    module: nn.Module,
    flow: GradientFlow,
    recall: Recall | None = None,
    *,
    command: str = "undamped diagnose",
    model: str = "",
    settings: Sequence[str] = (),
    applied: Collection[str] = (),
) -> list[Remedy]:
    """Say what to change about a network, given what was measured.

    Args:
        module: The network or model.
        flow: Its gradient flow.
        recall: What it remembers, if that was measured.
        command: The command to which settings are added, up to and without the model's name.
        model: The registry name of the model, if it has one.
        settings: Settings that were given, which the commands keep.
        applied: Settings about which there is nothing to advise, `train.clip` for example: they
            are made already, or this program chose them itself.
    """
    commands = Commands(command, model, settings)
    cell = _cell_class(module, model)
    found = oscillator_remedies(module, flow, recall, commands)
    if flow.verdict == "vanish":
        found += _vanishing(cell, flow, commands)
    elif flow.verdict == "explode":
        found += _exploding(cell, flow, commands)
    return [remedy for remedy in found if remedy.setting not in applied]


def _cell_class(module: nn.Module, model: str) -> type[Cell]:
    """Return the class of a network's cells; of somebody else's, the class of all cells."""
    network = getattr(module, "network", module)
    if isinstance(network, Recurrent):
        return network.cell_class
    return getattr(models[model], "cell_class", Cell) if model in models else Cell


def _suggested(cell: type[Cell], fits: Callable[[type[Cell]], bool]) -> Iterator[tuple[str, str]]:
    """Yield models whose cells advise themselves to the family of this one, and their advice.

    A cell is advised to those that are made from the same class as it, and not to itself or to
    what was made from it.
    """
    named = [(name, getattr(models[name], "cell_class", None)) for name in models]
    # What stands closer to the class of all cells is the greater change, and comes first.
    named = [(name, other) for name, other in named if other and "remembers" in vars(other)]
    for name, other in sorted(named, key=lambda pair: len(pair[1].__mro__)):
        of_family = issubclass(cell, other.__mro__[1])
        if of_family and not issubclass(cell, other) and fits(other):
            yield name, other.remembers


def _vanishing(cell: type[Cell], flow: GradientFlow, commands: Commands) -> list[Remedy]:
    lost = flow.length - flow.horizon
    found = []
    for name, advice in _suggested(cell, lambda other: True):
        start = (
            "Or" if found else f"The first {lost} of {flow.length} steps cannot be learned from:"
        )
        found.append(Remedy(f"{start} {advice}", commands.with_model(name)))
    nearer = (
        f"bring what matters within {flow.horizon} steps: shorten the sequence, or feed several "
        "samples as one step"
    )
    return [*found, Remedy(f"Or {nearer}" if found else nearer.capitalize())]


def _exploding(cell: type[Cell], flow: GradientFlow, commands: Commands) -> list[Remedy]:
    trains = commands.prefix.startswith("undamped train") and commands.model
    found = [
        Remedy(
            f"Gradients grow by {growth(flow)} over {flow.length} steps: cut them off at norm 1 "
            "while training",
            commands.changed("train.clip=1") if trains else "",
            "train.clip",
        )
    ]
    if not KEEPS_SIZE & {promise.kind for promise in cell.promises}:
        for name, _ in _suggested(cell, _keeps_volume):
            advice = "Or take a network whose step keeps volume, so that nothing can grow for good"
            found.append(Remedy(advice, commands.with_model(name)))
    return found


def _keeps_volume(cell: type[Cell]) -> bool:
    return any(promise.kind is Kind.VOLUME_PRESERVING for promise in cell.promises)
