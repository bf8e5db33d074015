"""One step of learning: forward and backward pass of its batches, checks, new weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import NonFiniteError, OptionError
from undamped.lab.tasks.task import Task
from undamped.lab.training.evaluation import detach_state
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.process_group import all_together
from undamped.models.task_model import TaskModel
from undamped.nn.bases.updates import penalty

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class Update:
    """What one step of training was like."""

    loss: float
    gradient_norm: float
    metric_sum: float
    metric_count: float
    evaluations: dict[str, int] = field(default_factory=dict)
    learning_rate: float = 0.0


def _together(parts: list[tuple[Update, float]]) -> Update:
    """Return what several parts of a step were like, each with its weight.

    Args:
        parts: The parts; the norm of the gradient is that of the last.
    """
    last, weights = parts[-1][0], sum(weight for _, weight in parts)
    if len(parts) == 1:
        return last
    return replace(
        last,
        loss=sum(one.loss * weight for one, weight in parts) / (weights or 1.0),
        metric_sum=sum(one.metric_sum for one, _ in parts),
        metric_count=sum(one.metric_count for one, _ in parts),
        evaluations={
            name: sum(one.evaluations[name] for one, _ in parts) for name in last.evaluations
        },
    )


class Objective(nn.Module):
    """What is made small, as one module: several processes average the gradients behind it.

    Args:
        model: The model.
        task: Its task.
    """

    def __init__(self, model: TaskModel, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    def forward(self, batch: Batch, state: Any) -> tuple[Tensor, Tensor, Tensor, Any]:
        """Return what is made small, loss, prediction and the state after the batch."""
        aim = self.model.objective(batch, self.task.loss, state)
        return aim.total + penalty(self.model, aim.total), aim.loss, aim.prediction, aim.state


class Learner:
    """Changes the weights of a model, batch by batch.

    Args:
        fabric: Device, number format and processes.
        model: The model, on its device.
        task: Its task.
        options: How to train.
        optimizer: The rule that changes the weights.
        carried: The state with which a resumed training goes on.
    """

    def __init__(
        self,
        fabric: Fabric,
        model: TaskModel,
        task: Task,
        options: TrainOptions,
        optimizer: torch.optim.Optimizer,
        carried: Any = None,
    ) -> None:
        self.fabric, self.model, self.task, self.options = fabric, model, task, options
        self.objective = fabric.strategy.setup_module(Objective(model, task))
        self.optimizer: Any = fabric.setup_optimizers(optimizer)
        self.carried = carried
        self._usual = 1.0  # answers of a process's share of a batch

    def learn(self, feed: Iterator[Batch], step: int) -> Update:
        """Learn from the next batches: one change of the weights, or one per window of time."""
        count = self.options.accumulate
        # The backward pass has the number format of the forward pass: our own functions compute
        # their gradients with the tensors they kept.
        with self.fabric.autocast():
            if self.options.truncate is not None:
                return self._learn_windows(self._next(feed, step), step, self.options.truncate)
            self.optimizer.zero_grad()
            parts = [
                self._add_gradient(self._next(feed, step * count + place), step, place, count)
                for place in range(count)
            ]
            return self._change(parts, step)

    def _next(self, feed: Iterator[Batch], number: int) -> Batch:
        """Return the next batch, and forget the state where it does not go on from the last."""
        per_pass = self.task.count("train", self.options.batch_size) or 1
        if not self.task.carries_state or number % per_pass == 0:
            self.carried = None
        return next(feed)

    def _learn_windows(self, batch: Batch, step: int, window: int) -> Update:
        """Let gradients reach back over one window only; the state goes on."""
        if batch.lengths is not None or batch.times is not None or not self.model.carries_on:
            raise OptionError(
                "train.truncate: expected sequences of one length and a network of one direction, "
                "got others. Leave train.truncate out."
            )
        steps = batch.inputs.shape[0]
        if self.task.readout == "last":
            with torch.no_grad():
                if steps > window:
                    early = batch.during(slice(None, -window), every=False)
                    _, self.carried = self.model.run(early, self.carried)
            return self._update(batch.during(slice(-window, None), every=False), step)
        updates = []
        for start in range(0, steps, window):
            part = batch.during(slice(start, start + window), every=True)
            updates.append((self._update(part, step), len(part.inputs)))
        return _together(updates)

    def _update(self, batch: Batch, step: int) -> Update:
        """Change the weights once, by one batch."""
        self.optimizer.zero_grad()
        return self._change([self._add_gradient(batch, step)], step)

    def _add_gradient(
        self, batch: Batch, step: int, place: int = 0, count: int = 1
    ) -> tuple[Update, float]:
        """Add the gradient of a batch to what is there; return what it was like, and its weight.

        A loss is a mean over the answers of a batch. So that several batches, and the shares of
        several processes, are as one, each weighs as much as it has answers; where all have as
        many, that is 1, and nothing is multiplied.

        Args:
            batch: The batch.
            step: Which step this is.
            place: Which batch of the step.
            count: How many there are.
        """
        answers = float(self.task.answers(batch))
        if place == 0:
            self._usual = max(1.0, *all_together(self.fabric, answers)) / self.fabric.world_size
        weight = answers / self._usual
        # Processes wait for each other at the last batch of a step, and not before.
        alone = (
            getattr(self.objective, "no_sync", nullcontext) if place < count - 1 else nullcontext
        )
        with alone():
            total, loss, prediction, state = self.objective(batch, self.carried)
            check_loss(total, step, self.model, batch)
            self.fabric.backward(total if weight == 1 else total * weight)
        self.carried = detach_state(state)
        metric, counted = self.task.score(prediction.detach(), batch)
        part = Update(
            loss=loss.detach().item(),
            gradient_norm=0.0,
            metric_sum=metric.item(),
            metric_count=counted,
            evaluations=self.model.evaluations(),
        )
        return part, weight

    def _change(self, parts: list[tuple[Update, float]], step: int) -> Update:
        """Change the weights by the gradients that were added up."""
        share = 1.0
        if len(parts) > 1:
            (weights,) = all_together(self.fabric, sum(weight for _, weight in parts))
            share = self.fabric.world_size / weights
        norm = self._check_and_clip(step, share)
        self.optimizer.step()
        for module in self.model.modules():
            after = getattr(module, "after_optimizer_step", None)
            if callable(after):
                after(step)
        return replace(_together(parts), gradient_norm=norm)

    def _check_and_clip(self, step: int, share: float) -> float:
        """Return the norm of the gradient; weights change only after it was found finite.

        Args:
            step: Which step this is.
            share: What every gradient is multiplied with: one over the weights of what was added.
        """
        precision = self.fabric.strategy.precision
        precision.unscale_gradients(self.optimizer.optimizer)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if share != 1:
            for gradient in gradients:
                gradient.mul_(share)
        norm = nn.utils.get_total_norm(gradients)
        if getattr(precision, "scaler", None) is None:
            # With a loss scaler an overflow is part of the game: it skips the step by itself.
            check_gradient(norm, step, self.model)
        if self.options.clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.options.clip, norm)
        return norm.item()


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
