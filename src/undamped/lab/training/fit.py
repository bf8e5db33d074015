"""`fit`: train a model on a task, and leave a run behind; `resume`: go on with one."""

from __future__ import annotations

import contextlib
import copy
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import nn

from undamped._base import errors
from undamped._base.errors import OptionError, RunError, UndampedError, explain, printable
from undamped._base.memory import memory_use, reset_peak_memory
from undamped._base.options import check, options_of
from undamped._base.registry import tasks
from undamped.lab.baselines.learns_at_once import LearnsAtOnce
from undamped.lab.data.recordings.formats.kept import IN_MEMORY
from undamped.lab.tasks.task import Task
from undamped.lab.training.alarm import alarm_scores, alarm_sentences, keep_alarm
from undamped.lab.training.calibration import band_scores, keep_bands
from undamped.lab.training.crew import Crew, check_launched, is_follower, is_launched, lost
from undamped.lab.training.environment import machine, versions
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.origins import origins
from undamped.lab.training.past import as_seen_by
from undamped.lab.training.quiet import hushed
from undamped.lab.training.recipes import merged
from undamped.lab.training.run import Run
from undamped.lab.training.signals import stop_gently
from undamped.models.for_task import check_options, model_for, model_options
from undamped.models.task_model import TaskModel

AUTO = "auto"
"""In the place of a model: the best of a portfolio, by validation data."""


def fit(
    model: str | TaskModel,
    task: str | Task,
    *,
    model_options: Mapping[str, Any] | None = None,
    task_options: Mapping[str, Any] | None = None,
    train: Mapping[str, Any] | TrainOptions | None = None,
    seed: int = 0,
    out: str | Path = "runs",
    progress: bool | Callable[[str], None] = True,
    command: str | None = None,
    started: Callable[[Run], None] | None = None,
    watch: Callable[[int, float], bool] | None = None,
) -> Run:
    """Train a model on a task.

    Args:
        model: A registry name, or a `TaskModel` of your own, such as a `SequenceModel`; "auto"
            races a portfolio of models and fits the best, see `portfolio.fit_best`.
        task: A registry name, or a `Task` of your own.
        model_options: Options of the network, when a name was given.
        task_options: Options of the task, when a name was given.
        train: Options of training; see `TrainOptions`. What is not said comes from the recipe of
            the task, `Task.recipes`.
        seed: Where all random numbers come from.
        out: The folder in which the run's folder is made.
        progress: Whether to show a progress bar; or a function that is told, now and then, how
            it goes.
        command: What to write down as the command that made the run.
        started: Called with the run when its folder is there and before the first batch.
        watch: Called after every validation with its number, from 1, and its metric; when it
            answers true, the training is interrupted there. Not with several processes.

    Returns:
        The finished run.

    Example:
        >>> run = fit("unicornn", "adding", train={"steps": 200})
        >>> run.result["test"]["mse"]
    """
    if model == AUTO:
        return _fit_best(
            task, model_options, task_options, train, seed, out, progress, command, started
        )
    task_name = task if isinstance(task, str) else tasks.name_of(type(task)) or type(task).__name__
    model_name = model if isinstance(model, str) else type(model).__name__
    given = train.to_dict() if isinstance(train, TrainOptions) else dict(train or {})
    said = {"model": dict(model_options or {}), "task": dict(task_options or {}), "train": given}
    task_class = tasks[task] if isinstance(task, str) else type(task)
    of_task = merged(task_class, model_name, said)["task"]
    if progress is True and isinstance(task, str):
        _say_large(of_task.get("file"))
    built_task = _build_task(task, of_task, seed)
    settings = merged(built_task, model_name, said, built_task.suggest(model_name))
    options = TrainOptions(**check("train", TrainOptions, settings["train"]))
    if progress is True and built_task.notes():
        sys.stderr.write(printable("\n".join(built_task.notes()) + "\n"))
    check_launched(options)
    progress = False if is_follower() else progress
    from undamped.lab.training.at_once import refuse_data

    if isinstance(model, TaskModel):
        settings["model"] = {}
    with _random_numbers(seed):
        built_model = _build_model(model, built_task, settings["model"])
        if progress and built_model.notes():
            sys.stderr.write("\n".join(built_model.notes()) + "\n")
        _check_number_format(built_model, options.precision)
        seen = as_seen_by(built_model, built_task)
        refuse_data(built_model, seen, options)
        _try_one_batch(built_model, seen, options)
    folder = Path(out)
    if not is_follower():
        run = Run.create(out, f"{task_name}-{model_name}")
        folder = run.path
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
            **origins(model_name, task_name),
            **built_task.record(),
        )
        if started is not None:
            started(run)
    crew = Crew.of(options, folder)
    run = Run(crew.folder_of_the_leader(folder)) if crew.fabric is not None else Run(folder)
    run.hand_over(built_task)
    with run.locked() if crew.leads else contextlib.nullcontext():
        return _train(run, built_model, built_task, options, seed, progress, watch, crew)


def _fit_best(
    task: str | Task,
    model_options: Mapping[str, Any] | None,
    task_options: Mapping[str, Any] | None,
    train: Mapping[str, Any] | TrainOptions | None,
    seed: int,
    out: str | Path,
    progress: bool | Callable[[str], None],
    command: str | None,
    started: Callable[[Run], None] | None,
) -> Run:
    from undamped.lab.training.portfolio import fit_best
    from undamped.lab.training.portfolio.clock import refuse_model_options

    if is_launched():
        raise OptionError(
            explain(
                "auto",
                expected="one process, since models are raced against the clock",
                got="several that were started together",
                remedy="Name the model, or start one process.",
            )
        )
    refuse_model_options(dict(model_options or {}))
    given = train.to_dict() if isinstance(train, TrainOptions) else dict(train or {})
    check("train", TrainOptions, given)
    task_class = tasks[task] if isinstance(task, str) else type(task)
    options = merged(task_class, AUTO, {"task": dict(task_options or {})})["task"]
    return fit_best(
        _build_task(task, options, seed),
        task_options=options,
        train=given,
        seed=seed,
        out=out,
        progress=progress,
        command=command,
        started=started,
    )


def resume(
    path: str | Path,
    *,
    progress: bool | Callable[[str], None] = True,
    watch: Callable[[int, float], bool] | None = None,
) -> Run:
    """Go on with an interrupted run, to the numbers it would have had without the interruption.

    Args:
        path: The run folder.
        progress: Whether to show a progress bar; or a function that is told how it goes.
        watch: As for `fit`.
    """
    run = Run.open(path)
    if run.settings["status"] == "finished":
        return run
    options = run.train_options()
    check_launched(options)
    progress = False if is_follower() else progress
    crew = Crew.of(options, run.path)
    with run.locked() if crew.leads else contextlib.nullcontext():
        settings = run.settings
        seed = settings["seed"]
        task = run.task()
        with _random_numbers(seed):
            model = run.empty_model()
        return _train(run, model, task, options, seed, progress, watch, crew)


def _train(
    run: Run,
    model: TaskModel,
    task: Task,
    options: TrainOptions,
    seed: int,
    progress: bool | Callable[[str], None],
    watch: Callable[[int, float], bool] | None,
    crew: Crew,
) -> Run:
    from undamped.lab.training.at_once import learn_at_once
    from undamped.lab.training.checkpoint import load_checkpoint
    from undamped.lab.training.devices import make_fabric
    from undamped.lab.training.loop import Training, train_and_part

    task = as_seen_by(model, task)
    checkpoint = load_checkpoint(run.checkpoint) if run.checkpoint.exists() else None
    settings = run.settings
    title = f"{settings['model']['name']} on {settings['task']['name']}"
    shown = title if progress is True else None
    # A function does not travel to other processes.
    alone = options.devices * options.nodes == 1
    tell = progress if callable(progress) and alone else None
    watcher = watch if alone else None
    together = crew.fabric is not None
    reset_peak_memory()
    try:
        training = Training(model, task, options, seed, run, checkpoint, shown, tell, watcher)
        stoppable = stop_gently(training.stop, 1 if together else options.devices * options.nodes)
        with _random_numbers(seed), stoppable, hushed():
            if isinstance(model, LearnsAtOnce):
                if checkpoint is None and crew.leads:
                    learn_at_once(model, training)
            elif crew.fabric is not None:
                crew.fabric.barrier()  # everybody has read the checkpoint before it is written
                if not training.finished:
                    train_and_part(crew.fabric, training)
            else:
                fabric = make_fabric(options, run.path)
                if not training.finished:
                    fabric.launch(functools.partial(train_and_part, training=training))
    except (Exception, KeyboardInterrupt) as error:
        raise _failed(run, error, crew) from error
    if not crew.leads:
        return run
    state = load_checkpoint(run.checkpoint).progress
    _, peak = memory_use()
    if training.stop.requested:
        run.update(status="interrupted", steps=state.step, seconds=round(state.seconds, 3))
        return run
    run.load_into(model.cpu())
    if not isinstance(model, LearnsAtOnce):
        keep_bands(run, model, task, options.batch_size)
        keep_alarm(run, model, task, options.batch_size)
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
    for name, part in task.test_parts().items():
        scores = evaluate(model, part, "test", options.batch_size)
        result[name] = {"loss": scores.loss, part.metric: scores.metric, **scores.more}
        if bands is not None:
            result[name] |= band_scores(model, part, "test", options.batch_size, bands)
        result[name] |= alarm_scores(run, model, part, options.batch_size)
    found = [*model.found(), *alarm_sentences(run, result)]
    told = {"found": found} if found else {}
    run.update(status="finished", result=result, **told)
    return run


def _failed(run: Run, error: BaseException, crew: Crew) -> BaseException:
    """Write down why a run ended; return the error to raise."""
    absent_process = lost(error, run.path)
    if not crew.leads:
        return absent_process or error
    if not run.path.is_dir():
        return RunError(
            explain(
                str(run.path),
                expected="the folder of the run, to write to",
                got="none: somebody removed it while training",
                remedy="Train anew.",
            )
        )
    # Errors of a spawned process arrive as the text of a traceback; ours are raised as themselves.
    message = re.search(r"^undamped\.errors\.(\w+): (.*)", str(error), re.MULTILINE)
    if message is not None and not isinstance(error, UndampedError):
        error = getattr(errors, message[1])(message[2])
    lines = str(error).strip().splitlines() or [type(error).__name__]
    with contextlib.suppress(OSError, RunError):  # what ended the training is to be said
        if absent_process is not None or isinstance(error, KeyboardInterrupt):
            run.update(status="interrupted")
        else:
            run.update(status="failed", error=lines[-1])
    return absent_process or error


def _say_large(file: Any) -> None:
    """Say that something is going on while a large file is looked through."""
    size = Path(file).stat().st_size if isinstance(file, str) and Path(file).is_file() else 0
    if size > IN_MEMORY and not is_follower():
        sys.stderr.write(f"{file}: looking through {size / 1e9:.1f} GB, which stay on disk.\n")


def _build_task(task: str | Task, options: Mapping[str, Any], seed: int) -> Task:
    if isinstance(task, Task):
        return task
    task_class = tasks[task]
    chosen = check(task, task_class, options)
    if "seed" in options_of(task_class):
        chosen.setdefault("seed", seed)
    return task_class(**chosen)


def _build_model(model: str | TaskModel, task: Task, options: dict[str, Any]) -> TaskModel:
    """Return the network for a task; options that the task knows are completed.

    These are the size of an embedding that the task starts, and the number of training sequences
    for a model whose objective divides by it.
    """
    if isinstance(model, TaskModel):
        return model
    count = task.count("train", 1) if "sequences" in model_options(model) else None
    if count is not None:
        options.setdefault("sequences", count)
    vectors = task.starting_embedding()
    if vectors is not None:
        options.setdefault("embedding_size", vectors.shape[1])
    built = model_for(task.task_shape, model, check_options(model, options))
    if vectors is not None:
        built.start_embedding(vectors)
    return built


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
    trial.objective(batch, task.loss).total.backward()


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
