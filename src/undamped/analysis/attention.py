"""Attention over the past: its picture, its sparsity κ and its dependency depth d (TH ch. 4).

In a recurrent network that attends to its own past, gradients go back either step by step or
along attention. With at most κ attended events per step, evenly, and chains of at most d states
in between, ‖∂L/∂h_t‖ is at least of the order κ^−(d+1) (TH theorem 4.4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace, numbers
from undamped.analysis.core.unrolled import evaluating, without_fast_path
from undamped.nn.bases.memory import MemoryCell

Array = NDArray[Any]

MOST_STEPS = 300
"""Longer sequences have pictures too large for a page."""


@instruments.register("attention")
@dataclass(frozen=True)
class Attention(Result):
    """Attention weights, and what they mean for gradients.

    `weights[t, i]` is what step t gives to step i. `sparsity` is κ, the largest number of events
    that one step attends to with at least `threshold`; `depths[i]` is the smallest number of
    states between the last step and step i on a chain of attention whose weights multiply to at
    least `threshold`, −1 where there is no such chain; `depth` is d, the largest of them.
    """

    question = "Which steps does attention go back to, and over how many hops?"
    place = 70
    function = "attention_of"

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
        """The share of past steps that a chain of attention reaches."""
        return float((self.depths >= 0).mean()) if len(self.depths) else 0.0

    @classmethod
    def measure(cls, probe: Probe) -> Attention:
        """Read the last attention layer while it sees the inputs."""
        if not any(
            isinstance(part, nn.MultiheadAttention) or attends(part)
            for part in probe.model.modules()
        ):
            raise InapplicableError("it has no attention layers")
        if probe.length > MOST_STEPS:
            raise InapplicableError(
                f"its {probe.length} steps give a picture of over {MOST_STEPS}²"
            )
        return attention_of(probe.model, probe.inputs)[-1]

    @property
    def sentence(self) -> str:
        """Sparsity, depth and reach."""
        return (
            f"Bright pixels are skip connections: κ = {self.sparsity}, d = {self.depth}, "
            f"{100 * self.reached:.0f} % of the past is reached."
        )

    @property
    def layout(self) -> Layout:
        """A lower-triangular picture."""
        return Layout(
            "Attention weights",
            "attended step i",
            "attending step t",
            "Bright pixels are skip connections from step t back to step i.",
            downwards=True,
            legend=False,
        )

    def traces(self, style: Style) -> list[Trace]:
        """The weights as pixels; a picture holds those of the first model alone."""
        if style.index:
            return []
        shown = np.where(np.tri(*self.weights.shape, dtype=bool), self.weights, np.nan)
        return [
            {
                "type": "heatmap",
                "z": [numbers(row) for row in shown],
                "colorscale": "Cividis",
                "colorbar": {"title": {"text": "weight"}},
                "meta": style.index,
            }
        ]


def attention(
    weights: ArrayLike | Tensor, *, threshold: float = 0.05, recurrent: bool = False
) -> Attention:
    """Read a matrix of attention weights.

    Args:
        weights: (time, time), row t the weights that step t gives to all steps; with a leading
            axis of heads or of a batch, these are averaged.
        threshold: The weight from which an event counts as relevant.
        recurrent: Whether the network is recurrent with attention to its own states: the state of
            step i is made from what step i − 1 attends to, and a chain goes on from there.
    """
    found = weights.detach().cpu().numpy() if isinstance(weights, Tensor) else np.asarray(weights)
    found = found.astype(np.float64)
    while found.ndim > 2:
        found = found.mean(0)
    if found.ndim != 2 or found.shape[0] != found.shape[1]:
        raise ShapeError(
            explain(
                "weights",
                expected="(time, time), rows attending to columns",
                got=found.shape,
                remedy="Stack the weights of every step, filled up with zeros.",
            )
        )
    relevant = np.where(found >= threshold, found, 0.0)
    return Attention(
        found,
        threshold,
        int((relevant > 0).sum(1).max()),
        _depths(relevant, threshold, recurrent),
    )


def _depths(weights: Array, threshold: float, recurrent: bool) -> NDArray[np.int64]:
    """Find, for each earlier step, the shortest chain from the last one that is strong enough."""
    steps = len(weights)
    past = np.tril(weights, 0 if recurrent else -1)
    depths = np.full(steps - 1, -1, dtype=np.int64)
    strongest = np.zeros(steps)  # of chains that end at a step and go on from it
    strongest[-1] = 1.0
    for hops in range(steps):
        # The strongest product over chains of one more hop.
        reached = (strongest[:, None] * past).max(0)
        reached[reached < threshold] = 0.0
        new = (reached[:-1] > 0) & (depths < 0)
        depths[new] = hops
        strongest = np.append(reached[1:], 0.0) if recurrent else reached
        if not strongest.any():
            break
    return depths


@contextmanager
def recording(module: nn.Module, caught: list[Tensor]) -> Iterator[None]:
    """Collect the weights of every layer with attention inside a module while it runs.

    Those are `nn.MultiheadAttention` and the cells of our networks with memory.
    """
    inner = [part for part in module.modules() if isinstance(part, nn.MultiheadAttention)]
    handles = []

    def ask(_: nn.Module, arguments: Any, options: dict[str, Any]) -> Any:
        return arguments, {**options, "need_weights": True, "average_attn_weights": True}

    def catch(_: nn.Module, __: Any, answer: Any) -> None:
        caught.append(answer[1].detach())

    remembering = [part for part in module.modules() if attends(part)]
    for cell in remembering:
        cell.scan = partial(_recorded_scan, cell, caught)  # type: ignore[assignment]
    for part in inner:
        handles.append(part.register_forward_pre_hook(ask, with_kwargs=True))
        handles.append(part.register_forward_hook(catch))
    try:
        with without_fast_path():
            yield
    finally:
        for handle in handles:
            handle.remove()
        for cell in remembering:
            del cell.__dict__["scan"]


def attends(part: nn.Module) -> bool:
    """Say whether a module is a cell that attends to remembered states and can tell which."""
    return isinstance(part, MemoryCell)


def _recorded_scan(cell: Any, caught: list[Tensor], x: Tensor, state: Any, lengths: Any = None):
    caught.append(cell.record(x, state, lengths).weights)
    return type(cell).scan(cell, x, state, lengths)


def attention_of(module: nn.Module, inputs: Tensor, *, threshold: float = 0.05) -> list[Attention]:
    """Run a module and read the attention of each of its layers.

    Args:
        module: A module with `nn.MultiheadAttention` inside, or one of our networks with memory.
        inputs: What the module takes.
        threshold: The weight from which an event counts as relevant.
    """
    caught: list[Tensor] = []
    recurrent = any(attends(part) for part in module.modules())
    with evaluating(module), torch.no_grad(), recording(module, caught):
        module(inputs)
    if not caught:
        raise OptionError(
            explain(
                type(module).__name__,
                expected="a module with attention layers (nn.MultiheadAttention), or with memory",
                got="one without",
                remedy="Give its weights to `attention` directly.",
            )
        )
    return [attention(weights, threshold=threshold, recurrent=recurrent) for weights in caught]
