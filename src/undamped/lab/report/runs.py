"""The report of a run: training curves, score, and the instruments on its best weights."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError
from undamped.lab.export import subject_of
from undamped.lab.export.c.cost import device_sentences
from undamped.lab.report.diagnose import CLOSED_FORM, Progress, examine, probe_of
from undamped.lab.report.forecasts import forecasts_on_test
from undamped.lab.report.model_report import ModelReport, Note, Remedy, Score
from undamped.lab.report.remedies import Commands
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.lab.training.origins import with_words
from undamped.lab.training.recipes import recommended
from undamped.lab.training.run import Run

LATE = 0.5
"""Fraction of the training before which the best validation counts as early."""
MIN_VALIDATIONS = 4
"""Validations after the best one from which on the training was too long."""
LOWER = 0.7
"""Ratio of training losses below which the loss has continued to fall."""


def report_run(
    run: Run | str | Path,
    *,
    compare: bool = True,
    memory: bool = False,
    measured: Sequence[str] | None = None,
    progress: Progress | None = None,
    seconds: float = math.inf,
) -> ModelReport:
    """Measure the model of a run on its task and add the results of training.

    The loss of gradient flow is the output at the last step, for the first sequences of the test
    split: a loss at every step would add new gradient everywhere and hide how far the old one got.

    Args:
        run: The run, or its folder; it may be unfinished.
        compare: Whether to compare with an untrained LSTM of the same size.
        memory: Whether to measure peak memory.
        measured: Names of instruments; by default all but those that are only used on request.
        progress: Called with the name of every measurement before it begins.
        seconds: Time limit of the measurements; the report names those that are missing.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    settings = opened.settings
    task, model = opened.task(), opened.empty_model()
    trained = (opened.path / "model.safetensors").is_file()
    if trained:
        opened.load_into(model)
    report = examine(
        probe_of(model, task=task, name=opened.path.name, memory=memory),
        compare=compare,
        measured=measured,
        progress=progress,
        seconds=seconds,
    )
    curve, score = opened.metrics(), _score(settings, task)
    if not trained:
        report = replace(report, verdict=f"not trained yet; {report.verdict}")
    elif score is not None:
        report = _judged_by_score(report, score, _overfitting(settings, curve))
        forecasts = forecasts_on_test(opened, task)
        if forecasts is not None and forecasts.sentence:
            notes = [Note(forecasts.sentence, forecasts.tone), *report.notes]
            report = replace(report, forecasts=forecasts, notes=notes)
    words = _task_settings(settings["task"].get("options", {}))
    commands = Commands(
        f"undamped train {settings['task']['name']}", settings["model"]["name"], words
    )
    path = shlex.quote(str(opened.path))
    return replace(
        commands.add_to(report, _applied(settings, task)),
        curve=curve,
        pending=dict.fromkeys(report.pending, f"undamped diagnose {path}{with_words(settings)}"),
        options={key: settings[key] for key in ("task", "model", "train", "seed")},
        versions=settings.get("versions", {}),
        command=settings.get("command") or "",
        path=str(opened.path),
        findings=(*settings.get("found", ()), *_device_sentences(opened, trained)),
        candidates=settings.get("tried", ()),
    )


def _device_sentences(run: Run, trained: bool) -> list[str]:
    """Return a sentence about the cost on a microcontroller, for models that have C code."""
    if not trained:
        return []
    try:
        subject = subject_of(run)
    except OptionError:  # it does not read sequences sample by sample
        return []
    return device_sentences(subject)


def _judged_by_score(report: ModelReport, score: Score, overfitting: str) -> ModelReport:
    """Return the report with the score as its verdict, and the findings of instruments as notes."""
    # Gradients that vanish or explode do not matter for a model that has learned its task.
    tone = "neutral" if "gradient_flow" in report.results and report.tone == "bad" else report.tone
    closed_form = report.verdict.startswith(CLOSED_FORM)
    notes = [Note(report.verdict, tone)] if report.verdict and not closed_form else []
    for result in report.results.values():
        judgement = result.judgement
        if judgement is not None and judgement.verdict != report.verdict:
            notes.append(Note(judgement.verdict, judgement.tone))
    remedies = list(report.remedies)
    if overfitting:
        notes.insert(0, Note(overfitting))
        advice = "Stop when the validation loss no longer falls: set train.patience"
        remedies.insert(0, Remedy(advice, setting="train.patience=10"))
    tone = "good" if score.better else "bad"
    return replace(
        report, score=score, verdict=score.summary, tone=tone, notes=notes, remedies=remedies
    )


def _overfitting(settings: Mapping[str, Any], curve: Sequence[Mapping[str, float]]) -> str:
    """Return a note if validation was best long before the end; empty if it was not."""
    result, train = settings.get("result") or {}, settings.get("train", {})
    best, last = result.get("best_step"), result.get("steps")
    if not best or not last or train.get("patience") or best > LATE * last:
        return ""
    before = [row for row in curve if row["step"] <= best and "train_loss" in row]
    after = [row for row in curve if row["step"] > best and "train_loss" in row]
    if not before or len(after) < MIN_VALIDATIONS:
        return ""
    if not after[-1]["train_loss"] < LOWER * before[-1]["train_loss"]:
        return ""
    return (
        f"it overfits: validation was best at step {best:,} of {last:,} (the weights of that step "
        "are used), and after that only the training loss fell"
    )


def _applied(settings: Mapping[str, Any], task: Task) -> set[str]:
    """Return settings that need no advice: set already, or chosen by the program."""
    applied = {"train.clip"} if settings.get("train", {}).get("clip") else set()
    model = settings["model"]
    dt = recommended(task, model["name"], optional.suggest(task, model["name"]))["model"].get("dt")
    if dt is not None and model.get("options", {}).get("dt") == dt:
        applied.add("model.dt")
    return applied


def _task_settings(options: Mapping[str, Any]) -> list[str]:
    """Return the options of a task as settings of a command line."""
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
    split = next(iter(task.test_tasks()), "valid")
    scores = result.get(split)
    value = scores.get(task.metric) if isinstance(scores, Mapping) else None
    if not isinstance(value, (int, float)):
        return None
    name = "validation" if split == "valid" else split
    chance = task.chance.metric if math.isfinite(task.chance.metric) else None
    baseline = task.baseline
    rule = None if baseline is None else (baseline.metric, baseline.rule)
    return Score(task.metric, value, chance, task.higher_is_better, name, rule)
