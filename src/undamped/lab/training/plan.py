"""The plan of a training: names become objects, options are completed and checked."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, printable
from undamped._base.options import check, options_of
from undamped._base.registry import tasks
from undamped.kernels.shared.threads import flush_subnormals
from undamped.lab.data.recordings.on_disk import IN_MEMORY
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.lab.training.closed_form import check_data
from undamped.lab.training.devices import check_launched
from undamped.lab.training.evaluation import with_full_history
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.origins import machine, origins, versions
from undamped.lab.training.recipes import merged
from undamped.lab.training.run import Run
from undamped.models.for_task import check_options, model_for, model_options
from undamped.models.task_model import TaskModel

ShowProgress = bool | Callable[[str], None]


class Plan(NamedTuple):
    """A training whose names are resolved and whose options are complete and checked."""

    model_name: str
    task_name: str
    model: TaskModel
    task: Task
    options: TrainOptions
    settings: dict[str, dict[str, Any]]
    """Options of model and task as run.json stores them."""
    seed: int


def resolve(
    model: str | TaskModel,
    task: str | Task,
    user_options: dict[str, dict[str, Any]],
    seed: int,
    progress: ShowProgress,
) -> Plan:
    """Build the task and the model, check all options, and run a trial batch."""
    task_name = task if isinstance(task, str) else tasks.name_of(type(task)) or type(task).__name__
    model_name = model if isinstance(model, str) else type(model).__name__
    task_class = tasks[task] if isinstance(task, str) else type(task)
    task_options = merged(task_class, model_name, user_options)["task"]
    if progress is True and isinstance(task, str):
        _announce_large_file(task_options.get("file"))
    built_task = build_task(task, task_options, seed)
    settings = merged(
        built_task, model_name, user_options, optional.suggest(built_task, model_name)
    )
    options = TrainOptions(**check("train", TrainOptions, settings["train"]))
    if progress is True and built_task.notes():
        sys.stderr.write(printable("\n".join(built_task.notes()) + "\n"))
    check_launched(options)
    if isinstance(model, TaskModel):
        settings["model"] = {}
    with seeded(seed):
        built_model = _build_model(model, built_task, settings["model"])
        if progress and built_model.notes():
            sys.stderr.write("\n".join(built_model.notes()) + "\n")
        _run_trial_batch(built_model, with_full_history(built_model, built_task), options)
    return Plan(model_name, task_name, built_model, built_task, options, settings, seed)


def _announce_large_file(file: Any) -> None:
    """Print a line before a large file is scanned, which takes a while."""
    size = Path(file).stat().st_size if isinstance(file, str) and Path(file).is_file() else 0
    if size > IN_MEMORY:
        sys.stderr.write(f"{file}: scanning {size / 1e9:.1f} GB, which stay on disk.\n")


def build_task(task: str | Task, options: Mapping[str, Any], seed: int) -> Task:
    """Return the task of a name; its options are checked."""
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
        _start_embedding(built, vectors)
    return built


def _start_embedding(model: TaskModel, vectors: Tensor) -> None:
    """Initialise the embedding of symbols of a model with vectors (symbols, size)."""
    embedding = getattr(model, "embedding", None)
    if not isinstance(embedding, nn.Embedding) or embedding.weight.shape != vectors.shape:
        size = embedding.weight.shape[1] if isinstance(embedding, nn.Embedding) else 0
        raise OptionError(
            f"model.embedding_size must be {vectors.shape[1]}, the size of the task's vectors, got "
            f"{size}. Leave it out."
        )
    with torch.no_grad():
        embedding.weight.copy_(vectors)


@flush_subnormals()  # already here: torch starts its threads, which inherit the mode
def _run_trial_batch(model: TaskModel, task: Task, options: TrainOptions) -> None:
    """Run a small batch forward and backward: wrong shapes raise errors before a run is created.

    A copy of the model is used, so that dtype, buffers, counters and gradients stay the same.
    """
    double = options.precision == "64-true"
    dtypes = {p.dtype for p in model.parameters() if p.is_floating_point()} - {torch.float32}
    if dtypes and not double:
        names = ", ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise OptionError(
            f"train.precision={options.precision} needs a model in float32, got one in {names}. "
            "Set train.precision=64-true, or call model.float() first."
        )
    check_data(model, task, options)
    batch = task.batch("train", 0, min(2, options.batch_size))
    trial = copy.deepcopy(model)
    trial = trial.double() if double else trial
    trial.objective(batch, task.loss).total.backward()


def create_run(plan: Plan, out: str | Path, command: str | None) -> Run:
    """Create the run folder with a run.json that describes the training."""
    task, model = plan.task, plan.model
    takes_seed = bool(tasks.name_of(type(task))) and "seed" in options_of(type(task))
    run = Run.create(out, f"{plan.task_name}-{plan.model_name}")
    run.update(
        status="running",
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=command,
        seed=plan.seed,
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
        train=asdict(plan.options),
        versions=versions(),
        machine=machine(),
        **origins(plan.model_name, plan.task_name),
        **task.record(),
    )
    return run


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers, and restore the caller's state afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield
