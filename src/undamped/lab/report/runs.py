"""A run folder becomes a report: curves, result, and the instruments on its best weights."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from torch import nn

from undamped.analysis.core.stamped_model import for_instruments
from undamped.lab.report.commands import Commands
from undamped.lab.report.diagnose import AT_ONCE, diagnose
from undamped.lab.report.model_report import ModelReport, Note, Remedy, Score
from undamped.lab.tasks.task import Task
from undamped.lab.training.recipes import recommended
from undamped.lab.training.run import Run

BATCH = 8
LATE = 0.5
"""Share of the training before which the best validation counts as early."""
FEWEST_AFTER = 4
"""Validations after the best one from which on a training went on for too long."""
LOWER = 0.7
"""Share of the training loss below which it has fallen on."""


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
        applied=_applied(settings, task),
        tick=tick,
    )
    curve, score = opened.metrics(), _score(settings, task)
    if not trained:
        report = replace(report, verdict=f"not trained yet; {report.verdict}")
    elif score is not None:
        report = _judged_by_score(report, score, _overfitting(settings, curve), settings)
    return replace(
        report,
        curve=curve,
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
    applied: Collection[str] = (),
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
        applied: Settings that need no advice; see `remedies`.
        tick: Called with the name of every measurement before it begins.
    """
    from undamped._base.registry import tasks

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
        applied=applied,
        whole=model,
        tick=tick,
    )


def _judged_by_score(
    report: ModelReport, score: Score, overfitting: str, settings: Mapping[str, Any]
) -> ModelReport:
    """Put the score first, and what the instruments say below it."""
    # Gradients that vanish or explode are no verdict on a model that has learnt its task.
    tone = "neutral" if "gradient_flow" in report.results and report.tone == "bad" else report.tone
    notes = [Note(report.verdict, tone)] if report.verdict and not _at_once(report) else []
    for result in report.results.values():
        judged = result.judgement
        if judged is not None and judged.verdict != report.verdict:
            notes.append(Note(judged.verdict, judged.tone))
    remedies = list(report.remedies)
    if overfitting:
        notes.insert(0, Note(overfitting))
        task, model = settings["task"], settings["model"]["name"]
        words = _task_settings(task.get("options", {}))
        command = Commands(f"undamped train {task['name']}", model, words)
        advice = "Stop when validation gets no better: set train.patience"
        remedies.insert(0, Remedy(advice, command.changed("train.patience=10"), "train.patience"))
    tone = "good" if score.better else "bad"
    return replace(
        report, score=score, verdict=score.words, tone=tone, notes=notes, remedies=remedies
    )


def _at_once(report: ModelReport) -> bool:
    return report.verdict.startswith(AT_ONCE)


def _overfitting(settings: Mapping[str, Any], curve: Sequence[Mapping[str, float]]) -> str:
    """Say that the best validation came long before the end while the training loss fell on."""
    result, train = settings.get("result") or {}, settings.get("train", {})
    best, last = result.get("best_step"), result.get("steps")
    if not best or not last or train.get("patience") or best > LATE * last:
        return ""
    before = [row for row in curve if row["step"] <= best and "train_loss" in row]
    after = [row for row in curve if row["step"] > best and "train_loss" in row]
    if not before or len(after) < FEWEST_AFTER:
        return ""
    if not after[-1]["train_loss"] < LOWER * before[-1]["train_loss"]:
        return ""
    return (
        f"it overfits: validation was best at step {best:,} of {last:,} (these weights are kept), "
        "and after that only the training loss fell"
    )


def _applied(settings: Mapping[str, Any], task: Task) -> set[str]:
    """Return settings that need no advice: made already, or chosen by the program itself."""
    applied = {"train.clip"} if settings.get("train", {}).get("clip") else set()
    model = settings["model"]
    chosen = recommended(task, model["name"], task.suggest(model["name"]))["model"].get("dt")
    if chosen is not None and model.get("options", {}).get("dt") == chosen:
        applied.add("model.dt")
    return applied


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
    words = "validation" if part == "valid" else part
    guess = task.chance.metric
    known = guess if math.isfinite(guess) else None
    baseline = task.baseline
    rule = None if baseline is None else (baseline.metric, baseline.rule)
    return Score(task.metric, value, known, task.higher_is_better, words, rule)
