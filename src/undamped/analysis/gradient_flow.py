"""Gradient flow: how large ‖∂L/∂h_t‖ is at every step t of a sequence.

The gradient is taken with respect to the whole state of every layer after step t. Modules without
a visible state are read through their inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.registry import instruments
from undamped.analysis.core.figures import line_style
from undamped.analysis.core.input_gradients import input_gradients
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.probe import Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.state_gradients import Loss, state_gradients
from undamped.analysis.core.style import Style, Trace, positive
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.trend import Trend, log_trend
from undamped.analysis.core.unrolled import evaluating, network_inside, unroll
from undamped.models.sequence_model import SequenceModel

Array = NDArray[Any]
Verdict = Literal["vanish", "explode", "steady"]


@instruments.register("gradient_flow")
@dataclass(frozen=True)
class GradientFlow(Result):
    """The norm of the gradient at every step, or at every depth of a model without time.

    `norms[i]` is the mean over the batch of ‖∂L/∂h‖ for the state after step `steps[i]` (or, when
    `through` is "inputs", for the input at that step); `per_layer` has one row per layer, `low`,
    `median` and `high` are the 10 %, 50 % and 90 % quantiles over the batch. `trend.rate` is the
    slope of log(norms) per step forward in time, so a positive one means that the gradient decays
    on its way back. `horizon` counts the steps, from the end backwards, over which the norm stays
    at or above `fraction` of its value at the end. The input of the last step does not travel in
    time (in a Transformer it has a path of its own, around all attention), so for inputs the end
    is the step before it. `read_as` says which axis of the inputs was taken for time.
    """

    norms: Array
    steps: NDArray[np.int64]
    per_layer: Array
    low: Array
    median: Array
    high: Array
    trend: Trend
    horizon: int
    fraction: float
    verdict: Verdict
    through: Literal["states", "inputs"]
    name: str
    sequences: int = 0
    batch_first: bool = False
    read_as: str = ""

    question = "How large is the gradient at every step: does the error reach the beginning?"
    place = 30

    @classmethod
    def measure(cls, probe: Probe) -> GradientFlow:
        """Follow the gradient through time, or through depth where there is no time."""
        options = {"loss": probe.loss, "fraction": probe.fraction, "name": probe.name}
        if probe.in_depth:
            # It imports this module for the record it returns.
            from undamped.analysis.depth_flow import depth_flow

            return depth_flow(probe.model, probe.inputs, seed=probe.seed, **options)
        probe.in_time()
        return gradient_flow(probe.model, probe.inputs, batch_first=probe.axis, **options)

    @property
    def length(self) -> int:
        """Number of steps that were looked at."""
        return len(self.norms)

    @property
    def sentence(self) -> str:
        """The verdict in words, with its numbers."""
        factor = np.exp(-self.trend.rate)
        span = f"{np.exp(-self.trend.high):.4g} to {np.exp(-self.trend.low):.4g}"
        words = {
            "vanish": "Gradients vanish",
            "explode": "Gradients explode",
            "steady": "Gradients stay steady",
        }[self.verdict]
        read = f" ({self.read_as})" if self.read_as else ""
        return (
            f"{words}: they reach {self.horizon} of {self.length} steps{read} and change by a "
            f"factor of {factor:.4g} per step back in time (95 % interval {span})."
        )

    @property
    def layout(self) -> Layout:
        """Norm against the step, in decades."""
        return Layout(
            "Gradient flow",
            "step t",
            f"‖∂L/∂{'h' if self.through == 'states' else 'x'}(t)‖",
            "A flat line carries the error back to the beginning; a line that falls to the left "
            "has forgotten what came before. Twelve decades are shown; a double click shows all.",
            log_y=True,
            decades=12,
        )

    def traces(self, style: Style) -> list[Trace]:
        """The mean over the batch; alone, quantiles and layers too."""
        drawn = [style.line(self.steps, positive(self.norms), "mean over the batch")]
        if not style.alone:
            return drawn
        drawn.append(style.line(self.steps, positive(self.median), "median", 1))
        faint = {"color": line_style(1)["color"], "width": 1, "dash": "dot"}
        for values, label in ((self.low, "10 %"), (self.high, "90 %")):
            drawn.append(style.line(self.steps, positive(values), label, line=faint))
        if len(self.per_layer) > 1:
            for layer, values in enumerate(self.per_layer):
                drawn.append(
                    style.line(self.steps, positive(values), f"layer {layer + 1}", layer + 2)
                )
        return drawn


def gradient_flow(
    module: nn.Module,
    inputs: Tensor,
    *,
    loss: Loss | None = None,
    fraction: float = 0.01,
    seed: int = 0,
    name: str | None = None,
    batch_first: bool | None = None,
) -> GradientFlow:
    """Measure ‖∂L/∂h_t‖ for every step t.

    Args:
        module: One of our networks or models, `torch.nn.RNN`, `LSTM` or `GRU`, any module called
            as `(x, state) -> (y, state)`, or any module at all that takes a sequence.
        inputs: What the module takes: (time, batch, features), or (batch, time, features);
            (time, features) is a batch of one.
        loss: A function of the module's answer that returns one number. If none, the answer at
            the last step is projected on a fixed random direction of length one.
        fraction: The horizon ends where the gradient falls below this fraction of its value at
            the end; beyond its reciprocal it counts as exploding.
        seed: Seed of the random direction.
        name: What to call the module in plots and sentences.
        batch_first: Whether the inputs are (batch, time, features). If not given, the module's
            own `batch_first` says so, or a trial of which sequences do not depend on each other.
    """
    if not 0 < fraction < 1:
        raise OptionError(
            explain("fraction", expected="above 0 and below 1", got=fraction, remedy="Try 0.01.")
        )
    axes = layout_of(module, inputs, batch_first)
    network, x = _time_first(module, inputs, axes.batch_first)
    title = name or type(network).__name__
    with evaluating(module):
        unrolled = unroll(network, x, batch_first=axes.batch_first)
        if unrolled is None:
            per_layer = input_gradients(
                module, inputs, projection(loss, seed), batch_first=axes.batch_first
            )
            steps = np.arange(per_layer.shape[1])
            through: Literal["states", "inputs"] = "inputs"
        else:
            head = _head_of(module)
            per_layer, steps = state_gradients(unrolled, x, head, projection(loss, seed))
            through = "states"
    return replace(
        summarise(per_layer, steps, fraction, through, title),
        sequences=x.shape[1],
        batch_first=axes.batch_first,
        read_as=axes.words(len(x), x.shape[1]),
    )


def summarise(
    per_layer: Array,
    steps: NDArray[np.int64],
    fraction: float,
    through: Literal["states", "inputs"],
    name: str,
) -> GradientFlow:
    """Turn norms (layers, time, batch) into the result with its verdict."""
    whole = np.sqrt((per_layer**2).sum(0))
    norms = whole.mean(1)
    low, median, high = np.quantile(whole, [0.1, 0.5, 0.9], axis=1)
    travelling = norms[:-1] if through == "inputs" else norms
    return GradientFlow(
        norms=norms,
        steps=steps,
        per_layer=per_layer.mean(2),
        low=low,
        median=median,
        high=high,
        trend=log_trend(travelling),
        horizon=memory_horizon(travelling, fraction) + len(norms) - len(travelling),
        fraction=fraction,
        verdict=judge(travelling, fraction),
        through=through,
        name=name,
    )


def memory_horizon(norms: Array, fraction: float) -> int:
    """Count the steps from the end over which the norm stays at or above `fraction` of its end.

    Args:
        norms: Norm of the gradient at every step, in the order of time.
        fraction: Where the gradient counts as lost.
    """
    if not norms[-1] > 0:
        return 0
    lost = np.flatnonzero(~(norms[::-1] >= fraction * norms[-1]))
    return int(lost[0]) if len(lost) else len(norms)


def judge(norms: Array, fraction: float) -> Verdict:
    """Say whether gradients vanish, explode or stay within `fraction` and its reciprocal."""
    end = norms[-1]
    falls = bool((~(norms >= fraction * end)).any()) or not end > 0
    finite = bool(np.isfinite(norms).all())
    rises = not finite or bool((norms > end / fraction).any())
    if falls and rises:
        return "explode" if not finite or norms[0] > end else "vanish"
    if rises:
        return "explode"
    return "vanish" if falls else "steady"


def _time_first(module: nn.Module, inputs: Tensor, batch_first: bool) -> tuple[nn.Module, Tensor]:
    network, x = network_inside(module, inputs)
    if x.dim() == 2 and x.is_floating_point():
        x = x.unsqueeze(1)
    elif batch_first:
        x = x.transpose(0, 1)
    if x.dim() < 2 or x.shape[0] < 2:
        raise ShapeError(
            explain(
                "inputs",
                expected="(time, batch, features) with at least two steps",
                got=tuple(inputs.shape),
                remedy="Give a sequence as the module takes it.",
            )
        )
    return network, x


def _head_of(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """Return what a whole model makes of its network's outputs (time, batch, features)."""
    if not isinstance(module, SequenceModel):
        return None

    def answer(outputs: Tensor) -> Tensor:
        seen = {"last": lambda: outputs[-1], "mean": lambda: outputs.mean(0)}
        return module.head(seen.get(module.readout, lambda: outputs)())

    return answer


def projection(loss: Loss | None, seed: int) -> Loss:
    """Return the loss, or the projection of the last answer on a random direction.

    Args:
        loss: A function of the answer, or none.
        seed: Seed of the direction.
    """
    if loss is not None:
        return loss

    def project(answer: Tensor) -> Tensor:
        # (time, batch, features), or (batch, features) where a model answers once. A random
        # direction, since the sum of a layer-normalised output is always zero.
        last = answer[-1] if answer.dim() == 3 else answer
        generator = torch.Generator().manual_seed(seed)
        direction = torch.randn(last.shape[-1], generator=generator, dtype=torch.float64)
        direction = (direction / direction.norm()).to(last.device)
        if last.is_complex():
            return (last.real * direction.to(last.real.dtype)).sum()
        return (last * direction.to(last.dtype)).sum()

    return project
