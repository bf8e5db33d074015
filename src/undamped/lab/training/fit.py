"""`fit` trains a model on a task and returns its run; `resume` continues an interrupted run."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from undamped._base import errors
from undamped._base.errors import RunError, UndampedError
from undamped._base.memory import memory_use, reset_peak_memory
from undamped.lab.baselines.closed_form import ClosedFormModel
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.tasks.task import Task
from undamped.lab.training.calibration import alarm_notes, calibrate_run, calibrated_scores
from undamped.lab.training.checkpoint import load_checkpoint
from undamped.lab.training.closed_form import train_closed_form
from undamped.lab.training.devices import (
    ProcessGroup,
    check_launched,
    is_secondary_rank,
    lost_process_error,
    silenced,
)
from undamped.lab.training.evaluation import evaluate, with_full_history
from undamped.lab.training.loop import Training, stop_on_signal, train_by_gradients
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.plan import Plan, ShowProgress, create_run, resolve, seeded
from undamped.lab.training.progress import Progress
from undamped.lab.training.run import Run
from undamped.models.task_model import TaskModel

AUTO = "auto"
"""The name that stands for the best model of a portfolio, selected on validation data."""

Watch = Callable[[int, float], bool]


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
    watch: Watch | None = None,
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
    train = asdict(train) if isinstance(train, TrainOptions) else dict(train or {})
    options = {"model": dict(model_options or {}), "task": dict(task_options or {}), "train": train}
    progress = False if is_secondary_rank() else progress
    if model == AUTO:
        from undamped.lab.training.portfolio import fit_best

        return fit_best(
            task, options, seed=seed, out=out, progress=progress, command=command, started=started
        )
    plan = resolve(model, task, options, seed, progress)
    folder = Path(out)
    if not is_secondary_rank():
        run = create_run(plan, out, command)
        folder = run.path
        if started is not None:
            started(run)
    group = ProcessGroup.of(plan.options, folder)
    run = Run(group.broadcast_folder(folder))
    run.set_task(plan.task)
    with run.locked() if group.is_rank_zero else contextlib.nullcontext():
        return _train(run, plan, group, progress, watch)


def resume(path: str | Path, *, progress: ShowProgress = True, watch: Watch | None = None) -> Run:
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
    with run.locked() if group.is_rank_zero else contextlib.nullcontext():
        settings = run.settings
        seed, task = settings["seed"], run.task()
        with seeded(seed):
            model = run.empty_model()
        names = settings["model"]["name"], settings["task"]["name"]
        return _train(run, Plan(*names, model, task, options, {}, seed), group, progress, watch)


def _train(
    run: Run, plan: Plan, group: ProcessGroup, progress: ShowProgress, watch: Watch | None
) -> Run:
    """Train, from a checkpoint if there is one, then evaluate and close the run."""
    model, options = plan.model, plan.options
    task = with_full_history(model, plan.task)
    checkpoint = load_checkpoint(run.checkpoint) if run.checkpoint.exists() else None
    title = f"{plan.model_name} on {plan.task_name}" if progress is True else None
    report = progress if callable(progress) else None
    if options.processes > 1:  # a function cannot be sent to other processes
        report, watch = None, None
    train = train_closed_form if isinstance(model, ClosedFormModel) else train_by_gradients
    spawned = 1 if group.fabric is not None else options.processes
    reset_peak_memory()
    try:
        training = Training(model, task, options, plan.seed, run, checkpoint, title, report, watch)
        with seeded(plan.seed), stop_on_signal(training.stop, spawned), silenced():
            train(training, group)
    except (Exception, KeyboardInterrupt) as error:
        raise _close_failed(run, error, group) from error
    if not group.is_rank_zero:
        return run
    state = load_checkpoint(run.checkpoint).progress
    if training.stop.requested:
        run.update(status="interrupted", steps=state.step, seconds=round(state.seconds, 3))
    else:
        _evaluate_and_close(run, model, task, options, state)
    return run


def _evaluate_and_close(
    run: Run, model: TaskModel, task: Task, options: TrainOptions, state: Progress
) -> None:
    """Score the best weights on the test splits, and write the result to run.json."""
    _, peak = memory_use()
    run.load_into(model.cpu())
    if not isinstance(model, ClosedFormModel):  # which is calibrated before it is fitted again
        calibrate_run(run, model, task, options.batch_size)
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
        if isinstance(test_task, SeriesTask):
            result[name] |= calibrated_scores(run, model, test_task, "test", options.batch_size)
    notes = model.findings()
    if isinstance(task, SeriesTask):
        notes = [*notes, *alarm_notes(run, result)]
    run.update(status="finished", result=result, **({"found": notes} if notes else {}))


def _close_failed(run: Run, error: BaseException, group: ProcessGroup) -> BaseException:
    """Record in run.json why a run ended; return the error to raise."""
    process_error = lost_process_error(error, run.path)
    if not group.is_rank_zero:
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
