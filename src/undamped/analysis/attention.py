"""Attention over the past: its weights, its sparsity κ and its dependency depth d (TH ch. 4).

In a recurrent network with attention to its past, gradients propagate either step by step or along
attention. If each step attends evenly to at most κ events, and chains have at most d states in
between, ‖∂L/∂h_t‖ is at least of the order κ^−(d+1) (TH theorem 4.4.3). Networks that select which
states to store also show these steps over time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.unrolled import evaluating, without_fast_path
from undamped.nn.bases.memory import MemoryCell
from undamped.nn.relrnn import RelRNNCell

Array = NDArray[Any]

MAX_STEPS = 300
"""Figures of longer sequences are too large for a page."""


@instruments.register("attention")
@dataclass(frozen=True)
class Attention(Result):
    """Attention weights, with their sparsity and depth.

    `weights[t, i]` is the weight of step i at step t. `sparsity` is κ, the largest number of events
    that one step attends to with at least `threshold`; `depths[i]` is the smallest number of
    states between the last step and step i on a chain of attention whose weights multiply to at
    least `threshold`, −1 where there is no such chain; `depth` is d, the largest of them.
    """

    question = "To which past steps does attention connect, and over how many hops?"
    page_order = 70
    function = "attention_of"
    figure_layout = Layout(
        "Attention weights",
        "attended step i",
        "attending step t",
        "Bright pixels are skip connections from step t back to step i.",
        downwards=True,
        legend=False,
    )

    weights: Array
    threshold: float
    sparsity: int
    depths: NDArray[np.int64]

    @property
    def depth(self) -> int:
        """The largest dependency depth among the steps that are reached."""
        return int(self.depths.max(initial=-1))

    @property
    def reached(self) -> float:
        """The fraction of past steps that a chain of attention reaches."""
        return float((self.depths >= 0).mean()) if len(self.depths) else 0.0

    @classmethod
    def measure(cls, probe: Probe) -> Attention:
        """Record the last attention layer while the model processes the inputs."""
        if not any(
            isinstance(part, nn.MultiheadAttention | MemoryCell) for part in probe.model.modules()
        ):
            raise InapplicableError("it has no attention layers")
        if probe.length > MAX_STEPS:
            raise InapplicableError(f"its {probe.length} steps exceed the {MAX_STEPS} of a figure")
        return attention_of(probe.model, probe.inputs)[-1]

    @property
    def sentence(self) -> str:
        return (
            f"Bright pixels are skip connections: κ = {self.sparsity}, d = {self.depth}, "
            f"{100 * self.reached:.0f} % of the past is reached."
        )

    def traces(self, style: Style) -> list[Trace]:
        """The weights as a heat map, of the first model only."""
        if style.index:
            return []
        past = np.where(np.tri(*self.weights.shape, dtype=bool), self.weights, np.nan)
        return [style.heatmap(past, "weight")]


def attention(
    weights: ArrayLike | Tensor, *, threshold: float = 0.05, recurrent: bool = False
) -> Attention:
    """Return sparsity and depth of a matrix of attention weights.

    Args:
        weights: (time, time), row t contains the weights of all steps at step t; leading axes of
            heads or of a batch are averaged.
        threshold: Weight from which an event counts as relevant.
        recurrent: Whether the network is recurrent with attention to its own states: the state of
            step i depends on what step i − 1 attends to, so that chains continue from there.
    """
    matrix = weights.detach().cpu().numpy() if isinstance(weights, Tensor) else np.asarray(weights)
    matrix = matrix.astype(np.float64)
    while matrix.ndim > 2:
        matrix = matrix.mean(0)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(
            f"weights must be (time, time), rows attending to columns, got shape {matrix.shape}."
        )
    relevant = np.where(matrix >= threshold, matrix, 0.0)
    return Attention(
        matrix, threshold, int((relevant > 0).sum(1).max()), _depths(relevant, threshold, recurrent)
    )


def _depths(weights: Array, threshold: float, recurrent: bool) -> NDArray[np.int64]:
    """Return the length of the shortest strong chain from the last step to each earlier one."""
    steps = len(weights)
    past = np.tril(weights, 0 if recurrent else -1)
    depths = np.full(steps - 1, -1, dtype=np.int64)
    strongest = np.zeros(steps)  # product of weights of the chains that end at a step
    strongest[-1] = 1.0
    for hops in range(steps):
        # The largest product over chains with one more hop.
        reached = (strongest[:, None] * past).max(0)
        reached[reached < threshold] = 0.0
        new = (reached[:-1] > 0) & (depths < 0)
        depths[new] = hops
        strongest = np.append(reached[1:], 0.0) if recurrent else reached
        if not strongest.any():
            break
    return depths


@contextmanager
def recording(module: nn.Module, weights: list[Tensor]) -> Iterator[None]:
    """Append the weights of every attention layer to a list while a module runs.

    Attention layers are `nn.MultiheadAttention` and the cells of networks with memory.
    """

    def request_weights(_: nn.Module, arguments: Any, options: dict[str, Any]) -> Any:
        return arguments, {**options, "need_weights": True, "average_attn_weights": True}

    def record(_: nn.Module, __: Any, output: Any) -> None:
        weights.append(output[1].detach())

    with ExitStack() as stack:
        for part in module.modules():
            if isinstance(part, MemoryCell):
                stack.enter_context(recorded_scans(part, lambda r: weights.append(r.weights)))
            elif isinstance(part, nn.MultiheadAttention):
                hook = part.register_forward_pre_hook(request_weights, with_kwargs=True)
                stack.callback(hook.remove)
                stack.callback(part.register_forward_hook(record).remove)
        stack.enter_context(without_fast_path())
        yield


@contextmanager
def recorded_scans(cell: Any, record: Callable[[Any], None]) -> Iterator[None]:
    """Call `record` with the record of every scan of a cell with memory while this lasts."""

    def scan(x: Tensor, state: Any, lengths: Any = None) -> Any:
        record(cell.record(x, state, lengths))
        return type(cell).scan(cell, x, state, lengths)

    cell.scan = scan
    try:
        yield
    finally:
        del cell.__dict__["scan"]


def attention_of(module: nn.Module, inputs: Tensor, *, threshold: float = 0.05) -> list[Attention]:
    """Run a module and return the attention of each of its layers.

    Args:
        module: A module with `nn.MultiheadAttention`, or a network with memory.
        inputs: Its inputs.
        threshold: Weight from which an event counts as relevant.
    """
    recorded: list[Tensor] = []
    recurrent = any(isinstance(part, MemoryCell) for part in module.modules())
    with evaluating(module), torch.no_grad(), recording(module, recorded):
        module(inputs)
    if not recorded:
        raise OptionError(
            f"{type(module).__name__} has neither nn.MultiheadAttention nor a memory. "
            "Give its weights to `attention` directly."
        )
    return [attention(weights, threshold=threshold, recurrent=recurrent) for weights in recorded]


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
    cells = [part for part in module.modules() if isinstance(part, RelRNNCell)]
    if not cells:
        raise OptionError(
            f"{type(module).__name__} does not store relevant states. Use 'relrnn' or 'rellstm'."
        )
    steps: list[Tensor] = []
    recorded = recorded_scans(cells[-1], lambda record: steps.append(record.relevant[0]))
    with recorded, evaluating(module), torch.no_grad():
        module(inputs)
    return StepDrift(steps[-1].numpy(), name)
