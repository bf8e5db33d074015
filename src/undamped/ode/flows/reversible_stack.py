"""Back-propagation through a stack of layers that are undone instead of stored."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from undamped.ode.gradients.refused import refuse_gradients

Pair = tuple[Tensor, Tensor]
Parameters = tuple[Tensor, ...]
_TWICE = (
    "Gradients of gradients need reversible=False, since the backward pass of reversible=True "
    "cannot be differentiated. Build the StableResidual with reversible=False, or set its "
    "`reversible` to False."
)


class InvertibleLayers(Protocol):
    """Layers that can be applied and taken back, with parameters given from outside."""

    def step(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        """Apply a layer."""
        ...

    def undo(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        """Take a layer back."""
        ...


class ReversibleStack(torch.autograd.Function):
    """All layers, keeping only the last pair; the backward pass undoes them one by one.

    The parameters are inputs, and saved: the backward pass uses the very tensors of the forward
    pass, and torch notices when one was changed in between.
    """

    @staticmethod
    def forward(ctx: Any, layers: InvertibleLayers, a: Tensor, b: Tensor, *stacks: Tensor) -> Pair:
        """Apply all layers to a pair of states."""
        pair: Pair = (a, b)
        for layer, parameters in enumerate(zip(*(stack.unbind() for stack in stacks), strict=True)):
            pair = layers.step(layer, pair, parameters)
        ctx.layers = layers
        ctx.save_for_backward(*pair, *stacks)
        return pair

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        """Undo them, gathering gradients."""
        saved = ctx.saved_tensors
        needed = ctx.needs_input_grad[3:]
        with torch.no_grad():
            totals = _backward(ctx.layers, saved[:2], saved[2:], gradients, needed)
        return None, *refuse_gradients(totals, (*gradients, *saved), _TWICE)


def _backward(
    layers: InvertibleLayers,
    pair: Pair,
    stacks: tuple[Tensor, ...],
    gradients: tuple[Tensor, ...],
    needed: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the first pair and of every stack of parameters that needs one."""
    totals = [torch.zeros_like(s) if n else None for s, n in zip(stacks, needed, strict=True)]
    required = [total for total in totals if total is not None]
    grad_pair = gradients
    for layer in reversed(range(len(stacks[0]))):
        # Slices as leaves: a gradient through `stack[layer]` would have the size of the stack.
        parameters = tuple(stack[layer].detach() for stack in stacks)
        pair = layers.undo(layer, pair, parameters)
        with torch.enable_grad():
            before = (pair[0].detach().requires_grad_(), pair[1].detach().requires_grad_())
            parameters = tuple(
                part.requires_grad_(n) for part, n in zip(parameters, needed, strict=True)
            )
            after = layers.step(layer, before, parameters)
        leaves = [*before, *(part for part in parameters if part.requires_grad)]
        grads = torch.autograd.grad(after, leaves, grad_pair, materialize_grads=True)
        grad_pair = grads[:2]
        for total, part in zip(required, grads[2:], strict=True):
            total[layer] = part
    return *grad_pair, *totals
