"""Gradients with respect to the states of a long sequence, or to its inputs.

Only one chunk of steps has a graph at any time: states are stored at the borders of the chunks,
each chunk is recomputed from its border, and the gradient is passed on from the following chunk. At
every border it is scaled to norm one and the logarithm of its norm is accumulated, so that a
gradient of 1e-200 does not underflow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped.analysis.core.unrolled import State, Unrolled

Array = NDArray[Any]
Loss = Callable[[Tensor], Tensor]
CHUNK = 32


def input_gradients(
    module: nn.Module, inputs: Tensor, loss: Loss, *, batch_first: bool = False
) -> NDArray[np.float64]:
    """Return ‖∂L/∂x_t‖ as (1, time, batch), for modules whose state is not accessible.

    Integer inputs have no gradient; for them it is measured at the output of the module's first
    embedding.

    Args:
        module: Any module that takes a sequence and returns a tensor, or a tuple that starts
            with one.
        inputs: (time, batch, …), or (batch, time, …).
        loss: A function of the module's output, time first, that returns a scalar.
        batch_first: Whether inputs and outputs have the batch first.
    """
    with torch.enable_grad():
        if inputs.is_floating_point():
            leaf = inputs.detach().clone().requires_grad_()
            output = first_tensor(module(leaf))
        else:
            leaf, output = _through_embedding(module, inputs)
        if batch_first and output.dim() == 3:
            output = output.transpose(0, 1)
        (gradient,) = torch.autograd.grad(loss(output), leaf, allow_unused=True)
    if gradient is None:
        gradient = torch.zeros_like(leaf)
    if inputs.dim() == 2 and inputs.is_floating_point():
        gradient = gradient.unsqueeze(1)
    elif batch_first:
        gradient = gradient.transpose(0, 1)
    norms = gradient.flatten(2).abs().double().square().sum(2).sqrt()
    return norms.cpu().numpy()[None]


def first_tensor(output: Any) -> Tensor:
    """Return the output of a module, or else the first tensor of its tuple or dictionary."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        output = list(output.values())
    if isinstance(output, list | tuple) and output:
        return first_tensor(output[0])
    raise OptionError(
        "The module must return a tensor, or a tuple or dictionary that starts with one, got "
        f"{type(output).__name__}. Wrap it in a module that returns its outputs as a tensor."
    )


def _through_embedding(module: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    embedding = next((p for p in module.modules() if isinstance(p, nn.Embedding)), None)
    if embedding is None:
        raise OptionError(
            f"Inputs of type {inputs.dtype} have no gradient, and the module has no embedding. "
            "Give floating-point inputs."
        )
    leaves: list[Tensor] = []

    def replace_output(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        if leaves:
            return output
        leaves.append(output.detach().requires_grad_())
        return leaves[0]

    handle = embedding.register_forward_hook(replace_output)
    try:
        output = first_tensor(module(inputs))
    finally:
        handle.remove()
    return leaves[0], output


def state_gradients(
    unrolled: Unrolled, x: Tensor, head: Callable[[Tensor], Tensor] | None, loss: Loss
) -> tuple[Array, NDArray[np.int64]]:
    """Return the norms of the gradients (layers, time, batch), and the step of each state.

    Args:
        unrolled: The network, step by step.
        x: Its input (time, batch, features).
        head: What a whole model computes from the network's outputs, or None.
        loss: A function of the model's output that returns a scalar.
    """
    unrolled.prepare()
    steps, batch = x.shape[:2]
    borders, outputs = _forward(unrolled, x)
    injected = _output_gradients(outputs, head, loss)
    norms = np.zeros((unrolled.layers, steps, batch))
    carry: list[State] | None = None
    scale = np.zeros(batch)  # logarithm of the factor by which the carry was divided
    for start in range((steps - 1) // CHUNK * CHUNK, -1, -CHUNK):
        stop = min(start + CHUNK, steps)
        grad_outputs = injected[start:stop]
        if carry is not None and bool((grad_outputs != 0).any()):
            # New gradient enters here: both must have the same scale.
            carry, scale = _multiply(carry, np.exp(scale), batch), np.zeros(batch)
        gradients, carry = _chunk(unrolled, x[start:stop], borders[start], carry, grad_outputs)
        for offset, states in enumerate(gradients):
            for layer, parts in enumerate(states):
                norms[layer, start + offset] = _norm(parts, batch) * np.exp(scale)
        carry, scale = _rescale(carry, scale, batch)
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
                f"The loss must return a scalar, got a tensor of shape {tuple(value.shape)}. "
                "Sum or average it."
            )
        return torch.autograd.grad(value.reshape(()), leaf)[0]


def _chunk(
    unrolled: Unrolled,
    x: Tensor,
    border: list[State],
    carry: list[State] | None,
    grad_outputs: Tensor,
) -> tuple[list[list[State]], list[State]]:
    """Recompute one chunk with a graph.

    Return the gradient of every state of the chunk, and that of the state it starts from.
    """
    states = [tuple(_leaf(part) for part in parts) for parts in border]
    first, visited, outputs = states, [], []
    with torch.enable_grad():
        for x_t in x:
            entering = states
            output, states = unrolled.step(x_t, states)
            visited.append(states if unrolled.output_is_state else entering)
            outputs.append(output)
        ends, weights = [*outputs], [*grad_outputs]
        if carry is not None:
            ends += _parts(states)
            weights += _parts(carry)
        gradients = _gradients(ends, weights, [*visited, first])
    return gradients[:-1], gradients[-1]


def _gradients(
    ends: list[Tensor], weights: list[Tensor], points: list[list[State]]
) -> list[list[State]]:
    """Return the gradient of Σ ends · weights with respect to every state, zeros if independent."""
    used = [(end, weight) for end, weight in zip(ends, weights, strict=True) if end.requires_grad]
    leaves = [part for point in points for part in _parts(point) if part.requires_grad]
    gradients = torch.autograd.grad(
        [end for end, _ in used], leaves, [weight for _, weight in used], allow_unused=True
    )
    by_part = {id(part): gradient for part, gradient in zip(leaves, gradients, strict=True)}

    def gradient_of(part: Tensor) -> Tensor:
        gradient = by_part.get(id(part))
        return torch.zeros_like(part) if gradient is None else gradient

    return [[tuple(gradient_of(part) for part in parts) for parts in point] for point in points]


def _is_differentiable(part: Tensor) -> bool:
    return part.is_floating_point() or part.is_complex()


def _leaf(part: Tensor) -> Tensor:
    return part.detach().clone().requires_grad_() if _is_differentiable(part) else part


def _parts(states: list[State]) -> list[Tensor]:
    return [part for parts in states for part in parts]


def batch_axis(part: Tensor, batch: int) -> int:
    """Return the batch axis of a state: the last but one, or the first axis of that size."""
    if part.dim() > 1 and part.shape[-2] == batch:
        return part.dim() - 2
    return next((axis for axis, size in enumerate(part.shape) if size == batch), 0)


def _norm(parts: State, batch: int) -> Array:
    """Return the norm of a state's gradient for each sequence."""
    total = np.zeros(batch)
    for part in parts:
        if _is_differentiable(part):
            flat = part.movedim(batch_axis(part, batch), 0).reshape(batch, -1)
            total += flat.abs().double().square().sum(1).cpu().numpy()
    return np.sqrt(total)


def _rescale(carry: list[State], scale: Array, batch: int) -> tuple[list[State], Array]:
    """Scale each sequence's gradient to norm one, and add the logarithm of the norm to `scale`."""
    size = np.sqrt(sum(_norm(parts, batch) ** 2 for parts in carry))
    usable = np.isfinite(size) & (size > 0)
    factor = np.where(usable, size, 1.0)
    return _multiply(carry, 1 / factor, batch), scale + np.log(factor)


def _multiply(carry: list[State], factor: Array, batch: int) -> list[State]:
    def times(part: Tensor) -> Tensor:
        if not _is_differentiable(part):
            return part
        shape = [1] * part.dim()
        shape[batch_axis(part, batch)] = batch
        return part * torch.from_numpy(factor).to(part.device, part.real.dtype).reshape(shape)

    return [tuple(times(p) for p in parts) for parts in carry]
