"""One step of learning: forward pass, loss, backward pass, checks, new weights."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from undamped.contract import Batch
from undamped.errors import OptionError
from undamped.networks.penalty import penalty
from undamped.networks.task_model import TaskModel
from undamped.tasks.task import Task
from undamped.training.evaluation import detach_state
from undamped.training.guard import check_gradient, check_loss
from undamped.training.options import TrainOptions

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

    def learn(self, batch: Batch, step: int) -> Update:
        """Learn from one batch, in one update or in one per window of time."""
        if self._starts_over(step):
            self.carried = None
        # The backward pass has the number format of the forward pass: our own functions compute
        # their gradients with the tensors they kept.
        with self.fabric.autocast():
            if self.options.truncate is None:
                return self._update(batch, step)
            return self._learn_windows(batch, step, self.options.truncate)

    def _starts_over(self, step: int) -> bool:
        if not self.task.carries_state:
            return True
        return step % (self.task.count("train", self.options.batch_size) or 1) == 0

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
        updates, loss = [], 0.0
        for start in range(0, steps, window):
            part = batch.during(slice(start, start + window), every=True)
            updates.append(self._update(part, step))
            loss += updates[-1].loss * len(part.inputs)
        return replace(
            updates[-1],
            loss=loss / steps,
            metric_sum=sum(one.metric_sum for one in updates),
            metric_count=sum(one.metric_count for one in updates),
            evaluations={
                name: sum(one.evaluations[name] for one in updates)
                for name in updates[-1].evaluations
            },
        )

    def _update(self, batch: Batch, step: int) -> Update:
        """Change the weights once."""
        self.optimizer.zero_grad()
        total, loss, prediction, state = self.objective(batch, self.carried)
        check_loss(total, step, self.model, batch)
        self.fabric.backward(total)
        norm = self._check_and_clip(step)
        self.optimizer.step()
        for module in self.model.modules():
            after = getattr(module, "after_optimizer_step", None)
            if callable(after):
                after(step)
        self.carried = detach_state(state)
        metric, count = self.task.score(prediction.detach(), batch)
        return Update(
            loss=loss.detach().item(),
            gradient_norm=norm,
            metric_sum=metric.item(),
            metric_count=count,
            evaluations=self.model.evaluations(),
        )

    def _check_and_clip(self, step: int) -> float:
        """Return the norm of the gradient; weights change only after it was found finite."""
        precision = self.fabric.strategy.precision
        precision.unscale_gradients(self.optimizer.optimizer)
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if getattr(precision, "scaler", None) is None:
            # With a loss scaler an overflow is part of the game: it skips the step by itself.
            check_gradient(norm, step, self.model)
        if self.options.clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.options.clip, norm)
        return norm.item()
