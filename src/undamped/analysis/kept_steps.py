"""Which steps a network with memory keeps, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped._base.registry import instruments
from undamped.analysis.attention import attends
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.nn.relrnn import RelRNNCell


@instruments.register("kept_steps")
@dataclass(frozen=True)
class KeptSteps(Result):
    """The steps whose states are kept as relevant, at every time.

    `kept[t]` are the steps that one sample keeps after step t, −1 where a slot is empty; `lasting`
    is the share of the steps kept at the end that were kept for at least half of the sequence.
    """

    question = "Which steps does a network with memory keep, and for how long?"
    place = 75

    kept: NDArray[np.int64]
    name: str

    @property
    def last(self) -> list[int]:
        """The steps that are kept at the end, in order."""
        return sorted(int(step) for step in self.kept[-1] if step >= 0)

    @property
    def lasting(self) -> float:
        """The share of those that were kept for half of the sequence or longer."""
        held = [(self.kept == step).any(1).sum() >= len(self.kept) / 2 for step in self.last]
        return float(np.mean(held)) if held else 0.0

    @classmethod
    def measure(cls, probe: Probe) -> KeptSteps:
        """Look at the first sample of the inputs."""
        if not any(isinstance(part, RelRNNCell) for part in probe.model.modules()):
            raise InapplicableError("it does not choose which states to keep")
        return kept_steps(probe.model, probe.inputs, name=probe.name)

    @property
    def sentence(self) -> str:
        """How many are kept, and from when."""
        if not self.last:
            return "Nothing has left the recent states yet, so nothing is kept."
        return (
            f"At the end {len(self.last)} steps are kept, {self.last[0]} to {self.last[-1]}; "
            f"{100 * self.lasting:.0f} % of them were kept for at least half of the sequence."
        )

    @property
    def layout(self) -> Layout:
        """Lines where a step stays."""
        return Layout(
            "Kept steps",
            "step of the sequence",
            "step that is kept",
            "A line from left to right is a state that stays relevant.",
        )

    def traces(self, style: Style) -> list[Trace]:
        """A dot for every step that is kept at a time."""
        times, slots = np.nonzero(self.kept >= 0)
        return [style.points(times, self.kept[times, slots], "kept", marker={"size": 3})]


def kept_steps(module: nn.Module, inputs: Tensor, *, name: str = "") -> KeptSteps:
    """Run a network with memory and see which steps its first sample keeps.

    Args:
        module: A module with RelRNN or RelLSTM inside; its last layer is looked at.
        inputs: What the module takes.
        name: What to call it.

    Example:
        >>> kept_steps(undamped.nn.RelLSTM(3, 16), torch.randn(60, 4, 3)).last
    """
    cells: list[Any] = [
        part for part in module.modules() if isinstance(part, RelRNNCell) and attends(part)
    ]
    if not cells:
        raise OptionError(
            explain(
                type(module).__name__,
                expected="a network that keeps relevant states",
                got="one that does not",
                remedy="Take 'relrnn' or 'rellstm'.",
            )
        )
    found: list[Tensor] = []
    cell = cells[-1]

    def scan(x: Tensor, state: Any, lengths: Any = None) -> Any:
        found.append(cell.record(x, state, lengths).kept[0])
        return type(cell).scan(cell, x, state, lengths)

    cell.scan = scan
    try:
        with evaluating(module), torch.no_grad():
            module(inputs)
    finally:
        del cell.__dict__["scan"]
    return KeptSteps(found[-1].numpy(), name)
