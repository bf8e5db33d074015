"""The loop of training, from top to bottom."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from undamped.lab.tasks.task import Task
from undamped.lab.training.budget import Budget
from undamped.lab.training.carried import gathered, state_of
from undamped.lab.training.checkpoint import Checkpoint, restore, save_checkpoint
from undamped.lab.training.crew import anybody
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.feed import Feed
from undamped.lab.training.optimizers import Schedule, build_optimizer
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.progress import Progress
from undamped.lab.training.progress_bar import ProgressBar
from undamped.lab.training.quiet import hush
from undamped.lab.training.run import Run
from undamped.lab.training.signals import Stop
from undamped.lab.training.update import Learner, Update
from undamped.models.task_model import TaskModel

if TYPE_CHECKING:
    from lightning.fabric import Fabric


@dataclass
class Training:
    """Everything a training is made of.

    Args:
        model: What is trained.
        task: On what.
        options: How.
        seed: Where the random numbers come from.
        run: Where results go.
        checkpoint: Where to go on, if not at the beginning.
        title: What the progress bar says; none is drawn without it.
        tell: Called now and then with a line that says how it goes, instead of a bar.
        watch: Called after every validation with its number and its metric; a training that it
            answers with true ends there, with a checkpoint.
    """

    model: TaskModel
    task: Task
    options: TrainOptions
    seed: int
    run: Run
    checkpoint: Checkpoint | None = None
    title: str | None = None
    tell: Callable[[str], None] | None = None
    watch: Callable[[int, float], bool] | None = None
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        self.budget = Budget(self.options, self.task)
        self.progress = self.checkpoint.progress if self.checkpoint else Progress()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in a spawned process.

        Its tensors lie in memory that all processes share, so each takes a copy of its own; and
        Lightning would start talking again.
        """
        self.__dict__.update(state)
        self.model, self.checkpoint = copy.deepcopy((self.model, self.checkpoint))
        hush()

    @property
    def spent(self) -> float:
        """The share of the budget that is spent."""
        return self.budget.spent(self.progress.step, self.progress.seconds)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to do."""
        return self.spent >= 1 or self.progress.stopped_early


def train(fabric: Fabric, training: Training) -> None:
    """Train until the budget is spent, patience ends or somebody wants to stop."""
    model, progress, run = training.model, training.progress, training.run
    learner, schedule = _set_up(fabric, training)
    clock = time.perf_counter() - progress.seconds
    cpu_clock = time.process_time() - progress.cpu_seconds
    if progress.step == 0:
        # From here on the folder always holds weights that work and a place to go on from.
        if fabric.is_global_zero:
            run.save_model(model)
        _save(fabric, training, learner, schedule)
    feed = Feed(fabric, training)
    with contextlib.closing(feed), ProgressBar(training, shown=fabric.is_global_zero) as bar:
        while True:
            start = time.perf_counter()
            rate = schedule.apply(learner.optimizer.optimizer, progress.step, training.spent)
            update = replace(learner.learn(feed, progress.step), learning_rate=rate)
            progress.add(update)
            progress.learning += time.perf_counter() - start
            progress.seconds = time.perf_counter() - clock

            done, stopped = training.spent >= 1, training.stop.requested
            if fabric.world_size > 1:  # clocks and signals differ from process to process
                done, stopped = anybody(fabric, done, stopped)
                training.stop.requested = stopped
            if progress.step % training.budget.validate_every == 0 or (done and not stopped):
                _validate(fabric, training, schedule, update)
                stopped = stopped or (not done and _is_watched_out(training))
            elif not (done or stopped):
                bar.draw(update)
                continue
            progress.seconds = time.perf_counter() - clock
            progress.cpu_seconds = time.process_time() - cpu_clock
            _save(fabric, training, learner, schedule)
            bar.draw(update)
            if done or stopped or progress.stopped_early:
                break


def train_and_part(fabric: Fabric, training: Training) -> None:
    """Train, and let the processes part from each other in order.

    A process that ends while threads of its process group still run is aborted now and then.
    """
    train(fabric, training)
    if fabric.world_size > 1 and torch.distributed.is_initialized():
        fabric.barrier()
        torch.distributed.destroy_process_group()


def _set_up(fabric: Fabric, training: Training) -> tuple[Learner, Schedule]:
    """Bring the model to its device and everything to where a checkpoint stopped."""
    model = fabric.strategy.precision.convert_module(training.model)
    fabric.to_device(model)
    model.train()
    optimizer = build_optimizer(model, training.options)
    schedule, carried = Schedule(training.options), None
    if training.checkpoint is not None:
        restore(training.checkpoint, model, optimizer, str(training.run.checkpoint))
        schedule.restore(training.checkpoint.schedule)
        carried = state_of(training.checkpoint, fabric.global_rank, fabric.world_size)
    learner = Learner(fabric, training.model, training.task, training.options, optimizer, carried)
    return learner, schedule


def _validate(fabric: Fabric, training: Training, schedule: Schedule, last: Update) -> None:
    """Score the validation part, keep the best weights, write the curves down."""
    progress, options, run = training.progress, training.options, training.run
    scores = evaluate(
        training.model,
        training.task,
        "valid",
        options.batch_size,
        share=(fabric.global_rank, fabric.world_size),
        context=fabric.autocast(),
    )
    better = progress.close_row(training.task, scores, last)
    stalled = options.patience is not None and progress.stalled >= options.patience
    progress.stopped_early = stalled or progress.reached(training.task, options.goal)
    schedule.validated(better)
    if fabric.is_global_zero:
        if better:
            run.save_model(training.model)
        run.write_metrics(progress.rows)
        row = dict(progress.rows[-1])
        fabric.log_dict(row, step=int(row.pop("step")))


def _is_watched_out(training: Training) -> bool:
    """Ask whoever watches whether the training should end here."""
    rows, metric = training.progress.rows, f"valid_{training.task.metric}"
    if training.watch is not None and training.watch(len(rows), rows[-1][metric]):
        training.stop.requested = True
    return training.stop.requested


def _save(fabric: Fabric, training: Training, learner: Learner, schedule: Schedule) -> None:
    """Write a checkpoint from which the training ends with the same bits."""
    carried = gathered(fabric, learner.carried) if training.task.carries_state else None
    if not fabric.is_global_zero:
        return
    save_checkpoint(
        training.run.checkpoint,
        Checkpoint(
            model=training.model.state_dict(),
            optimizer=learner.optimizer.optimizer.state_dict()["state"],
            progress=training.progress,
            schedule=schedule.state(),
            carried=carried,
        ),
    )
