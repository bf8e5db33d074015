"""An optimizer step: forward and backward passes of its batches, checks, new weights."""

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
from undamped.lab.training.devices import sum_processes
from undamped.lab.training.options import TrainOptions
from undamped.models.task_model import TaskModel
from undamped.nn.bases.updates import penalty

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass(frozen=True)
class Update:
    """Loss, gradient norm and metric of a step."""

    loss: float
    gradient_norm: float
    metric_sum: float
    metric_count: float
    evaluations: dict[str, int] = field(default_factory=dict)
    learning_rate: float = 0.0


def _combine(parts: list[tuple[Update, float]]) -> Update:
    """Return the weighted mean of the parts of a step.

    Args:
        parts: Updates and their weights; the norm of the gradient is that of the last.
    """
    last, total = parts[-1][0], sum(weight for _, weight in parts)
    if len(parts) == 1:
        return last
    return replace(
        last,
        loss=sum(update.loss * weight for update, weight in parts) / (total or 1.0),
        metric_sum=sum(update.metric_sum for update, _ in parts),
        metric_count=sum(update.metric_count for update, _ in parts),
        evaluations={
            name: sum(update.evaluations[name] for update, _ in parts) for name in last.evaluations
        },
    )


class Objective(nn.Module):
    """The objective as one module, so that several processes average its gradients.

    Args:
        model: The model.
        task: Its task.
    """

    def __init__(self, model: TaskModel, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    def forward(self, batch: Batch, state: Any) -> tuple[Tensor, Tensor, Tensor, Any]:
        """Return the objective, the loss, the prediction and the state after the batch."""
        output = self.model.objective(batch, self.task.loss, state)
        total = output.total + penalty(self.model, output.total)
        return total, output.loss, output.prediction, output.state


class Learner:
    """Makes the optimizer steps of a training.

    Args:
        fabric: Device, number format and processes.
        model: The model, on its device.
        task: Its task.
        options: The training options.
        optimizer: The optimizer.
        carried: The state from which a resumed training continues.
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
        self._mean_targets = 1.0  # targets per process of the first batch of a step

    def step(self, feed: Iterator[Batch], step: int) -> Update:
        """Train on the next batches: one optimizer step, or one per window of time."""
        count = self.options.accumulate
        # The backward pass has the number format of the forward pass, because autograd functions
        # of this library compute their gradients with the tensors that they stored.
        with self.fabric.autocast():
            if self.options.truncate is not None:
                return self._step_windows(self._next(feed, step), step, self.options.truncate)
            self.optimizer.zero_grad()
            parts = [
                self._add_gradient(self._next(feed, step * count + index), step, index, count)
                for index in range(count)
            ]
            return self._apply_gradient(parts, step)

    def _next(self, feed: Iterator[Batch], index: int) -> Batch:
        """Return the next batch; reset the state where the batch does not continue the last."""
        per_epoch = self.task.count("train", self.options.batch_size) or 1
        if not self.task.carries_state or index % per_epoch == 0:
            self.carried = None
        return next(feed)

    def _step_windows(self, batch: Batch, step: int, window: int) -> Update:
        """Truncated back-propagation: a step per window, with the state carried on."""
        if batch.lengths is not None or batch.times is not None or not self.model.carries_on:
            raise OptionError(
                "train.truncate needs sequences of one length and a unidirectional network. Omit "
                "train.truncate."
            )
        steps = batch.inputs.shape[0]
        if self.task.readout == "last":
            with torch.no_grad():
                if steps > window:
                    early = batch.during(slice(None, -window), every=False)
                    _, self.carried = self.model.run(early, self.carried)
            return self._step_batch(batch.during(slice(-window, None), every=False), step)
        updates = []
        for start in range(0, steps, window):
            part = batch.during(slice(start, start + window), every=True)
            updates.append((self._step_batch(part, step), len(part.inputs)))
        return _combine(updates)

    def _step_batch(self, batch: Batch, step: int) -> Update:
        """Make an optimizer step with one batch."""
        self.optimizer.zero_grad()
        return self._apply_gradient([self._add_gradient(batch, step)], step)

    def _add_gradient(
        self, batch: Batch, step: int, index: int = 0, count: int = 1
    ) -> tuple[Update, float]:
        """Add the gradient of a batch; return its loss and metric, and its weight.

        A loss is a mean over the targets of a batch. Each batch, and each process's part of one,
        is weighted by its number of targets, so that several of them are like one large batch. If
        all have the same number, the weight is 1 and nothing is multiplied.

        Args:
            batch: The batch.
            step: The step.
            index: The index of the batch in the step.
            count: The number of batches in the step.
        """
        targets = float(self.task.answers(batch))
        if index == 0:
            total_targets = max(1.0, *sum_processes(self.fabric, targets))
            self._mean_targets = total_targets / self.fabric.world_size
        weight = targets / self._mean_targets
        # Processes synchronise gradients at the last batch of a step only.
        no_sync = getattr(self.objective, "no_sync", nullcontext)
        with no_sync() if index < count - 1 else nullcontext():
            total, loss, prediction, state = self.objective(batch, self.carried)
            check_loss(total, step, self.model, batch)
            self.fabric.backward(total if weight == 1 else total * weight)
        self.carried = _detach(state)
        metric, metric_count = self.task.score(prediction.detach(), batch)
        update = Update(
            loss=loss.detach().item(),
            gradient_norm=0.0,
            metric_sum=metric.item(),
            metric_count=metric_count,
            evaluations=self.model.evaluations(),
        )
        return update, weight

    def _apply_gradient(self, parts: list[tuple[Update, float]], step: int) -> Update:
        """Check and clip the gradient, and update the weights."""
        factor = 1.0
        if len(parts) > 1:
            (weights,) = sum_processes(self.fabric, sum(weight for _, weight in parts))
            factor = self.fabric.world_size / weights
        norm = self._check_and_clip(step, factor)
        self.optimizer.step()
        for module in self.model.modules():
            after = getattr(module, "after_optimizer_step", None)
            if callable(after):
                after(step)
        return replace(_combine(parts), gradient_norm=norm)

    def _check_and_clip(self, step: int, factor: float) -> float:
        """Return the norm of the gradient; a norm that is not finite raises an error.

        Args:
            step: The step.
            factor: A factor for all gradients: one over the sum of the weights of the batches.
        """
        precision = self.fabric.strategy.precision
        precision.unscale_gradients(self.optimizer.optimizer)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        gradients = [p.grad for p in parameters if p.grad is not None]
        if factor != 1:
            for gradient in gradients:
                gradient.mul_(factor)
        norm = nn.utils.get_total_norm(gradients)
        if getattr(precision, "scaler", None) is None:
            # A loss scaler expects overflows, and skips such steps.
            check_gradient(norm, step, self.model)
        if self.options.clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.options.clip, norm)
        return norm.item()


def _detach(state: Any) -> Any:
    """Detach a state from its graph."""
    if state is None:
        return None
    return state.detach() if isinstance(state, Tensor) else tuple(p.detach() for p in state)


REMEDY = (
    "Try a smaller train.learning_rate, train.clip=1, or for oscillators a smaller model.dt. The "
    "best weights so far are in the run folder."
)


def _finite(value: Any) -> bool:
    if isinstance(value, Tensor):
        return not value.is_floating_point() or bool(torch.isfinite(value).all())
    if isinstance(value, list | tuple):
        return all(_finite(part) for part in value)
    return True


def check_loss(loss: Tensor, step: int, model: TaskModel, batch: Batch) -> None:
    """Raise an error for a loss that is not finite, with the first layer that is not finite."""
    if math.isfinite(loss.item()):
        return
    raise NonFiniteError(
        f"The loss at step {step} is {loss.item()}; the first values that are not finite are in "
        f"{_first_bad_layer(model, batch)}. {REMEDY}"
    )


def check_gradient(norm: Tensor, step: int, model: nn.Module) -> None:
    """Raise an error for a gradient that is not finite, with the parameter of the largest."""
    if math.isfinite(norm.item()):
        return
    # NaN counts as the largest; otherwise the largest entry made the norm overflow.
    sizes = {
        name: torch.nan_to_num(parameter.grad, nan=math.inf).abs().max().item()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }
    raise NonFiniteError(
        f"The norm of the gradient at step {step} is {norm.item()}; the largest entries are in the "
        f"gradient of {max(reversed(sizes), key=sizes.__getitem__)}. {REMEDY}"
    )


@torch.no_grad()
def _first_bad_layer(model: TaskModel, batch: Batch) -> str:
    """Run the batch part by part; return the name of the first part that is not finite."""
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
