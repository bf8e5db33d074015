"""Training by gradient descent: the loop over steps, validations and checkpoints."""

from __future__ import annotations

import contextlib
import copy
import functools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from undamped.kernels.shared.threads import flush_subnormals
from undamped.lab.tasks.task import Task
from undamped.lab.training.batches import Feed
from undamped.lab.training.checkpoint import (
    Checkpoint,
    gather_states,
    restore,
    save_checkpoint,
    state_of,
)
from undamped.lab.training.devices import ProcessGroup, any_process, make_fabric, silence
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.optimizers import Schedule, build_optimizer
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.progress import Budget, Progress, ProgressBar
from undamped.lab.training.run import Run
from undamped.lab.training.update import Learner, Update
from undamped.models.task_model import TaskModel

if TYPE_CHECKING:
    from lightning.fabric import Fabric

# A scheduler sends one of them some time before it stops the machine; Windows has no SIGUSR1.
_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
]


@dataclass
class Stop:
    """Whether the training should end before its budget is spent."""

    requested: bool = False


@dataclass
class Training:
    """A training in progress.

    Args:
        model: The model.
        task: The task.
        options: The options of training.
        seed: The seed of all random numbers.
        run: The run folder.
        checkpoint: The checkpoint to continue from.
        title: The title of the progress bar; without it there is none.
        report: Called with a line of text from time to time, instead of a progress bar.
        watch: Called after every validation with its number and its metric; if it returns true,
            training stops there with a checkpoint.
    """

    model: TaskModel
    task: Task
    options: TrainOptions
    seed: int
    run: Run
    checkpoint: Checkpoint | None = None
    title: str | None = None
    report: Callable[[str], None] | None = None
    watch: Callable[[int, float], bool] | None = None
    stop: Stop = field(default_factory=Stop)

    def __post_init__(self) -> None:
        self.budget = Budget(self.options, self.task)
        self.progress = self.checkpoint.progress if self.checkpoint else Progress()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrive in a spawned process.

        Its tensors are in memory that all processes share, so each process makes a copy. Lightning
        has to be silenced in every process.
        """
        self.__dict__.update(state)
        self.model, self.checkpoint = copy.deepcopy((self.model, self.checkpoint))
        silence()

    @property
    def spent(self) -> float:
        """The fraction of the budget that is spent."""
        return self.budget.spent(self.progress)


def train_by_gradients(training: Training, group: ProcessGroup) -> None:
    """Train in this process, in the process group, or in new processes.

    Args:
        training: The training.
        group: The processes that were started by torchrun or SLURM.
    """
    finished = training.spent >= 1 or training.progress.stopped_early
    if group.fabric is not None:
        group.fabric.barrier()  # every process reads the checkpoint before it is overwritten
        if not finished:
            _train_and_leave_group(group.fabric, training)
        return
    fabric = make_fabric(training.options, training.run.path)
    if not finished:
        fabric.launch(functools.partial(_train_and_leave_group, training=training))


def _train_and_leave_group(fabric: Fabric, training: Training) -> None:
    """Train, and destroy the process group in order.

    A process that ends while threads of its process group still run is sometimes aborted.
    """
    train(fabric, training)
    if fabric.world_size > 1 and torch.distributed.is_initialized():
        fabric.barrier()
        torch.distributed.destroy_process_group()


@flush_subnormals()
def train(fabric: Fabric, training: Training) -> None:
    """Train until the budget is spent, early stopping, or a request to stop."""
    model, progress, run = training.model, training.progress, training.run
    learner, schedule = _set_up(fabric, training)
    clock = time.perf_counter() - progress.seconds
    cpu_clock = time.process_time() - progress.cpu_seconds
    if progress.step == 0:
        # From here on the folder always has working weights and a checkpoint.
        if fabric.is_global_zero:
            run.save_model(model)
        _save(fabric, training, learner, schedule)
    feed = Feed(fabric, training)
    with contextlib.closing(feed), ProgressBar(training, enabled=fabric.is_global_zero) as bar:
        while True:
            start = time.perf_counter()
            rate = schedule.apply(learner.optimizer.optimizer, progress.step, training.spent)
            update = replace(learner.step(feed, progress.step), learning_rate=rate)
            progress.add(update)
            progress.learning += time.perf_counter() - start
            progress.seconds = time.perf_counter() - clock
            progress.cpu_seconds = time.process_time() - cpu_clock

            done, stopped = training.spent >= 1, training.stop.requested
            if fabric.world_size > 1:  # clocks and signals differ from process to process
                done, stopped = any_process(fabric, done, stopped)
                training.stop.requested = stopped
            if progress.step % training.budget.validate_every == 0 or (done and not stopped):
                _validate(fabric, training, schedule, update)
                if training.watch is not None and not (done or stopped):
                    metric = progress.rows[-1][f"valid_{training.task.metric}"]
                    training.stop.requested |= bool(training.watch(len(progress.rows), metric))
                stopped = stopped or (not done and training.stop.requested)
            elif not (done or stopped):
                bar.draw(update)
                continue
            progress.seconds = time.perf_counter() - clock
            progress.cpu_seconds = time.process_time() - cpu_clock
            _save(fabric, training, learner, schedule)
            bar.draw(update)
            if done or stopped or progress.stopped_early:
                break


def _set_up(fabric: Fabric, training: Training) -> tuple[Learner, Schedule]:
    """Move the model to its device, and restore the checkpoint."""
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
    """Score the validation split, save the best weights, and write the metrics."""
    progress, options, run = training.progress, training.options, training.run
    scores = evaluate(
        training.model,
        training.task,
        "valid",
        options.batch_size,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
        context=fabric.autocast(),
    )
    better = progress.close_row(training.task, scores, last)
    stalled = options.patience is not None and progress.stalled >= options.patience
    progress.stopped_early = stalled or progress.reached(training.task, options.goal)
    schedule.record(better)
    if fabric.is_global_zero:
        if better:
            run.save_model(training.model)
        run.write_metrics(progress.rows)
        row = dict(progress.rows[-1])
        fabric.log_dict(row, step=int(row.pop("step")))


def _save(fabric: Fabric, training: Training, learner: Learner, schedule: Schedule) -> None:
    """Write a checkpoint from which the training ends with the same bits."""
    carried = gather_states(fabric, learner.carried) if training.task.carries_state else None
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


@contextlib.contextmanager
def stop_on_signal(stop: Stop, processes: int) -> Iterator[None]:
    """Turn the first Ctrl-C, SIGTERM or SIGUSR1 into a stop after the current step.

    There is a checkpoint then; a second signal interrupts at once. Only the main thread receives
    signals, and with processes that training starts itself they are left to the caller.
    """
    if threading.current_thread() is not threading.main_thread() or processes > 1:
        yield
        return

    def handle(_signal: int, _frame: Any) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.requested = True

    handlers = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
