"""Optimizers, parameter groups and learning rate schedules."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from undamped.lab.training.options import TrainOptions


def constrained_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of constrained matrices.

    These are the originals of `torch.nn.utils.parametrize`, except in a module with a method
    `constrained_parameters()`: some originals are not matrices.
    """
    constrained = {
        parameter for name, parameter in model.named_parameters() if "parametrizations." in name
    }
    for module in model.modules():
        listing = getattr(module, "constrained_parameters", None)
        if callable(listing):
            listed = listing()
            assert isinstance(listed, Iterable)
            constrained -= set(module.parameters())
            constrained.update(listed)
    return constrained


def parameter_groups(model: nn.Module, options: TrainOptions) -> list[dict[str, Any]]:
    """Return parameter groups by learning rate and weight decay.

    A module may have a method `decayed_parameters()`, which returns a dictionary of parameters and
    their weight decay.
    """
    constrained = constrained_parameters(model)
    decays: dict[nn.Parameter, float] = {}
    for module in model.modules():
        listing = getattr(module, "decayed_parameters", None)
        if callable(listing):
            listed = listing()
            assert isinstance(listed, dict)
            decays.update(listed)
    slow = options.constrained_learning_rate or options.learning_rate / 10
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        is_constrained = parameter in constrained
        rate = slow if is_constrained else options.learning_rate
        # Decay would shrink the coordinates of a constrained matrix, not the matrix.
        decay = decays.get(parameter, 0.0 if is_constrained else options.weight_decay)
        groups.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "base_rate": rate, "weight_decay": decay}
        for (rate, decay), parameters in groups.items()
    ]


def build_optimizer(model: nn.Module, options: TrainOptions) -> torch.optim.Optimizer:
    """Return the optimizer that the options name."""
    groups = parameter_groups(model, options)
    betas = (options.beta1, options.beta2)
    match options.optimizer:
        case "adam":
            return torch.optim.Adam(groups, betas=betas)
        case "adamw":
            return torch.optim.AdamW(groups, betas=betas)
        case "nadam":
            return torch.optim.NAdam(groups, betas=betas)
        case "rmsprop":
            # torch's default is 0.99; the adam default of beta2 means that it was not set.
            decay = 0.99 if options.beta2 == TrainOptions.beta2 else options.beta2
            return torch.optim.RMSprop(groups, alpha=decay, momentum=options.momentum)
        case "sgd":
            return torch.optim.SGD(groups, momentum=options.momentum)
        case "adagrad":
            return torch.optim.Adagrad(groups)


class Schedule:
    """The factor of the learning rates: a function of progress, and of stalls for `plateau`.

    Args:
        options: The training options.
    """

    def __init__(self, options: TrainOptions) -> None:
        self.options = options
        self.plateau_factor = 1.0
        self.stalled = 0

    def factor(self, step: int, progress: float) -> float:
        """Return the factor at a step; `progress` is the fraction of the budget that is spent."""
        options = self.options
        warm = min(1.0, (step + 1) / options.warmup_steps) if options.warmup_steps else 1.0
        match options.schedule:
            case "cosine":
                return warm * 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))
            case "linear":
                return warm * max(0.0, 1 - progress)
            case "step":
                assert options.schedule_every is not None  # checked by TrainOptions
                return warm * options.schedule_factor ** (step // options.schedule_every)
            case "plateau":
                return warm * self.plateau_factor
            case _:
                return warm

    def record(self, better: bool) -> None:
        """Record whether the last validation was the best so far."""
        self.stalled = 0 if better else self.stalled + 1
        if self.options.schedule == "plateau" and self.stalled >= (
            self.options.schedule_every or 1
        ):
            self.plateau_factor *= self.options.schedule_factor
            self.stalled = 0

    def apply(self, optimizer: torch.optim.Optimizer, step: int, progress: float) -> float:
        """Set the learning rates of a step; return the largest."""
        factor = self.factor(step, progress)
        for group in optimizer.param_groups:
            group["lr"] = group["base_rate"] * factor
        return max(group["lr"] for group in optimizer.param_groups)

    def state(self) -> dict[str, float]:
        """Return the state for a checkpoint."""
        return {"plateau_factor": self.plateau_factor, "stalled": self.stalled}

    def restore(self, state: dict[str, float]) -> None:
        """Restore the state of a checkpoint."""
        self.plateau_factor, self.stalled = state["plateau_factor"], int(state["stalled"])
