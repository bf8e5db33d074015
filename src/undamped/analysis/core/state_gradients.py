"""The gradient of every state of a long sequence, without a graph of the whole of it.

Only one chunk of steps has a graph at any time: states are kept at the chunk's borders, each chunk
is computed again from its border, and the gradient is carried over from the chunk behind it. It is
brought back to length one at every border and its logarithm kept, so that a gradient of 1e-200 is
measured as that and not as zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undamped._base.errors import ShapeError, explain
from undamped.analysis.core.unrolled import State, Unrolled

Array = NDArray[Any]
Loss = Callable[[Tensor], Tensor]
CHUNK = 32


def state_gradients(
    unrolled: Unrolled, x: Tensor, head: Callable[[Tensor], Tensor] | None, loss: Loss
) -> tuple[Array, NDArray[np.int64]]:
    """Return norms (layers, time, batch) and the step after which each state stands.

    Args:
        unrolled: The network, step by step.
        x: Its input (time, batch, features).
        head: What a whole model makes of the network's outputs, or none.
        loss: A function of the answer that returns one number.
    """
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
        ends, weights = [*outputs], [*injected]
        if carried is not None:
            ends += _parts(states)
            weights += _parts(carried)
        points = [*visited, first]
        answers = _gradients(ends, weights, points)
    return answers[:-1], answers[-1]


def _gradients(
    ends: list[Tensor], weights: list[Tensor], points: list[list[State]]
) -> list[list[State]]:
    """Return the gradient of Σ ends · weights to every state; zeros where it does not depend."""
    used = [(end, weight) for end, weight in zip(ends, weights, strict=True) if end.requires_grad]
    asked = [part for point in points for part in _parts(point) if part.requires_grad]
    found = torch.autograd.grad(
        [end for end, _ in used], asked, [weight for _, weight in used], allow_unused=True
    )
    by_part = {id(part): gradient for part, gradient in zip(asked, found, strict=True)}

    def gradient_of(part: Tensor) -> Tensor:
        gradient = by_part.get(id(part))
        return torch.zeros_like(part) if gradient is None else gradient

    return [[tuple(gradient_of(part) for part in parts) for parts in point] for point in points]


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
