"""Gradients to the inputs: what can be seen of a module that shows no state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain


def input_gradients(
    module: nn.Module,
    inputs: Tensor,
    loss: Callable[[Tensor], Tensor],
    *,
    batch_first: bool = False,
) -> NDArray[np.float64]:
    """Return ‖∂L/∂x_t‖ as (1, time, batch).

    Whole numbers have no gradient; for a module that takes them it is measured at the output of
    its first embedding.

    Args:
        module: Any module that takes a sequence and returns a tensor, or a tuple that starts
            with one.
        inputs: (time, batch, …), or (batch, time, …).
        loss: A function of the answer, time first, that returns one number.
        batch_first: Whether inputs and answers have the batch first.
    """
    with torch.enable_grad():
        if inputs.is_floating_point():
            leaf = inputs.detach().clone().requires_grad_()
            answer = first_tensor(module(leaf))
        else:
            leaf, answer = _through_embedding(module, inputs)
        if batch_first and answer.dim() == 3:
            answer = answer.transpose(0, 1)
        (gradient,) = torch.autograd.grad(loss(answer), leaf, allow_unused=True)
    if gradient is None:
        gradient = torch.zeros_like(leaf)
    if inputs.dim() == 2 and inputs.is_floating_point():
        gradient = gradient.unsqueeze(1)
    elif batch_first:
        gradient = gradient.transpose(0, 1)
    norms = gradient.flatten(2).abs().double().square().sum(2).sqrt()
    return norms.cpu().numpy()[None]


def first_tensor(answer: Any) -> Tensor:
    """Return the tensor that a module's answer is or begins with."""
    if isinstance(answer, Tensor):
        return answer
    if isinstance(answer, list | tuple) and answer:
        return first_tensor(answer[0])
    raise OptionError(
        explain(
            "the module's answer",
            expected="a tensor, or a tuple that begins with one",
            got=type(answer).__name__,
            remedy="Wrap the module in one that returns its outputs as a tensor.",
        )
    )


def _through_embedding(module: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor]:
    embedding = next((p for p in module.modules() if isinstance(p, nn.Embedding)), None)
    if embedding is None:
        raise OptionError(
            explain(
                "inputs",
                expected="numbers with a gradient, or a module with an embedding",
                got=f"{inputs.dtype} and no embedding",
                remedy="Give floating-point inputs.",
            )
        )
    caught: list[Tensor] = []

    def catch(_: nn.Module, __: Any, output: Tensor) -> Tensor:
        if caught:
            return output
        caught.append(output.detach().requires_grad_())
        return caught[0]

    handle = embedding.register_forward_hook(catch)
    try:
        answer = first_tensor(module(inputs))
    finally:
        handle.remove()
    return caught[0], answer
