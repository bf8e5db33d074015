"""`fit` trains a model on a task and returns its run; `resume` continues an interrupted run."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from undamped._base import errors
from undamped._base.errors import OptionError, RunError, UndampedError, printable
from undamped._base.memory import memory_use, reset_peak_memory
from undamped._base.options import check, options_of
from undamped._base.registry import tasks
from undamped.lab.baselines.learns_at_once import ClosedFormModel
from undamped.lab.data.recordings.column_store import IN_MEMORY
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.lab.training.calibration import (
    alarm_notes,
    alarm_scores,
    band_scores,
    store_alarm,
    store_bands,
)
from undamped.lab.training.devices import make_fabric, silenced
from undamped.lab.training.evaluation import evaluate, with_full_history
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.origins import machine, origins, versions
from undamped.lab.training.process_group import (
    ProcessGroup,
    check_launched,
    is_launched,
    is_secondary_rank,
    lost_process_error,
)
from undamped.lab.training.progress import Progress
from undamped.lab.training.recipes import merged
from undamped.lab.training.run import Run
from undamped.lab.training.signals import stop_gently
from undamped.models.for_task import check_options, model_for, model_options
from undamped.models.task_model import TaskModel

AUTO = "auto"
"""The name that stands for the best model of a portfolio, chosen by validation data."""

ShowProgress = bool | Callable[[str], None]


def fit(
    model: str | TaskModel,
    task: str | Task,
    *,
    model_options: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | TrainOptions | None = None,
    seed: int = 0,
    out: str | Path = "runs",
    progress: ShowProgress = True,
    command: str | None = None,
    started: Callable[[Run], None] | None = None,
    watch: Callable[[int, float], bool] | None = None,
) -> Run:
    """Train a model on a task.

    Args:
        model: A registry name, or a `TaskModel`, such as a `SequenceModel`; "auto" compares a
            portfolio of models and trains the best, see `portfolio.fit_best`.
        task: A registry name, or a `Task`.
        model_options: Options of the model, if `model` is a name.
        task_options: Options of the task, if `task` is a name.
        train: Options of training; see `TrainOptions`. Defaults come from the recipe of the task,
            `Task.recipes`.
        seed: The seed of all random numbers.
        out: The folder in which the run folder is created.
        progress: Whether to show a progress bar; or a function that is called with a line of text
            from time to time.
        command: The command to record in run.json.
        started: Called with the run after its folder is created and before the first batch.
        watch: Called after every validation with its number, from 1, and its metric; if it returns
            true, training is interrupted. Ignored with several processes.

    Returns:
        The finished run.

    Example:
        >>> run = fit("unicornn", "adding", train={"steps": 200})
        >>> run.result["test"]["mse"]
    """
    train = train.to_dict() if isinstance(train, TrainOptions) else dict(train or {})
    options = {"model": dict(model_options or {}), "task": dict(task_options or {}), "train": train}
    progress = False if is_secondary_rank() else progress
    if model == AUTO:
        return _fit_best(task, options, seed, out, progress, command, started)
    plan = _resolve(model, task, options, seed, progress)
    folder = Path(out)
    if not is_secondary_rank():
        run = _create_run(plan, seed, out, command)
        folder = run.path
        if started is not None:
            started(run)
    group = ProcessGroup.of(plan.options, folder)
    run = Run(group.leader_folder(folder))
    run.set_task(plan.task)
    with run.locked() if group.leads else contextlib.nullcontext():
        return _train(run, plan, seed, progress, watch, group)


def resume(
    path: str | Path,
    *,
    progress: ShowProgress = True,
    watch: Callable[[int, float], bool] | None = None,
) -> Run:
    """Continue an interrupted run; its result is the same as without the interruption.

    Args:
        path: The run folder.
        progress: As for `fit`.
        watch: As for `fit`.
    """
    run = Run.open(path)
    if run.settings["status"] == "finished":
        return run
    options = run.train_options()
    check_launched(options)
    progress = False if is_secondary_rank() else progress
    group = ProcessGroup.of(options, run.path)
    with run.locked() if group.leads else contextlib.nullcontext():
        settings = run.settings
        seed = settings["seed"]
        task = run.task()
        with _random_numbers(seed):
            model = run.empty_model()
        names = settings["model"]["name"], settings["task"]["name"]
        plan = _Plan(*names, model, task, options, {})
        return _train(run, plan, seed, progress, watch, group)


# Resolving names and options


class _Plan(NamedTuple):
    """A training whose names are resolved and whose options are complete and checked."""

    model_name: str
    task_name: str
    model: TaskModel
    task: Task
    options: TrainOptions
    settings: dict[str, dict[str, Any]]
    """Options of model and task as run.json stores them."""


def _resolve(
    model: str | TaskModel,
    task: str | Task,
    user_options: dict[str, dict[str, Any]],
    seed: int,
    progress: ShowProgress,
) -> _Plan:
    """Build the task and the model, check all options, and run a trial batch."""
    task_name = task if isinstance(task, str) else tasks.name_of(type(task)) or type(task).__name__
    model_name = model if isinstance(model, str) else type(model).__name__
    task_class = tasks[task] if isinstance(task, str) else type(task)
    task_options = merged(task_class, model_name, user_options)["task"]
    if progress is True and isinstance(task, str):
        _announce_large_file(task_options.get("file"))
    built_task = _build_task(task, task_options, seed)
    settings = merged(
        built_task, model_name, user_options, optional.suggest(built_task, model_name)
    )
    options = TrainOptions(**check("train", TrainOptions, settings["train"]))
    if progress is True and built_task.notes():
        sys.stderr.write(printable("\n".join(built_task.notes()) + "\n"))
    check_launched(options)
    if isinstance(model, TaskModel):
        settings["model"] = {}
    with _random_numbers(seed):
        built_model = _build_model(model, built_task, settings["model"])
        if progress and built_model.notes():
            sys.stderr.write("\n".join(built_model.notes()) + "\n")
        _check_dtype(built_model, options.precision)
        _run_trial_batch(built_model, with_full_history(built_model, built_task), options)
    return _Plan(model_name, task_name, built_model, built_task, options, settings)


def _announce_large_file(file: Any) -> None:
    """Print a line before a large file is scanned, which takes a while."""
    size = Path(file).stat().st_size if isinstance(file, str) and Path(file).is_file() else 0
    if size > IN_MEMORY:
        sys.stderr.write(f"{file}: scanning {size / 1e9:.1f} GB, which stay on disk.\n")


def _build_task(task: str | Task, options: Mapping[str, Any], seed: int) -> Task:
    if isinstance(task, Task):
        return task
    task_class = tasks[task]
    checked = check(task, task_class, options)
    if "seed" in options_of(task_class):
        checked.setdefault("seed", seed)
    return task_class(**checked)


def _build_model(model: str | TaskModel, task: Task, options: dict[str, Any]) -> TaskModel:
    """Return the model for a task, and complete the options that follow from the task.

    These are the size of an embedding that the task initialises, and the number of training
    sequences for a model whose objective divides by it.
    """
    if isinstance(model, TaskModel):
        return model
    count = task.count("train", 1) if "sequences" in model_options(model) else None
    if count is not None:
        options.setdefault("sequences", count)
    vectors = optional.starting_embedding(task)
    if vectors is not None:
        options.setdefault("embedding_size", vectors.shape[1])
    built = model_for(task.task_shape, model, check_options(model, options))
    if vectors is not None:
        built.start_embedding(vectors)
    return built


def _check_dtype(model: nn.Module, precision: str) -> None:
    """Raise an error for a model whose parameters do not have the dtype of training."""
    dtypes = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if dtypes and precision != "64-true":
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise OptionError(
            f"train.precision={precision} needs a model in float32, got one in {names}. Set "
            "train.precision=64-true, or call model.float() first."
        )


def _run_trial_batch(model: TaskModel, task: Task, options: TrainOptions) -> None:
    """Run a small batch forward and backward: wrong shapes raise errors before a run is created.

    A copy of the model is used, so that dtype, buffers, counters and gradients stay the same.
    """
    from undamped.lab.training.at_once import check_data

    check_data(model, task, options)
    batch = task.batch("train", 0, min(2, options.batch_size))
    trial = copy.deepcopy(model)
    if options.precision == "64-true":
        trial = trial.double()
    trial.objective(batch, task.loss).total.backward()


def _create_run(plan: _Plan, seed: int, out: str | Path, command: str | None) -> Run:
    """Create the run folder with a run.json that describes the training."""
    task, model = plan.task, plan.model
    takes_seed = bool(tasks.name_of(type(task))) and "seed" in options_of(type(task))
    run = Run.create(out, f"{plan.task_name}-{plan.model_name}")
    run.update(
        status="running",
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command,
        seed=seed,
        task={
            "name": plan.task_name,
            "options": {**plan.settings["task"], **({"seed": task.seed} if takes_seed else {})},
        },
        model={
            "name": plan.model_name,
            "options": plan.settings["model"],
            "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "shape": task.task_shape.to_dict(),
        },
        train=plan.options.to_dict(),
        versions=versions(),
        machine=machine(),
        **origins(plan.model_name, plan.task_name),
        **task.record(),
    )
    return run


def _fit_best(
    task: str | Task,
    user_options: dict[str, dict[str, Any]],
    seed: int,
    out: str | Path,
    progress: ShowProgress,
    command: str | None,
    started: Callable[[Run], None] | None,
) -> Run:
    """Compare a portfolio of models and train the best one."""
    from undamped.lab.training.portfolio import fit_best
    from undamped.lab.training.portfolio.attempt import check_no_model_options

    if is_launched():
        raise OptionError(
            "model 'auto' needs a single process, since it compares training times, got several. "
            "Name a model, or start one process."
        )
    check_no_model_options(user_options["model"])
    check("train", TrainOptions, user_options["train"])
    task_class = tasks[task] if isinstance(task, str) else type(task)
    options = merged(task_class, AUTO, {"task": user_options["task"]})["task"]
    return fit_best(
        _build_task(task, options, seed),
        task_options=options,
        train=user_options["train"],
        seed=seed,
        out=out,
        progress=progress,
        command=command,
        started=started,
    )


# Training and evaluation


def _train(
    run: Run,
    plan: _Plan,
    seed: int,
    progress: ShowProgress,
    watch: Callable[[int, float], bool] | None,
    group: ProcessGroup,
) -> Run:
    """Train, from a checkpoint if there is one, then evaluate and close the run."""
    from undamped.lab.training.checkpoint import load_checkpoint
    from undamped.lab.training.loop import Training

    model, options = plan.model, plan.options
    task = with_full_history(model, plan.task)
    checkpoint = load_checkpoint(run.checkpoint) if run.checkpoint.exists() else None
    title = f"{plan.model_name} on {plan.task_name}" if progress is True else None
    # A function cannot be sent to other processes.
    single_process = options.devices * options.nodes == 1
    report = progress if callable(progress) and single_process else None
    watch = watch if single_process else None
    reset_peak_memory()
    try:
        training = Training(model, task, options, seed, run, checkpoint, title, report, watch)
        _run_training(training, group)
    except (Exception, KeyboardInterrupt) as error:
        raise _close_failed(run, error, group) from error
    if not group.leads:
        return run
    state = load_checkpoint(run.checkpoint).progress
    if training.stop.requested:
        run.update(status="interrupted", steps=state.step, seconds=round(state.seconds, 3))
    else:
        _evaluate_and_close(run, model, task, options, state)
    return run


def _run_training(training: Any, group: ProcessGroup) -> None:
    """Fit in closed form or by gradients, in this process or in the group."""
    from undamped.lab.training.at_once import fit_closed_form
    from undamped.lab.training.loop import train_and_leave_group

    options = training.options
    spawned = 1 if group.fabric is not None else options.devices * options.nodes
    with _random_numbers(training.seed), stop_gently(training.stop, spawned), silenced():
        if isinstance(training.model, ClosedFormModel):
            if training.checkpoint is None and group.leads:
                fit_closed_form(training.model, training)
        elif group.fabric is not None:
            group.fabric.barrier()  # every process reads the checkpoint before it is overwritten
            if not training.finished:
                train_and_leave_group(group.fabric, training)
        else:
            fabric = make_fabric(options, training.run.path)
            if not training.finished:
                fabric.launch(functools.partial(train_and_leave_group, training=training))


def _evaluate_and_close(
    run: Run, model: TaskModel, task: Task, options: TrainOptions, state: Progress
) -> None:
    """Score the best weights on the test parts, and write the result to run.json."""
    _, peak = memory_use()
    run.load_into(model.cpu())
    if not isinstance(model, ClosedFormModel):
        store_bands(run, model, task, options.batch_size)
        store_alarm(run, model, task, options.batch_size)
    bands = run.bands()
    result: dict[str, Any] = {
        "steps": state.step,
        "seconds": round(state.seconds, 3),
        "cpu_seconds": round(state.cpu_seconds, 3),
        "peak_memory_bytes": peak,
        **({"throughput": state.throughput} if state.throughput else {}),
        "stopped_early": state.stopped_early,
        "best_step": state.best_step,
        "valid": {task.metric: state.best_metric},
        "chance": {"loss": task.chance.loss, task.metric: task.chance.metric},
    }
    if (baseline := task.baseline) is not None:
        result["baseline"] = {task.metric: baseline.metric, "rule": baseline.rule}
    for name, test_task in task.test_tasks().items():
        scores = evaluate(model, test_task, "test", options.batch_size)
        result[name] = {"loss": scores.loss, test_task.metric: scores.metric, **scores.more}
        if bands is not None:
            result[name] |= band_scores(model, test_task, "test", options.batch_size, bands)
        result[name] |= alarm_scores(run, model, test_task, options.batch_size)
    notes = [*model.findings(), *alarm_notes(run, result)]
    run.update(status="finished", result=result, **({"found": notes} if notes else {}))


def _close_failed(run: Run, error: BaseException, group: ProcessGroup) -> BaseException:
    """Record in run.json why a run ended; return the error to raise."""
    process_error = lost_process_error(error, run.path)
    if not group.leads:
        return process_error or error
    if not run.path.is_dir():
        return RunError(f"{run.path} was removed during training. Train again.")
    # An error of a spawned process is a RuntimeError with a traceback as text. Restore its class.
    message = re.search(r"^undamped\.(?:\w+\.)*errors\.(\w+): (.*)", str(error), re.MULTILINE)
    if message is not None and not isinstance(error, UndampedError):
        error = getattr(errors, message[1])(message[2])
    lines = str(error).strip().splitlines() or [type(error).__name__]
    with contextlib.suppress(OSError, RunError):  # the error of the training matters more
        if process_error is not None or isinstance(error, KeyboardInterrupt):
            run.update(status="interrupted")
        else:
            run.update(status="failed", error=lines[-1])
    return process_error or error


@contextlib.contextmanager
def _random_numbers(seed: int) -> Iterator[None]:
    """Seed torch's random numbers, and restore the caller's state afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
