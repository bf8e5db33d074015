"""Gradient flow: how large ‖∂L/∂h_t‖ is at every step t of a sequence, or at every depth.

The gradient is taken with respect to the whole state of every layer after step t. For modules
without an accessible state it is taken with respect to their inputs. Networks without a time axis,
whose state flows through layers or an ODE, are measured over depth: an ODE is solved segment by
segment, so that the state between two segments is a tensor with a gradient; for a residual network
it is the state before each of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import instruments
from undamped.analysis.core import Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import line_style, positive
from undamped.analysis.core.gradients import Loss, input_gradients, state_gradients
from undamped.analysis.core.statistics import Trend, log_trend
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.unrolled import State, evaluating, network_inside, separate, unroll
from undamped.models.sequence_model import SequenceModel
from undamped.ode.flows.continuous_flow import ContinuousFlow, FlowResult
from undamped.ode.flows.solving import SolvingModule, Waypoint, Waypoints
from undamped.ode.flows.stable_residual import StableResidual

Array = NDArray[Any]
Verdict = Literal["vanish", "explode", "steady"]


@instruments.register("gradient_flow")
@dataclass(frozen=True)
class GradientFlow(Result):
    """The norm of the gradient at every step, or at every depth of a model without time.

    `norms[i]` is the mean over the batch of ‖∂L/∂h‖ for the state after step `steps[i]` (or, when
    `through` is "inputs", for the input at that step); `per_layer` has one row per layer, `low`,
    `median` and `high` are the 10 %, 50 % and 90 % quantiles over the batch. `trend.rate` is the
    slope of log(norms) per step forward in time, so a positive rate means that the gradient decays
    backwards in time. `horizon` counts the steps, from the end backwards, over which the norm stays
    at or above `fraction` of its value at the end. The input of the last step does not
    propagate in time (in a Transformer it bypasses attention), so for inputs the end is the step
    before it. `read_as` states which axis of the inputs is time.
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

    question = "How large is the gradient at every step: do gradients vanish or explode?"
    page_order = 30

    @classmethod
    def measure(cls, probe: Probe) -> GradientFlow:
        """Measure the gradient over time, or over depth for models without a time axis."""
        options = {"loss": probe.loss, "fraction": probe.fraction, "name": probe.name}
        if probe.in_depth:
            return depth_flow(probe.model, probe.inputs, seed=probe.seed, **options)
        probe.require_sequences()
        return gradient_flow(probe.model, probe.inputs, batch_first=probe.axis, **options)

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.norms)

    @property
    def sentence(self) -> str:
        factor = np.exp(-self.trend.rate)
        interval = f"{np.exp(-self.trend.high):.4g} to {np.exp(-self.trend.low):.4g}"
        verdict = {
            "vanish": "Gradients vanish",
            "explode": "Gradients explode",
            "steady": "Gradients stay steady",
        }[self.verdict]
        reading = f" ({self.read_as})" if self.read_as else ""
        return (
            f"{verdict}: they reach {self.horizon} of {self.length} steps{reading} and change by a "
            f"factor of {factor:.4g} per step back (95 % confidence interval {interval})."
        )

    @property
    def layout(self) -> Layout:
        return Layout(
            "Gradient flow",
            "step t",
            f"‖∂L/∂{'h' if self.through == 'states' else 'x'}(t)‖",
            "A flat line carries the gradient back to the first step; where it falls to the left, "
            "earlier steps cannot be learned from. Twelve decades are visible, all after "
            "a double click.",
            log_y=True,
            decades=12,
        )

    def traces(self, style: Style) -> list[Trace]:
        """The mean over the batch; for a single model also quantiles and layers."""
        lines = [style.line(self.steps, positive(self.norms), "mean over the batch")]
        if not style.single:
            return lines
        lines.append(style.line(self.steps, positive(self.median), "median", 1))
        faint = {"color": line_style(1)["color"], "width": 1, "dash": "dot"}
        for values, label in ((self.low, "10 %"), (self.high, "90 %")):
            lines.append(style.line(self.steps, positive(values), label, line=faint))
        if len(self.per_layer) > 1:
            for layer, values in enumerate(self.per_layer):
                lines.append(
                    style.line(self.steps, positive(values), f"layer {layer + 1}", layer + 2)
                )
        return lines


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
        module: A network or model of this library, `torch.nn.RNN`, `LSTM` or `GRU`, any module
            called as `(x, state) -> (y, state)`, or any other module that takes a sequence.
        inputs: Its inputs: (time, batch, features), or (batch, time, features);
            (time, features) is a batch of one.
        loss: A function of the module's output that returns a scalar. By default the output at
            the last step is projected on a fixed random direction of length one.
        fraction: The horizon ends where the gradient falls below this fraction of its value at
            the end; beyond its reciprocal it counts as exploding.
        seed: Seed of the random direction.
        name: Name of the module in figures and sentences.
        batch_first: Whether the inputs are (batch, time, features). By default the `batch_first`
            of the module decides, or a trial of which sequences are independent of each other.
    """
    if not 0 < fraction < 1:
        raise OptionError(f"fraction must be between 0 and 1, got {fraction}.")
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
        read_as=axes.describe(len(x), x.shape[1]),
    )


def summarise(
    per_layer: Array,
    steps: NDArray[np.int64],
    fraction: float,
    through: Literal["states", "inputs"],
    name: str,
) -> GradientFlow:
    """Return the result and verdict for norms (layers, time, batch)."""
    total = np.sqrt((per_layer**2).sum(0))
    norms = total.mean(1)
    low, median, high = np.quantile(total, [0.1, 0.5, 0.9], axis=1)
    propagated = norms[:-1] if through == "inputs" else norms
    return GradientFlow(
        norms=norms,
        steps=steps,
        per_layer=per_layer.mean(2),
        low=low,
        median=median,
        high=high,
        trend=log_trend(propagated),
        horizon=memory_horizon(propagated, fraction) + len(norms) - len(propagated),
        fraction=fraction,
        verdict=judge(propagated, fraction),
        through=through,
        name=name,
    )


def memory_horizon(norms: Array, fraction: float) -> int:
    """Count the steps from the end over which the norm stays at or above `fraction` of its end.

    Args:
        norms: Norm of the gradient at every step, in temporal order.
        fraction: Where the gradient counts as vanished.
    """
    if not norms[-1] > 0:
        return 0
    below = np.flatnonzero(~(norms[::-1] >= fraction * norms[-1]))
    return int(below[0]) if len(below) else len(norms)


def judge(norms: Array, fraction: float) -> Verdict:
    """Return whether gradients vanish, explode or stay within `fraction` and its reciprocal."""
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
            "inputs must be (time, batch, features) with at least two steps, got shape "
            f"{tuple(inputs.shape)}."
        )
    return network, x


def _head_of(module: nn.Module) -> Callable[[Tensor], Tensor] | None:
    """Return the readout of a model as a function of its network's outputs, or None."""
    if not isinstance(module, SequenceModel):
        return None

    def answer(outputs: Tensor) -> Tensor:
        readouts = {"last": lambda: outputs[-1], "mean": lambda: outputs.mean(0)}
        return module.head(readouts.get(module.readout, lambda: outputs)())

    return answer


def projection(loss: Loss | None, seed: int) -> Loss:
    """Return the loss, or the projection of the last output on a random direction.

    Args:
        loss: A function of the output, or None.
        seed: Seed of the direction.
    """
    if loss is not None:
        return loss

    def project(answer: Tensor) -> Tensor:
        # (time, batch, features), or (batch, features) of a model with one output per sequence. The
        # direction is random because the sum of a layer-normalised output is always zero.
        last = answer[-1] if answer.dim() == 3 else answer
        generator = torch.Generator().manual_seed(seed)
        direction = torch.randn(last.shape[-1], generator=generator, dtype=torch.float64)
        direction = (direction / direction.norm()).to(last.device)
        if last.is_complex():
            return (last.real * direction.to(last.real.dtype)).sum()
        return (last * direction.to(last.dtype)).sum()

    return project


Points = list[State]


def flows_in_depth(module: nn.Module) -> bool:
    """Return whether a module contains an ODE or residual layers of this library."""
    kinds = SolvingModule | StableResidual
    deep = any(isinstance(part, kinds) for part in module.modules())
    return deep or isinstance(getattr(module, "blocks", None), nn.ModuleList)


def depth_flow(
    module: nn.Module,
    inputs: Tensor,
    *,
    points: int = 24,
    loss: Loss | None = None,
    fraction: float = 0.01,
    seed: int = 0,
    name: str | None = None,
) -> GradientFlow:
    """Measure ‖∂L/∂h(s)‖ at equally spaced depths s, or before every residual block.

    Args:
        module: A model of continuous depth, a stable residual network, or a residual network
            with its `blocks`.
        inputs: Its inputs, (batch, features).
        points: Number of segments of an ODE.
        loss: A function of the output that returns a scalar; by default the projection on a fixed
            random direction.
        fraction: Where a gradient counts as vanished; see `gradient_flow`.
        seed: Seed of the random direction.
        name: Name of the module in figures.
    """
    visited: Points = []
    with evaluating(module), torch.enable_grad(), _recorded(module, points, visited):
        answer = module(inputs.detach().clone().requires_grad_())
        if loss is None and isinstance(answer, FlowResult):
            answer = answer.base  # without the log-density
        value = projection(loss, seed)(answer)
        parts = [part for state in visited for part in state]
        if not parts:
            raise OptionError(
                f"{type(module).__name__} uses no ODE or residual blocks of this library. "
                "Use gradient_flow, which also measures gradients with respect to the inputs."
            )
        gradients = iter(torch.autograd.grad(value, parts, allow_unused=True))
    norms = np.zeros((1, len(visited), len(inputs)))
    for index, state in enumerate(visited):
        squares = [_squares(next(gradients), len(inputs)) for _ in state]
        norms[0, index] = np.sqrt(sum(squares))
    depths = np.arange(len(visited))
    return summarise(norms, depths, fraction, "states", name or type(module).__name__)


def _squares(gradient: Tensor | None, batch: int) -> Any:
    if gradient is None:
        return np.zeros(batch)
    return gradient.reshape(batch, -1).abs().double().square().sum(1).cpu().numpy()


@contextmanager
def _recorded(module: nn.Module, points: int, visited: Points) -> Iterator[None]:
    with ExitStack() as stack:
        for part in module.modules():
            if isinstance(part, SolvingModule):
                # The log-density of a normalising flow is a running sum, of gradient one.
                states_only = isinstance(part, ContinuousFlow)
                waypoints = _Visited(points, visited, states_only)
                stack.enter_context(part.passing_through(waypoints))
            elif isinstance(part, StableResidual):
                stack.enter_context(_layer_by_layer(part, visited))
        blocks = getattr(module, "blocks", None)
        if isinstance(blocks, nn.ModuleList):
            for block in blocks:
                handle = block.register_forward_pre_hook(lambda _, args: visited.append((args[0],)))
                stack.callback(handle.remove)
        yield


class _Visited(Waypoints):
    """Waypoints of several ODEs, in the order of the forward pass."""

    def __init__(self, segments: int, visited: Points, first_only: bool) -> None:
        super().__init__(segments)
        self.visited, self.first_only = visited, first_only

    def append(self, waypoint: Waypoint) -> None:
        """Add the state of a waypoint to those of all ODEs."""
        self.visited.append(waypoint.state[:1] if self.first_only else waypoint.state)


@contextmanager
def _layer_by_layer(stack: StableResidual, visited: Points) -> Iterator[None]:
    """Run a stable residual network with a graph, and record each pair of states."""

    def forward(y: Tensor) -> Tensor:
        pair = _independent(stack.layers.begin(y))
        visited.append(pair)
        for layer in range(stack.layers.depth):
            pair = _independent(stack.layers.step(layer, (pair[0], pair[1])))
            visited.append(pair)
        return pair[1]

    stack.__dict__["forward"] = forward
    try:
        yield
    finally:
        del stack.__dict__["forward"]


def _independent(state: State) -> State:
    """Return the parts of a state as independent variables, also the constant ones."""
    return separate(tuple(p if p.requires_grad else p.clone().requires_grad_() for p in state))
