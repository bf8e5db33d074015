"""Gradient flow: how large ‖∂L/∂h_t‖ is at every step t of a sequence.

The gradient is taken with respect to the whole state of every layer after step t. Only one chunk
of steps has a graph at any time: states are kept at the chunk's borders, each chunk is computed
again from its border, and the gradient is carried over from the chunk behind it. It is brought
back to length one at every border and its logarithm kept, so that a gradient of 1e-200 is
measured as that and not as zero. Modules without a visible state are read through their inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped.analysis.figures import add_line, line_style, new_figure
from undamped.analysis.input_gradients import input_gradients
from undamped.analysis.result import Result
from undamped.analysis.trend import Trend, log_trend
from undamped.analysis.unrolled import State, Unrolled, evaluating, network_inside, unroll
from undamped.errors import OptionError, ShapeError, explain
from undamped.networks import SequenceModel

Array = NDArray[Any]
Loss = Callable[[Tensor], Tensor]
Verdict = Literal["vanish", "explode", "steady"]
CHUNK = 32


@dataclass(frozen=True)
class GradientFlow(Result):
    """The norm of the gradient at every step.

    `norms[i]` is the mean over the batch of ‖∂L/∂h‖ for the state after step `steps[i]` (or, when
    `through` is "inputs", for the input at that step); `per_layer` has one row per layer, `low`,
    `median` and `high` are the 10 %, 50 % and 90 % quantiles over the batch. `trend.rate` is the
    slope of log(norms) per step forward in time, so a positive one means that the gradient decays
    on its way back. `horizon` counts the steps, from the end backwards, over which the norm stays
    at or above `fraction` of its value at the end. The input of the last step does not travel in
    time (in a Transformer it has a path of its own, around all attention), so for inputs the end
    is the step before it.
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

    @property
    def length(self) -> int:
        """Number of steps that were looked at."""
        return len(self.norms)

    @property
    def decay_rate(self) -> float:
        """Relative loss per step back in time: 0.1 means a factor of e^−0.1 a step."""
        return self.trend.rate

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
        return (
            f"{words}: they reach {self.horizon} of {self.length} steps and change by a factor "
            f"of {factor:.4g} per step back in time (95 % interval {span})."
        )

    def plot(self) -> Any:
        """Draw the norm against the step, on a log axis."""
        kind = "state" if self.through == "states" else "input"
        figure = new_figure(
            f"Gradient flow: {self.name}",
            "step t [steps]",
            f"‖∂L/∂{'h' if kind == 'state' else 'x'}_t‖",
            self.sentence,
            log_y=True,
        )
        add_line(figure, self.steps, self.norms, "mean over the batch", 0)
        add_line(figure, self.steps, self.median, "median", 1)
        for values, label in ((self.low, "10 %"), (self.high, "90 %")):
            figure.add_scatter(
                x=self.steps.tolist(),
                y=values.tolist(),
                name=label,
                mode="lines",
                line={"color": line_style(1)["color"], "width": 1, "dash": "dot"},
            )
        if len(self.per_layer) > 1:
            for layer, values in enumerate(self.per_layer):
                add_line(figure, self.steps, values, f"layer {layer + 1}", layer + 2)
        return figure


def gradient_flow(
    module: nn.Module,
    inputs: Tensor,
    *,
    loss: Loss | None = None,
    fraction: float = 0.01,
    seed: int = 0,
    name: str | None = None,
) -> GradientFlow:
    """Measure ‖∂L/∂h_t‖ for every step t.

    Args:
        module: One of our networks or models, `torch.nn.RNN`, `LSTM` or `GRU`, any module called
            as `(x, state) -> (y, state)`, or any module at all that takes a sequence.
        inputs: What the module takes: (time, batch, features), or (batch, time, features) if it
            says `batch_first`; (time, features) is a batch of one.
        loss: A function of the module's answer that returns one number. If none, the answer at
            the last step is projected on a fixed random direction of length one.
        fraction: The horizon ends where the gradient falls below this fraction of its value at
            the end; beyond its reciprocal it counts as exploding.
        seed: Seed of the random direction.
        name: What to call the module in plots and sentences.
    """
    if not 0 < fraction < 1:
        raise OptionError(
            explain("fraction", expected="above 0 and below 1", got=fraction, remedy="Try 0.01.")
        )
    network, x = _time_first(module, inputs)
    title = name or type(network).__name__
    with evaluating(module):
        unrolled = unroll(network, x)
        if unrolled is None:
            per_layer = input_gradients(module, inputs, _reduction(loss, seed))
            steps = np.arange(per_layer.shape[1])
            through: Literal["states", "inputs"] = "inputs"
        else:
            head = _head_of(module)
            per_layer, steps = _through_states(unrolled, x, head, _reduction(loss, seed))
            through = "states"
    return summarise(per_layer, steps, fraction, through, title)


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


def _time_first(module: nn.Module, inputs: Tensor) -> tuple[nn.Module, Tensor]:
    network, x = network_inside(module, inputs)
    if x.dim() == 2 and x.is_floating_point():
        x = x.unsqueeze(1)
    elif getattr(network, "batch_first", False) and x.dim() == 3:
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


def _reduction(loss: Loss | None, seed: int) -> Loss:
    """Return the loss, or the projection of the last answer on a random direction."""
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


def _through_states(
    unrolled: Unrolled, x: Tensor, head: Callable[[Tensor], Tensor] | None, loss: Loss
) -> tuple[Array, NDArray[np.int64]]:
    """Return norms (layers, time, batch) and the step after which each state stands."""
    unrolled.prepare()
    steps, batch = x.shape[:2]
    borders, outputs = _forward(unrolled, x)
    injected = _output_gradients(outputs, head, loss)
    norms = np.zeros((unrolled.layers, steps, batch))
    carried: list[State] | None = None
    scale = np.zeros(batch)  # logarithm of the factor taken out of the carried gradient
    for start in range((steps - 1) // CHUNK * CHUNK, -1, -CHUNK):
        stop = min(start + CHUNK, steps)
        below = injected[start:stop]
        if carried is not None and bool((below != 0).any()):
            # New gradient enters here: both have to be counted in the same unit.
            carried, scale = _multiply(carried, np.exp(scale), batch), np.zeros(batch)
        gradients, carried = _chunk(unrolled, x[start:stop], borders[start], carried, below)
        for offset, states in enumerate(gradients):
            for layer, parts in enumerate(states):
                norms[layer, start + offset] = _norm(parts, batch) * np.exp(scale)
        carried, scale = _rescale(carried, scale, batch)
    after = np.arange(steps) if unrolled.output_is_state else np.arange(steps) - 1
    return norms, after


def _forward(unrolled: Unrolled, x: Tensor) -> tuple[dict[int, list[State]], Tensor]:
    borders, outputs = {}, []
    with torch.no_grad():
        states = unrolled.initial(x.shape[1], x)
        for t in range(x.shape[0]):
            if t % CHUNK == 0:
                borders[t] = states
            output, states = unrolled.step(x[t], states)
            outputs.append(output)
    return borders, torch.stack(outputs)


def _output_gradients(
    outputs: Tensor, head: Callable[[Tensor], Tensor] | None, loss: Loss
) -> Tensor:
    leaf = outputs.detach().requires_grad_()
    with torch.enable_grad():
        value = loss(head(leaf) if head is not None else leaf)
        if value.numel() != 1:
            raise ShapeError(
                explain(
                    "loss",
                    expected="one number",
                    got=f"a tensor of shape {tuple(value.shape)}",
                    remedy="Sum or average what the loss returns.",
                )
            )
        return torch.autograd.grad(value.reshape(()), leaf)[0]


def _chunk(
    unrolled: Unrolled,
    x: Tensor,
    border: list[State],
    carried: list[State] | None,
    injected: Tensor,
) -> tuple[list[list[State]], list[State]]:
    """Go through one chunk again with a graph.

    Return the gradient of every state of the chunk, and that of the state it started from.
    """
    states = [tuple(_leaf(part) for part in parts) for parts in border]
    first, visited, outputs = states, [], []
    with torch.enable_grad():
        for x_t in x:
            entering = states
            output, states = unrolled.step(x_t, states)
            visited.append(states if unrolled.output_is_state else entering)
            outputs.append(output)
        ends, weights = list(outputs), list(injected)
        if carried is not None:
            for part, gradient in zip(_parts(states), _parts(carried), strict=True):
                if part.requires_grad:
                    ends.append(part)
                    weights.append(gradient)
        pairs = [(e, w) for e, w in zip(ends, weights, strict=True) if e.requires_grad]
        wanted = [p for point in [*visited, first] for p in _parts(point)]
        asked = [p for p in wanted if p.requires_grad]
        found = torch.autograd.grad(
            [e for e, _ in pairs], asked, [w for _, w in pairs], allow_unused=True
        )
    by_part = {id(part): gradient for part, gradient in zip(asked, found, strict=True)}

    def gradient_of(part: Tensor) -> Tensor:
        gradient = by_part.get(id(part))
        return torch.zeros_like(part) if gradient is None else gradient

    answers = [
        [tuple(gradient_of(part) for part in parts) for parts in point]
        for point in [*visited, first]
    ]
    return answers[:-1], answers[-1]


def _leaf(part: Tensor) -> Tensor:
    differentiable = part.is_floating_point() or part.is_complex()
    return part.detach().clone().requires_grad_() if differentiable else part


def _parts(states: list[State]) -> list[Tensor]:
    return [part for parts in states for part in parts]


def batch_axis(part: Tensor, batch: int) -> int:
    """Say which axis of a state counts the sequences: the last but one, or the one that fits."""
    if part.dim() > 1 and part.shape[-2] == batch:
        return part.dim() - 2
    return next((axis for axis, size in enumerate(part.shape) if size == batch), 0)


def _norm(parts: State, batch: int) -> Array:
    """Return the norm of a state's gradient for each sequence."""
    total = np.zeros(batch)
    for part in parts:
        if part.is_floating_point() or part.is_complex():
            flat = part.movedim(batch_axis(part, batch), 0).reshape(batch, -1)
            total += flat.abs().double().square().sum(1).cpu().numpy()
    return np.sqrt(total)


def _rescale(carried: list[State], scale: Array, batch: int) -> tuple[list[State], Array]:
    """Bring each sequence's gradient to length one and remember the factor."""
    size = np.sqrt(sum(_norm(parts, batch) ** 2 for parts in carried))
    usable = np.isfinite(size) & (size > 0)
    factor = np.where(usable, size, 1.0)
    return _multiply(carried, 1 / factor, batch), scale + np.log(factor)


def _multiply(carried: list[State], factor: Array, batch: int) -> list[State]:
    def times(part: Tensor) -> Tensor:
        if not (part.is_floating_point() or part.is_complex()):
            return part
        shape = [1] * part.dim()
        shape[batch_axis(part, batch)] = batch
        return part * torch.from_numpy(factor).to(part.device, part.real.dtype).reshape(shape)

    return [tuple(times(p) for p in parts) for parts in carried]
