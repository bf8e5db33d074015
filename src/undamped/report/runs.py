"""A run folder becomes a report: curves, result, and the instruments on its best weights."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from undamped.analysis.core.stamped_model import for_instruments
from undamped.report.diagnose import diagnose
from undamped.report.model_report import ModelReport, Score
from undamped.tasks.task import Task
from undamped.training.run import Run

BATCH = 8


def report_run(
    run: Run | str | Path,
    *,
    compare: bool = True,
    memory: bool = False,
    measured: Sequence[str] | None = None,
    tick: Callable[[str], None] | None = None,
) -> ModelReport:
    """Measure the model of a run on its own task and add what training wrote down.

    Gradients start from the answer at the last step, on the first sequences of the test part: a
    loss at every step would put new gradient in everywhere and hide how far the old one got.

    Args:
        run: The run, or its folder; it may be unfinished, then what is there is shown.
        compare: Whether to measure a fresh LSTM of the same size too.
        memory: Whether to measure peak memory too.
        measured: Names of instruments; if none, those that are measured without being asked.
        tick: Called with the name of every measurement before it begins.
    """

    opened = run if isinstance(run, Run) else Run.open(run)
    settings = opened.settings
    task, model = opened.task(), opened.empty_model()
    trained = (opened.path / "model.safetensors").is_file()
    if trained:
        opened.load_into(model)
    report = diagnose_task(
        model,
        task,
        name=opened.path.name,
        compare=compare,
        memory=memory,
        measured=measured,
        settings=_task_settings(settings["task"].get("options", {})),
        tick=tick,
    )
    verdict = report.verdict if trained else f"not trained yet; {report.verdict}"
    return replace(
        report,
        verdict=verdict,
        curve=opened.metrics(),
        score=_score(settings, task),
        options={key: settings[key] for key in ("task", "model", "train", "seed")},
        versions=settings.get("versions", {}),
        command=settings.get("command") or "",
        path=str(opened.path),
        found=settings.get("found", ()),
        tried=settings.get("tried", ()),
    )


def diagnose_task(
    model: nn.Module,
    task: Task,
    *,
    name: str,
    compare: bool = True,
    memory: bool = False,
    measured: Sequence[str] | None = None,
    command: str = "",
    verb: Literal["train", "diagnose"] = "train",
    settings: Sequence[str] = (),
    tick: Callable[[str], None] | None = None,
) -> ModelReport:
    """Measure a model on data of a task.

    Args:
        model: The model.
        task: The task.
        name: What to call the model.
        compare: Whether to measure a fresh LSTM of the same size too.
        memory: Whether to measure peak memory too.
        measured: Names of instruments; if none, those that are measured without being asked.
        command: The command to print.
        verb: The verb of the commands that remedies suggest.
        settings: Settings that were given, which those commands keep.
        tick: Called with the name of every measurement before it begins.
    """
    from undamped.registry import tasks

    seen, inputs = for_instruments(model, task.batch("test", 0, BATCH))
    entered = tasks.name_of(type(task)) or type(task).__name__
    return diagnose(
        seen,
        inputs,
        task=task,
        name=name,
        measured=measured,
        compare=compare,
        memory=memory,
        command=command,
        prefix=f"undamped {verb} {entered}",
        settings=settings,
        whole=model,
        tick=tick,
    )


def _task_settings(options: Mapping[str, Any]) -> list[str]:
    """Return the options of a task as words of a command line."""
    words = []
    for name, value in options.items():
        if name != "seed" and value is not None:
            plain = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            words.append(shlex.quote(f"task.{name}={plain}"))
    return words


def _score(settings: dict[str, Any], task: Task) -> Score | None:
    result = settings.get("result")
    if not result:
        return None
    part = next(iter(task.test_parts()), "valid")
    scores = result.get(part)
    value = scores.get(task.metric) if isinstance(scores, Mapping) else None
    if not isinstance(value, (int, float)):
        return None
    return Score(task.metric, value, task.chance.metric, task.higher_is_better)
