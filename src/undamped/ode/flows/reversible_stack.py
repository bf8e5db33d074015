"""Back-propagation through a stack of layers that are undone instead of stored."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from undamped._base.errors import explain
from undamped.ode.gradients.refused import refuse_gradients

Pair = tuple[Tensor, Tensor]
Own = tuple[Tensor, ...]
_TWICE = explain(
    "gradients of gradients",
    expected="reversible=False",
    got="reversible=True, whose backward pass is not differentiable",
    remedy="Build the StableResidual with reversible=False, or set its `reversible` to False.",
)


class InvertibleLayers(Protocol):
    """Layers that can be applied and taken back, with parameters given from outside."""

    def step(self, layer: int, pair: Pair, own: Own | None = None) -> Pair:
        """Apply a layer."""
        ...

    def undo(self, layer: int, pair: Pair, own: Own | None = None) -> Pair:
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
        for layer, own in enumerate(zip(*(stack.unbind() for stack in stacks), strict=True)):
            pair = layers.step(layer, pair, own)
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
            found = _pull_back(ctx.layers, saved[:2], saved[2:], gradients, needed)
        return None, *refuse_gradients(found, (*gradients, *saved), _TWICE)


def _pull_back(
    layers: InvertibleLayers,
    pair: Pair,
    stacks: tuple[Tensor, ...],
    gradients: tuple[Tensor, ...],
    needed: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Return the gradients of the first pair and of every stack of parameters that needs one."""
    totals = [torch.zeros_like(s) if n else None for s, n in zip(stacks, needed, strict=True)]
    wanted = [total for total in totals if total is not None]
    pull = gradients
    for layer in reversed(range(len(stacks[0]))):
        # Slices as leaves: a gradient through `stack[layer]` would have the size of the stack.
        own = tuple(stack[layer].detach() for stack in stacks)
        pair = layers.undo(layer, pair, own)
        with torch.enable_grad():
            before = (pair[0].detach().requires_grad_(), pair[1].detach().requires_grad_())
            own = tuple(part.requires_grad_(n) for part, n in zip(own, needed, strict=True))
            after = layers.step(layer, before, own)
        leaves = [*before, *(part for part in own if part.requires_grad)]
        found = torch.autograd.grad(after, leaves, pull, materialize_grads=True)
        pull = found[:2]
        for total, part in zip(wanted, found[2:], strict=True):
            total[layer] = part
    return *pull, *totals
