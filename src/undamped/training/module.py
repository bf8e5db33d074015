"""The Lightning module: one step of training, read from top to bottom."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn

from undamped.errors import OptionError
from undamped.networks.task_model import EVALUATIONS, TaskModel
from undamped.tasks.task import Batch, Task
from undamped.training.checkpoint import Checkpoint, Progress, restore, save_checkpoint
from undamped.training.evaluation import detach_state, evaluate
from undamped.training.guard import check_gradient, check_loss
from undamped.training.optimizers import Schedule, build_optimizer
from undamped.training.options import TrainOptions
from undamped.training.quiet import hush
from undamped.training.run import Run

PLAIN_STEPS_BETWEEN_VALIDATIONS = 50
VALIDATIONS = 25
SUMS = ("loss", "metric", "metric_count", "steps", "norm", *EVALUATIONS)


class TaskBatches:
    """The training batches from a step on, this process's share of each.

    Args:
        task: The task.
        size: Sequences per batch over all processes.
        first: The number of the first batch.
        share: This process's number and how many there are.
    """

    def __init__(self, task: Task, size: int, first: int, share: tuple[int, int]) -> None:
        self.task, self.size, self.first, self.share = task, size, first, share

    def __iter__(self) -> Iterator[Batch]:
        rank, world = self.share
        number = self.first
        while True:
            batch = self.task.batch("train", number, self.size)
            if world > 1:
                batch = self.task.share(batch, rank, world)
            yield batch
            number += 1


class TrainingModule(L.LightningModule):
    """Trains a model on a task and keeps its run folder up to date.

    Args:
        model: What is trained.
        task: On what.
        options: How.
        seed: Where the random numbers come from.
        run: Where results go.
        checkpoint: Where to go on, if not at the beginning.
    """

    def __init__(
        self,
        model: TaskModel,
        task: Task,
        options: TrainOptions,
        seed: int,
        run: Run,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.model = model
        self.task = task
        self.options = options
        self.seed = seed
        self.run = run
        self.checkpoint = checkpoint
        self.schedule = Schedule(options)
        self.progress = checkpoint.progress if checkpoint else Progress()
        self.stop_requested = False
        self.gradient_norm = math.nan
        self.latest: dict[str, float] = {}
        self._carried: Any = None
        self.progress.since = {**dict.fromkeys(SUMS, 0.0), **self.progress.since}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in a spawned process, where Lightning would start talking again."""
        super().__setstate__(state)
        hush()

    # Budget

    @property
    def total_steps(self) -> int | None:
        """The number of steps, if the budget is not one of time."""
        if self.options.epochs is not None:
            per_epoch = self.task.count("train", self.options.batch_size)
            if per_epoch is None:
                raise OptionError(
                    "train.epochs: expected a task with an end, got one whose data never ends. "
                    "Give train.steps instead."
                )
            return max(1, round(self.options.epochs * per_epoch))
        return self.options.steps

    @property
    def validate_every(self) -> int:
        """Steps between validations."""
        if self.options.validate_every is not None:
            return self.options.validate_every
        if self.total_steps is not None:
            return max(1, self.total_steps // VALIDATIONS)
        return self.task.count("train", self.options.batch_size) or PLAIN_STEPS_BETWEEN_VALIDATIONS

    @property
    def spent(self) -> float:
        """The share of the budget that is spent."""
        if self.total_steps is not None:
            return self.progress.step / self.total_steps
        return self.progress.seconds / (self.options.time_limit or math.inf)

    # Lightning's hooks

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Build the optimiser, and go on where a checkpoint stopped."""
        optimizer = build_optimizer(self.model, self.options)
        if self.checkpoint is not None:
            restore(self.checkpoint, self.model, optimizer, str(self.run.checkpoint))
            self.schedule.restore(self.checkpoint.schedule)
            parts = self.checkpoint.carried
            if parts is not None:
                self._carried = parts[0] if len(parts) == 1 else parts
        return optimizer

    def train_dataloader(self) -> TaskBatches:
        """The batches from the present step on."""
        return TaskBatches(self.task, self.options.batch_size, self.progress.step, self._share)

    def on_train_start(self) -> None:
        """Start the clock."""
        self.model.train()
        self._clock = time.perf_counter() - self.progress.seconds
        if self.progress.step == 0:
            # From here on the folder always holds weights that work and a place to go on from.
            if self.trainer.is_global_zero:
                self.run.save_model(self.model)
            self._save()

    def training_step(self, batch: Batch, _number: int) -> None:
        """Learn from one batch."""
        step = self.progress.step
        # Whatever is random in this step depends on the seed, the step and the process alone.
        words = np.random.SeedSequence([self.seed, step, self._share[0]]).generate_state(1)
        torch.manual_seed(int(words[0]))
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        rate = self.schedule.apply(optimizer.optimizer, step, self.spent)
        loss = self._learn(batch, optimizer)
        self._note(loss, rate)
        self.progress.step += 1
        self.progress.seconds = time.perf_counter() - self._clock

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Measure, check and clip the gradient; weights change only after this."""
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
        if getattr(self.trainer.precision_plugin, "scaler", None) is None:
            # With a loss scaler an overflow is part of the game: it skips the step by itself.
            check_gradient(norm, self.progress.step, self.model)
        if self.options.clip is not None:
            nn.utils.clip_grads_with_norm_(parameters, self.options.clip, norm)
        self.gradient_norm = norm.item()

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Validate and save when it is time; stop when the budget is spent."""
        finished = self.spent >= 1 or self.stop_requested
        if self.progress.step % self.validate_every == 0 or (finished and not self.stop_requested):
            self._validate()
            self._save()
        elif finished:
            self._save()
        if finished or self.progress.stopped_early:
            self.trainer.should_stop = True

    # Learning

    def _learn(self, batch: Batch, optimizer: Any) -> float:
        if self.options.truncate is not None:
            return self._learn_truncated(batch, optimizer, self.options.truncate)
        if self._starts_over():
            self._carried = None
        loss, self._carried = self._update(batch, optimizer, self._carried)
        return loss

    def _starts_over(self) -> bool:
        if not self.task.carries_state:
            return True
        return self.progress.step % (self.task.count("train", self.options.batch_size) or 1) == 0

    def _learn_truncated(self, batch: Batch, optimizer: Any, window: int) -> float:
        cut = batch.lengths is None and batch.times is None and self.model.carries_on
        if not cut:
            raise OptionError(
                "train.truncate: expected sequences of one length and a network of one direction, "
                "got others. Leave train.truncate out."
            )
        state = None if self._starts_over() else self._carried
        steps = batch.inputs.shape[0]
        if self.task.readout == "last":
            with torch.no_grad():
                if steps > window:
                    before = batch.during(slice(None, -window), every=False)
                    _, state = self.model.run(before, state)
            last = batch.during(slice(-window, None), every=False)
            loss, self._carried = self._update(last, optimizer, state)
            return loss
        losses = []
        for start in range(0, steps, window):
            part = batch.during(slice(start, start + window), every=True)
            loss, state = self._update(part, optimizer, state)
            losses.append(loss * len(part.inputs))
        self._carried = state
        return sum(losses) / steps

    def _update(self, batch: Batch, optimizer: Any, state: Any) -> tuple[float, Any]:
        """Change the weights once; return the loss and the state to hand on."""
        optimizer.zero_grad()
        prediction, state = self.model.run(batch, state)
        loss = self.task.loss(prediction, batch)
        check_loss(loss, self.progress.step, self.model, batch)
        self.manual_backward(loss + self._penalty(loss))
        optimizer.step()
        for module in self.model.modules():
            after = getattr(module, "after_optimizer_step", None)
            if callable(after):
                after(self.progress.step)
        metric, count = self.task.score(prediction.detach(), batch)
        self.progress.since["metric"] += metric.item()
        self.progress.since["metric_count"] += count
        for name, count in self.model.evaluations().items():
            self.progress.since[name] += count
        return loss.item(), detach_state(state)

    def _penalty(self, like: Tensor) -> Tensor:
        total = torch.zeros_like(like)
        for module in self.model.modules():
            penalty = getattr(module, "penalty", None)
            if callable(penalty):
                added = penalty()
                assert isinstance(added, Tensor)
                total = total + added
        return total

    # Keeping books

    @property
    def _share(self) -> tuple[int, int]:
        return self.trainer.global_rank, self.trainer.world_size

    def _note(self, loss: float, rate: float) -> None:
        since = self.progress.since
        since["loss"] += loss
        since["norm"] += self.gradient_norm
        since["steps"] += 1
        self.latest = {
            "loss": loss,
            "metric": self.task.finish(since["metric"] / max(1, since["metric_count"])),
            "gradient_norm": self.gradient_norm,
            "learning_rate": rate,
        }

    def _validate(self) -> None:
        scores = evaluate(
            self.model,
            self.task,
            "valid",
            self.options.batch_size,
            share=self._share,
            context=self.trainer.precision_plugin.val_step_context(),
        )
        progress, since, metric = self.progress, self.progress.since, self.task.metric
        row = {
            "step": progress.step,
            "seconds": round(progress.seconds, 3),
            "train_loss": since["loss"] / max(1, since["steps"]),
            f"train_{metric}": self.task.finish(since["metric"] / max(1, since["metric_count"])),
            "gradient_norm": since["norm"] / max(1, since["steps"]),
            "learning_rate": self.latest["learning_rate"],
            "valid_loss": scores.loss,
            f"valid_{metric}": scores.metric,
        }
        for name in self.model.evaluations():
            row[name] = since[name] / max(1, since["steps"])
        progress.since = dict.fromkeys(SUMS, 0.0)
        progress.rows.append(row)
        self.latest["valid"] = scores.metric
        better = self._is_better(scores.metric, scores.loss)
        if better:
            progress.best_metric, progress.best_loss = scores.metric, scores.loss
            progress.best_step = progress.step
        progress.stalled = 0 if better else progress.stalled + 1
        progress.stopped_early = (
            self.options.patience is not None and progress.stalled >= self.options.patience
        )
        self.schedule.validated(better)
        if self.trainer.is_global_zero:
            if better:
                self.run.save_model(self.model)
            self.run.write_metrics(progress.rows)
            self._log(row)

    def _is_better(self, metric: float, loss: float) -> bool:
        """Compare by the metric, and by the loss where that is equal.

        On few validation series many steps have the same accuracy, and the first of them is
        hardly trained.
        """
        best, best_loss = self.progress.best_metric, self.progress.best_loss
        if best is None or not math.isfinite(best):
            return True
        if metric == best:
            return best_loss is not None and loss < best_loss
        return metric > best if self.task.higher_is_better else metric < best

    def _log(self, row: dict[str, float]) -> None:
        if self.logger is not None:
            values = {name: value for name, value in row.items() if name != "step"}
            self.logger.log_metrics(values, step=int(row["step"]))

    def _save(self) -> None:
        self.progress.seconds = time.perf_counter() - self._clock
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        if not self.trainer.is_global_zero:
            return
        carried = self._carried if self.task.carries_state else None
        save_checkpoint(
            self.run.checkpoint,
            Checkpoint(
                model=self.model.state_dict(),
                optimizer=optimizer.optimizer.state_dict(),
                progress=self.progress,
                schedule=self.schedule.state(),
                carried=(carried,) if isinstance(carried, Tensor) else carried,
            ),
        )
