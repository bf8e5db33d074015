"""Which steps a network with memory stores, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.registry import instruments
from undamped.analysis.attention import attends
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.unrolled import evaluating
from undamped.nn.relrnn import RelRNNCell


@instruments.register("step_drift")
@dataclass(frozen=True)
class StepDrift(Result):
    """The steps whose states are stored as relevant, over time.

    `steps[t]` are the steps that one sample stores after step t, −1 where a slot is empty;
    `lasting` is the fraction of the steps stored at the end that were stored for at least half of
    the sequence.
    """

    question = "Which steps does a network with memory store, and for how long?"
    page_order = 75
    figure_layout = Layout(
        "Stored steps",
        "step of the sequence",
        "step that is stored",
        "A line from left to right is a state that remains relevant.",
    )

    steps: NDArray[np.int64]
    name: str

    @property
    def last(self) -> list[int]:
        """The steps that are stored at the end, in order."""
        return sorted(int(step) for step in self.steps[-1] if step >= 0)

    @property
    def lasting(self) -> float:
        """The fraction of those that were stored for half of the sequence or longer."""
        long_lasting = [
            (self.steps == step).any(1).sum() >= len(self.steps) / 2 for step in self.last
        ]
        return float(np.mean(long_lasting)) if long_lasting else 0.0

    @classmethod
    def measure(cls, probe: Probe) -> StepDrift:
        """Measure the first sample of the inputs."""
        if not any(isinstance(part, RelRNNCell) for part in probe.model.modules()):
            raise InapplicableError("it does not select states to store")
        return step_drift(probe.model, probe.inputs, name=probe.name)

    @property
    def sentence(self) -> str:
        """How many steps are stored at the end, and which."""
        if not self.last:
            return "All steps are still among the recent states, so none is stored as relevant."
        return (
            f"At the end {len(self.last)} steps are stored, {self.last[0]} to {self.last[-1]}; "
            f"{100 * self.lasting:.0f} % of them were stored for at least half of the sequence."
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for every step that is stored at a time."""
        times, slots = np.nonzero(self.steps >= 0)
        return [style.points(times, self.steps[times, slots], "stored", marker={"size": 3})]


def step_drift(module: nn.Module, inputs: Tensor, *, name: str = "") -> StepDrift:
    """Run a network with memory and return which steps its first sample stores.

    Args:
        module: A module that contains RelRNN or RelLSTM; its last layer is measured.
        inputs: Its inputs.
        name: Name of the model in figures.

    Example:
        >>> step_drift(undamped.nn.RelLSTM(3, 16), torch.randn(60, 4, 3)).last
    """
    cells: list[Any] = [
        part for part in module.modules() if isinstance(part, RelRNNCell) and attends(part)
    ]
    if not cells:
        raise OptionError(
            f"{type(module).__name__} does not store relevant states. Use 'relrnn' or 'rellstm'."
        )
    records: list[Tensor] = []
    cell = cells[-1]

    def scan(x: Tensor, state: Any, lengths: Any = None) -> Any:
        records.append(cell.record(x, state, lengths).kept[0])
        return type(cell).scan(cell, x, state, lengths)

    cell.scan = scan
    try:
        with evaluating(module), torch.no_grad():
            module(inputs)
    finally:
        del cell.__dict__["scan"]
    return StepDrift(records[-1].numpy(), name)
