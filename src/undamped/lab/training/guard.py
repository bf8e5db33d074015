"""Finding out which layer stopped giving finite numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import NonFiniteError
from undamped.models.task_model import TaskModel

REMEDY = (
    "Try a smaller train.learning_rate, train.clip=1, or for oscillators a smaller model.dt; the "
    "last good weights are in the run's folder."
)


def _finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    if isinstance(value, list | tuple):
        return all(_finite(part) for part in value)
    return True


def check_loss(loss: Tensor, step: int, model: TaskModel, batch: Batch) -> None:
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
    # A not-a-number beats every size; otherwise the largest entry made the norm overflow.
    sizes = {
        name: torch.nan_to_num(parameter.grad, nan=math.inf).abs().max().item()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    raise NonFiniteError(
        f"step {step}: expected finite gradients, got {norm.item()}, the worst in the gradient of "
        f"{max(reversed(sizes), key=sizes.__getitem__)}. {REMEDY}"
    )


@torch.no_grad()
def _first_bad_layer(model: TaskModel, batch: Batch) -> str:
    """Run the batch again, part by part; the first part that goes wrong is the answer."""
    for name, parameter in model.named_parameters():
        if not _finite(parameter):
            return f"the weights {name}"
    inputs = batch.expanded().inputs
    if not _finite(inputs if batch.observed is None else inputs[batch.observed]):
        return "the input data"
    for name, part in model.parts_for_guard(batch):
        if not _finite(part):
            return name
    return "the loss itself"
