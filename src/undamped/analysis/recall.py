"""The recall probe: how well a linear readout reconstructs the input of k steps ago.

The input is white noise; ridge regression from the outputs h_t to x_{t−k} is fitted on most of the
sequences and scored on the rest. Gradients show what could be learned; recall shows what can be
read from the network as it is. The sum of the scores over all k is the linear memory capacity
(Jaeger, 2001), which never exceeds the number of units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import instruments
from undamped.analysis.core import Layout, Probe, Result, Style, Trace
from undamped.analysis.core.gradients import first_tensor
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.unrolled import evaluating

Array = NDArray[Any]


@instruments.register("recall")
@dataclass(frozen=True)
class Recall(Result):
    """Recall of the raw input after k steps.

    `scores[k]` is the fraction (0 to 1) of the variance of x_{t−k} that a linear readout of h_t
    explains. The input is noise, so a network that ignores noise and stores relevant information
    scores low; `retention` measures the latter.
    """

    question = "How much of the raw input of k steps ago can be read from the state?"
    page_order = 40
    figure_layout = Layout(
        "Recall of the raw input",
        "delay k [steps]",
        "explained variance of x(t−k)",
        "White noise of k steps ago as recovered by a linear readout. A network that ignores noise "
        "and stores the answer scores low here.",
        y_range=(-0.02, 1.05),
    )

    scores: Array
    threshold: float
    name: str
    read_as: str = ""

    @property
    def capacity(self) -> float:
        """The sum over all delays: the linear memory capacity."""
        return float(self.scores.sum())

    @property
    def reach(self) -> int:
        """The number of consecutive delays for which more than `threshold` is explained."""
        below = np.flatnonzero(self.scores <= self.threshold)
        return int(below[0]) if len(below) else len(self.scores)

    @classmethod
    def measure(cls, probe: Probe) -> Recall:
        """Measure the network with white noise, for delays of up to a quarter of its inputs."""
        probe.require_sequences()
        delays = max(10, min(200, probe.length // 4))
        return recall(
            probe.network,
            delays=delays,
            steps=3 * delays + 100,
            batch=12,
            seed=probe.seed,
            name=probe.name,
            batch_first=probe.network_axis,
        )

    @property
    def sentence(self) -> str:
        return (
            f"A linear readout recovers noise of up to {self.reach} steps ago; the linear memory "
            f"capacity is {self.capacity:.3g} inputs"
            + (f" ({self.read_as})." if self.read_as else ".")
        )

    def traces(self, style: Style) -> list[Trace]:
        return [style.line(range(len(self.scores)), self.scores, "held-out sequences")]


def recall(
    module: nn.Module,
    inputs: Tensor | None = None,
    *,
    delays: int = 100,
    steps: int = 400,
    batch: int = 16,
    ridge: float = 1e-6,
    threshold: float = 0.1,
    seed: int = 0,
    name: str | None = None,
    batch_first: bool | None = None,
) -> Recall:
    """Measure how well x_{t−k} can be read from h_t, for k = 0 … delays.

    Args:
        module: Any module that returns an output at every step.
        inputs: White noise as inputs; by default standard normal numbers, for a module with an
            `input_size`.
        delays: The longest delay K.
        steps: Length of random sequences.
        batch: Number of random sequences; a quarter of them is held out.
        ridge: Strength of the ridge, relative to the outputs' mean variance.
        threshold: Explained variance below which an input counts as forgotten.
        seed: Seed of the noise.
        name: Name of the module in figures.
        batch_first: Whether the batch comes first; see `gradient_flow`.
    """
    x = _noise(module, steps, batch, seed) if inputs is None else inputs
    axes = layout_of(module, x, batch_first)
    if inputs is None and axes.batch_first:
        x = x.transpose(0, 1)
    with evaluating(module), torch.no_grad():
        h = first_tensor(module(x))
    if axes.batch_first:
        x, h = x.transpose(0, 1), h.transpose(0, 1)
    if h.shape[:2] != x.shape[:2] or len(x) <= delays + 1 or x.shape[1] < 2:
        raise ShapeError(
            f"recall needs at least 2 sequences of more than {delays + 1} steps and an output at "
            f"every step, got inputs {tuple(x.shape)} and outputs {tuple(h.shape)}. Give longer "
            "inputs, fewer delays, or a network without its readout."
        )
    features = torch.view_as_real(h).flatten(2) if h.is_complex() else h
    scores = _scores(features.double().cpu().numpy(), x.double().cpu().numpy(), delays, ridge)
    reading = axes.describe(len(x), x.shape[1])
    return Recall(scores, threshold, name or type(module).__name__, reading)


def _noise(module: nn.Module, steps: int, batch: int, seed: int) -> Tensor:
    size = getattr(module, "input_size", None)
    if not isinstance(size, int):
        raise OptionError(
            f"{type(module).__name__} has no input_size. "
            "Give inputs=torch.randn(time, batch, features)."
        )
    like = next(module.parameters())
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(steps, batch, size, generator=generator, dtype=torch.float64)
    return noise.to(like.device, like.dtype)


def _scores(h: Array, x: Array, delays: int, ridge: float) -> Array:
    held_out = max(1, x.shape[1] // 4)
    # All delays are fitted on the same times, so that they share one factorisation.
    states = h[delays:]
    centre = states[:, held_out:].mean((0, 1))
    train = (states[:, held_out:] - centre).reshape(-1, h.shape[2])
    test = (states[:, :held_out] - centre).reshape(-1, h.shape[2])
    gram = train.T @ train
    gram[np.diag_indices(len(gram))] += ridge * np.trace(gram) / len(gram) + 1e-300
    targets = np.stack([x[delays - k : len(x) - k] for k in range(delays + 1)], axis=2)
    fit = targets[:, held_out:].reshape(len(train), -1)
    weights = np.linalg.solve(gram, train.T @ (fit - fit.mean(0)))
    expected = targets[:, :held_out].reshape(len(test), -1)
    residual = ((expected - fit.mean(0) - test @ weights) ** 2).sum(0)
    spread = ((expected - expected.mean(0)) ** 2).sum(0)
    explained = 1 - residual / np.where(spread > 0, spread, 1.0)
    return np.clip(explained.reshape(delays + 1, -1).mean(1), 0.0, 1.0)
