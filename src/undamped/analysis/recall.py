"""The recall probe: what a linear readout can still tell about the input of k steps ago.

White noise goes in; ridge regression from the outputs h_t to x_{t−k} is fitted on most of the
sequences and scored on the rest. Gradients say what could be learned; recall says what an
observer can read off the network as it is. The sum of the scores over all k is the linear memory
capacity (Jaeger, 2001), which never exceeds the number of units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.input_gradients import first_tensor
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.unrolled import evaluating

Array = NDArray[Any]


@instruments.register("recall")
@dataclass(frozen=True)
class Recall(Result):
    """Recall of the raw input: how much of what came k steps ago the output still holds.

    `scores[k]` is the share (0 to 1) of the variance of x_{t−k} that a linear readout of h_t
    explains. The input is noise and all of it counts alike, so a network that lets noise pass and
    keeps what matters scores low; `retention` asks for what matters.
    """

    question = "How much of the raw input of k steps ago, noise and all, can be read from now?"
    place = 40

    scores: Array
    threshold: float
    name: str
    read_as: str = ""

    @property
    def capacity(self) -> float:
        """The sum over all delays: how many past inputs are remembered, in all."""
        return float(self.scores.sum())

    @property
    def reach(self) -> int:
        """How many steps back, without a gap, more than `threshold` is explained."""
        lost = np.flatnonzero(self.scores <= self.threshold)
        return int(lost[0]) if len(lost) else len(self.scores)

    @classmethod
    def measure(cls, probe: Probe) -> Recall:
        """Feed white noise to the network, as long as its inputs allow."""
        probe.in_time()
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
        """Reach and capacity in words."""
        return (
            f"A linear readout recovers noise that came in up to {self.reach} steps back, "
            f"{self.capacity:.3g} inputs of it in all"
            + (f" ({self.read_as})." if self.read_as else ".")
        )

    @property
    def layout(self) -> Layout:
        """Explained share against the delay."""
        return Layout(
            "Recall of the raw input",
            "delay k [steps]",
            "explained share of x(t−k)",
            "How much of white noise that came in k steps ago a linear readout recovers. A "
            "network that ignores noise and keeps the answer scores low here.",
            y_range=(-0.02, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line."""
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
        inputs: White noise of your own, as the module takes it; if none, standard normal numbers
            are drawn for a module with an `input_size`.
        delays: The longest delay K.
        steps: Length of the sequences drawn.
        batch: Number of sequences drawn; a quarter of them is held out.
        ridge: Strength of the ridge, relative to the outputs' mean variance.
        threshold: The share below which an input counts as forgotten.
        seed: Seed of the noise.
        name: What to call the module in plots.
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
            explain(
                "recall",
                expected=f"at least 2 sequences of more than {delays + 1} steps, answered at "
                "every step",
                got=f"inputs {tuple(x.shape)}, answers {tuple(h.shape)}",
                remedy="Give longer inputs, fewer delays, or a network without its readout.",
            )
        )
    features = torch.view_as_real(h).flatten(2) if h.is_complex() else h
    scores = _scores(features.double().cpu().numpy(), x.double().cpu().numpy(), delays, ridge)
    read = axes.words(len(x), x.shape[1])
    return Recall(scores, threshold, name or type(module).__name__, read)


def _noise(module: nn.Module, steps: int, batch: int, seed: int) -> Tensor:
    size = getattr(module, "input_size", None)
    if not isinstance(size, int):
        raise OptionError(
            explain(
                "inputs",
                expected="white noise, since the module does not say its input_size",
                got="none",
                remedy="Give inputs=torch.randn(time, batch, features).",
            )
        )
    like = next(module.parameters())
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(steps, batch, size, generator=generator, dtype=torch.float64)
    return noise.to(like.device, like.dtype)


def _scores(h: Array, x: Array, delays: int, ridge: float) -> Array:
    held_out = max(1, x.shape[1] // 4)
    # All delays are fitted on the same times, so that one factorisation serves them all.
    states = h[delays:]
    centre = states[:, held_out:].mean((0, 1))
    train = (states[:, held_out:] - centre).reshape(-1, h.shape[2])
    test = (states[:, :held_out] - centre).reshape(-1, h.shape[2])
    gram = train.T @ train
    gram[np.diag_indices(len(gram))] += ridge * np.trace(gram) / len(gram) + 1e-300
    targets = np.stack([x[delays - k : len(x) - k] for k in range(delays + 1)], axis=2)
    fit = targets[:, held_out:].reshape(len(train), -1)
    weights = np.linalg.solve(gram, train.T @ (fit - fit.mean(0)))
    wanted = targets[:, :held_out].reshape(len(test), -1)
    missed = ((wanted - fit.mean(0) - test @ weights) ** 2).sum(0)
    spread = ((wanted - wanted.mean(0)) ** 2).sum(0)
    shares = 1 - missed / np.where(spread > 0, spread, 1.0)
    return np.clip(shares.reshape(delays + 1, -1).mean(1), 0.0, 1.0)
