"""`fit`: train a model on a task, and leave a run behind; `resume`: go on with one."""

from __future__ import annotations

import contextlib
import copy
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undamped.errors import NonFiniteError, OptionError, UndampedError, explain
from undamped.memory import memory_use, reset_peak_memory
from undamped.networks.for_task import check_options, model_for
from undamped.networks.task_model import TaskModel
from undamped.options import check, options_of
from undamped.registry import tasks
from undamped.tasks.series import SeriesTask
from undamped.tasks.task import Task
from undamped.training.defaults import suggest_for
from undamped.training.evaluation import evaluate
from undamped.training.options import TrainOptions
from undamped.training.quiet import hushed
from undamped.training.recipes import merged
from undamped.training.run import Run, machine, versions


def fit(
    model: str | TaskModel,
    task: str | Task,
    *,
    model_options: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | TrainOptions | None = None,
    seed: int = 0,
    out: str | Path = "runs",
    progress: bool = True,
    command: str | None = None,
    started: Callable[[Run], None] | None = None,
) -> Run:
    """Train a model on a task.

    Args:
        model: A registry name, or a `TaskModel` of your own, such as a `SequenceModel`.
        task: A registry name, or a `Task` of your own.
        model_options: Options of the network, when a name was given.
        task_options: Options of the task, when a name was given.
        train: Options of training; see `TrainOptions`. What is not said comes from the recipe of
            the task, `undamped.training.recipes`.
        seed: Where all random numbers come from.
        out: The folder in which the run's folder is made.
        progress: Whether to show a progress bar.
        command: What to write down as the command that made the run.
        started: Called with the run when its folder is there and before the first batch.

    Returns:
        The finished run.

    Example:
        >>> run = fit("unicornn", "adding", train={"steps": 200})
        >>> run.result["test"]["mse"]
    """
    task_name = task if isinstance(task, str) else tasks.name_of(type(task)) or type(task).__name__
    model_name = model if isinstance(model, str) else type(model).__name__
    given = train.to_dict() if isinstance(train, TrainOptions) else dict(train or {})
    said = {"model": dict(model_options or {}), "task": dict(task_options or {}), "train": given}
    settings = merged(task_name, model_name, said)
    built_task = _build_task(task, settings["task"], seed)
    if isinstance(built_task, SeriesTask):
        settings = merged(task_name, model_name, said, suggest_for(built_task, model_name))
    options = TrainOptions(**check("train", TrainOptions, settings["train"]))
    if progress and built_task.notes():
        sys.stderr.write("\n".join(built_task.notes()) + "\n")
    if built_task.carries_state and options.devices * options.nodes > 1:
        raise OptionError(
            "train.devices: expected 1 for a task whose state is carried from batch to batch, got "
            f"{options.devices * options.nodes}. A checkpoint holds the state of one process."
        )
    if not isinstance(model, str):
        settings["model"] = {}
    vectors = built_task.starting_embedding()
    if vectors is not None and isinstance(model, str):
        settings["model"].setdefault("embedding_size", vectors.shape[1])
    with _random_numbers(seed):
        built_model = (
            model_for(built_task.task_shape, model, check_options(model, settings["model"]))
            if isinstance(model, str)
            else model
        )
        if vectors is not None and isinstance(model, str):
            built_model.start_embedding(vectors)
        _check_number_format(built_model, options.precision)
        _try_one_batch(built_model, built_task, options)
    run = Run.create(out, f"{task_name}-{model_name}")
    run.hand_over(built_task)
    run.update(
        status="running",
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command,
        seed=seed,
        task={"name": task_name, "options": _plain(settings["task"], built_task)},
        model={
            "name": model_name,
            "options": settings["model"],
            "parameters": sum(p.numel() for p in built_model.parameters() if p.requires_grad),
            "shape": built_task.task_shape.to_dict(),
        },
        train=options.to_dict(),
        versions=versions(),
        machine=machine(),
        **built_task.record(),
    )
    if started is not None:
        started(run)
    with run.locked():
        return _train(run, built_model, built_task, options, seed, progress)


def resume(path: str | Path, *, progress: bool = True) -> Run:
    """Go on with an interrupted run, to the numbers it would have had without the interruption.

    Args:
        path: The run folder.
        progress: Whether to show a progress bar.
    """
    run = Run.open(path)
    if run.settings["status"] == "finished":
        return run
    with run.locked():
        settings = run.settings
        seed = settings["seed"]
        options = TrainOptions(**settings["train"])
        task = run.task()
        with _random_numbers(seed):
            model = run.empty_model()
        return _train(run, model, task, options, seed, progress)


def _train(
    run: Run,
    model: TaskModel,
    task: Task,
    options: TrainOptions,
    seed: int,
    progress: bool,
) -> Run:
    from undamped.training.checkpoint import load_checkpoint
    from undamped.training.module import TrainingModule

    checkpoint = load_checkpoint(run.checkpoint) if run.checkpoint.exists() else None
    module = TrainingModule(model, task, options, seed, run, checkpoint)
    settings = run.settings
    title = f"{settings['model']['name']} on {settings['task']['name']}"
    reset_peak_memory()
    try:
        with _random_numbers(seed), _stop_gently(module), hushed():
            trainer = _trainer(run, options, title, progress)
            if module.spent < 1 and not module.progress.stopped_early:
                trainer.fit(module)
    except (Exception, KeyboardInterrupt) as error:
        raise _failed(run, error) from error
    state = load_checkpoint(run.checkpoint).progress
    _, peak = memory_use()
    if module.stop_requested:
        run.update(status="interrupted", steps=state.step, seconds=round(state.seconds, 3))
        return run
    run.load_into(model.cpu())
    result: dict[str, Any] = {
        "steps": state.step,
        "seconds": round(state.seconds, 3),
        "peak_memory_bytes": peak,
        "stopped_early": state.stopped_early,
        "best_step": state.best_step,
        "valid": {task.metric: state.best_metric},
        "chance": {"loss": task.chance.loss, task.metric: task.chance.metric},
    }
    for name, part in task.test_parts().items():
        scores = evaluate(model, part, "test", options.batch_size)
        result[name] = {"loss": scores.loss, task.metric: scores.metric}
    run.update(status="finished", result=result)
    return run


def _trainer(run: Run, options: TrainOptions, title: str, progress: bool) -> Any:
    import lightning as L
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    strategy = options.strategy
    if strategy == "auto" and options.devices * options.nodes > 1:
        # Spawned processes work from a script, a notebook and the command line alike.
        strategy = "ddp_spawn" if options.nodes == 1 else "ddp"
    callbacks = []
    if progress:
        from undamped.training.progress import ProgressBar

        callbacks.append(ProgressBar(title))
    try:
        return L.Trainer(
            accelerator=options.accelerator,
            devices=options.devices,
            num_nodes=options.nodes,
            strategy=strategy,
            precision=options.precision,
            max_epochs=-1,
            logger=_tensorboard(run) if options.tensorboard else False,
            callbacks=callbacks,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        first = str(error).strip().splitlines()[0]
        raise OptionError(
            f"train: expected a device set-up that this machine has, got one it has not ({first}). "
            "Look at train.accelerator, train.devices and train.precision."
        ) from None


def _tensorboard(run: Run) -> Any:
    try:
        from lightning.pytorch.loggers import TensorBoardLogger

        return TensorBoardLogger(run.path, name="tensorboard", version="")
    except ModuleNotFoundError:
        raise OptionError(
            "train.tensorboard: expected the tensorboard package, got none. Install it with "
            "pip install 'undamped[tensorboard]'."
        ) from None


def _failed(run: Run, error: BaseException) -> BaseException:
    """Write down why a run ended; return the error to raise."""
    if isinstance(error, KeyboardInterrupt):
        run.update(status="interrupted")
        return error
    # Errors of a spawned process arrive as text; the name of ours is in it.
    message = str(error)
    if "NonFiniteError" in message and not isinstance(error, UndampedError):
        error = NonFiniteError(message.strip().splitlines()[-1].split("NonFiniteError: ")[-1])
    run.update(status="failed", error=str(error).strip().splitlines()[-1])
    return error


def _build_task(task: str | Task, options: Mapping[str, Any], seed: int) -> Task:
    if isinstance(task, Task):
        return task
    task_class = tasks[task]
    chosen = check(task, task_class, options)
    if "seed" in options_of(task_class):
        chosen.setdefault("seed", seed)
    return task_class(**chosen)


def _plain(options: Mapping[str, Any], task: Task) -> dict[str, Any]:
    known = "seed" in options_of(type(task)) if tasks.name_of(type(task)) else False
    return {**options, **({"seed": task.seed} if known else {})}


def _try_one_batch(model: TaskModel, task: Task, options: TrainOptions) -> None:
    """Run one small batch forward and back: bad shapes and slow first calls come out here.

    A copy does it, so that the model keeps its number format, buffers, counters and gradients.
    """
    batch = task.batch("train", 0, min(2, options.batch_size))
    trial = copy.deepcopy(model)
    if options.precision == "64-true":
        trial = trial.double()
    task.loss(trial.run(batch)[0], batch).backward()


def _check_number_format(model: nn.Module, precision: str) -> None:
    """Refuse a model whose numbers are not those that training computes with."""
    formats = {p.dtype for p in model.parameters() if p.is_floating_point()}
    other = formats - {torch.float32}
    if other and precision != "64-true":
        raise OptionError(
            explain(
                "train.precision",
                expected="a model in float32 (only 64-true turns its numbers into others)",
                got=f"{precision} and a model in {', '.join(sorted(map(_named, other)))}",
                remedy="Give train.precision=64-true, or call model.float() first.",
            )
        )


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextlib.contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    """Start torch's random numbers from a seed, and give the caller's back afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def _stop_gently(module: Any) -> Iterator[None]:
    """Turn the first Ctrl-C or SIGTERM into a stop after the present batch, with a checkpoint."""
    if threading.current_thread() is not threading.main_thread() or module.options.devices > 1:
        yield
        return

    def stop(number: int, _frame: Any) -> None:
        if module.stop_requested:
            raise KeyboardInterrupt
        module.stop_requested = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
