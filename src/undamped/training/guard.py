"""Finding out which layer stopped giving finite numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped.errors import NonFiniteError
from undamped.tasks.task import Batch

REMEDY = (
    "Try a smaller train.learning_rate, train.clip=1, or for oscillators a smaller model.dt; the "
    "last good weights are kept."
)


def _finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    if isinstance(value, list | tuple):
        return all(_finite(part) for part in value)
    return True


def check_loss(loss: Tensor, step: int, model: nn.Module, batch: Batch) -> None:
    """Stop at a loss that is not finite and name the first layer that went wrong."""
    if math.isfinite(loss.item()):
        return
    raise NonFiniteError(
        f"step {step}: expected a finite loss, got {loss.item()}, first seen in "
        f"{_first_bad_layer(model, batch)}. {REMEDY}"
    )


def check_gradient(norm: Tensor, step: int, model: nn.Module) -> None:
    """Stop at a gradient that is not finite and name the parameters it belongs to."""
    if math.isfinite(norm.item()):
        return
    bad = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and not _finite(parameter.grad)
    ]
    where = f"the gradient of {bad[-1]}" if bad else "the norm of all gradients together"
    raise NonFiniteError(
        f"step {step}: expected finite gradients, got {norm.item()} in {where}. {REMEDY}"
    )


@torch.no_grad()
def _first_bad_layer(model: nn.Module, batch: Batch) -> str:
    """Run the batch again and watch every module's output; the first bad one is the answer."""
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            return f"the weights {name}"
    if not _finite(batch.inputs):
        return "the input data"
    found: list[str] = []

    def watch(name: str) -> Any:
        def hook(_module: nn.Module, _inputs: Any, output: Any) -> None:
            if not found and not _finite(output):
                found.append(f"the output of {name}")

        return hook

    handles = [m.register_forward_hook(watch(n)) for n, m in model.named_modules() if n]
    try:
        model(batch.inputs, batch.lengths)
    finally:
        for handle in handles:
            handle.remove()
    return found[0] if found else "the loss itself"
