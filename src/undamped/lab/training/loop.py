"""The loop of training, from top to bottom."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from undamped._base.contract import Batch
from undamped._base.errors import RunError, explain
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.lab.training.batches import batches, disk_workers, to_double
from undamped.lab.training.checkpoint import Carried, Checkpoint, restore, save_checkpoint
from undamped.lab.training.devices import silence
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.optimizers import Schedule, build_optimizer
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.process_group import anybody
from undamped.lab.training.progress import Budget, Progress
from undamped.lab.training.progress_bar import ProgressBar
from undamped.lab.training.run import Run
from undamped.lab.training.signals import Stop
from undamped.lab.training.update import Learner, Update
from undamped.models.task_model import TaskModel

if TYPE_CHECKING:
    from lightning.fabric import Fabric

if TYPE_CHECKING:
    from lightning.fabric import Fabric

    from undamped.lab.training.loop import Training


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
        silence()

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


def train_and_leave_group(fabric: Fabric, training: Training) -> None:
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


def gathered(fabric: Fabric, state: Any) -> Carried:
    """Return the states of all processes, at the one that writes; others get nothing.

    Args:
        fabric: The processes; all of them have to call this.
        state: What this process carries.
    """
    parts = (state,) if isinstance(state, Tensor) else state
    mine = None if parts is None else tuple(part.cpu() for part in parts)
    if fabric.world_size == 1:
        return [mine]
    everybody: list[Any] | None = [None] * fabric.world_size if fabric.is_global_zero else None
    torch.distributed.gather_object(mine, everybody)
    return everybody or []


def state_of(checkpoint: Checkpoint, process: int, processes: int) -> Any:
    """Return the state with which a process goes on; None if it begins without one.

    Args:
        checkpoint: The checkpoint.
        process: The number of the process.
        processes: How many there are.
    """
    states = checkpoint.carried
    if not states:
        return None
    if len(states) != processes:
        raise RunError(
            explain(
                "checkpoint",
                expected=f"the states of {processes} processes",
                got=len(states),
                remedy="Go on with as many processes as the run had.",
            )
        )
    parts = states[process]
    return parts[0] if parts is not None and len(parts) == 1 else parts


class Feed:
    """Gives the batches of one process, from where its training stands, without end.

    Args:
        fabric: Device and processes.
        training: The training; its progress counts what was read.
    """

    def __init__(self, fabric: Fabric, training: Training) -> None:
        self._fabric, self._training = fabric, training
        task, options = training.task, training.options
        workers = options.workers
        if workers is None:
            workers = disk_workers(task)
        self._number = training.progress.step * options.accumulate
        share = (fabric.global_rank, fabric.world_size)
        self._batches = batches(task, options.batch_size, self._number, share, workers)

    def __iter__(self) -> Feed:
        return self

    def __next__(self) -> Batch:
        """Return the next batch, with random numbers of its own for whatever is made of it."""
        progress, start = self._training.progress, time.perf_counter()
        batch = next(self._batches)
        progress.waited += time.perf_counter() - start
        # Other processes have shares of the same size, up to a sequence.
        progress.sequences += (
            optional.count_sequences(self._training.task, batch) * self._fabric.world_size
        )
        progress.samples += (
            optional.count_samples(self._training.task, batch) * self._fabric.world_size
        )
        self._seed()
        self._number += 1
        batch = batch.to(self._fabric.device)
        return to_double(batch) if self._training.options.precision == "64-true" else batch

    def _seed(self) -> None:
        """Let whatever is random depend on the seed, the batch and the process alone."""
        entropy = [self._training.seed, self._number, self._fabric.global_rank]
        seed = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        # Without an accelerator, torch.manual_seed still writes down for each kind of them where it
        # was called from, which a small network notices.
        on_cpu = self._fabric.device.type == "cpu"
        (torch.default_generator if on_cpu else torch).manual_seed(seed)

    def close(self) -> None:
        """Let the threads that prepare batches end."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()
