"""`fit("auto", task)`: compare models on validation data, then train the best one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, UndampedError, printable
from undamped._base.options import check
from undamped._base.registry import models, tasks
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.lab.training.devices import is_launched
from undamped.lab.training.options import BUDGETS, TrainOptions
from undamped.lab.training.plan import ShowProgress, build_task
from undamped.lab.training.portfolio import closed_form_candidates, ensembles, networks
from undamped.lab.training.portfolio.attempt import (
    Attempt,
    Clock,
    Selection,
    best_of,
    check_auto_options,
    in_short,
    standard_error,
)
from undamped.lab.training.portfolio.ensembles import data_of, valid_count
from undamped.lab.training.recipes import merged
from undamped.lab.training.run import Run
from undamped.models.task_model import StreamingModel
from undamped.nn.recurrent import Recurrent

MARGIN = 2.0
"""Standard errors by which a network has to be better."""
NAIVE = closed_form_candidates.CANDIDATES[0]
FEW = 20
"""Validation targets below which no network is tried: the best of a hundred validations on a
handful of series is luck."""


def fit_best(
    task: str | Task,
    user_options: dict[str, dict[str, Any]],
    *,
    seed: int,
    out: str | Path,
    progress: ShowProgress = True,
    command: str | None = None,
    started: Callable[[Run], None] | None = None,
) -> Run:
    """Compare a portfolio of models on validation data, and train the best one.

    Models that are fitted in closed form come first, the cheapest before the others. If there is
    little validation data, they are scored on several draws of it. The weighted mean of their
    predictions, an ensemble, is preferred to the best of them unless it is worse by more than a
    standard error; if models are named, only if `ensemble` is among them. Then networks are trained
    in two rounds, if there are at least twenty validation targets. A network has to be better by
    more than two standard errors, both on the same validation split and than the mean over all
    draws: there are several networks, and each reports the best of its validations. The best model
    is then trained as usual: a closed-form model on training and validation data, a network with
    early stopping on validation data. The test split is used only at the very end.

    Args:
        task: A registry name, or a `Task`.
        user_options: Options by "model", "task" and "train". The only one of "model" is
            `candidates`, names of the models to compare. A budget of `seconds` or `minutes` is
            for everything (five minutes by default); one of `steps` or `epochs` is for the longest
            training of a network, and makes the comparison a function of the seed.
        seed: As for `fit`, like all further arguments.
        out: The folder in which the run folder is created.
        progress: Whether to print progress; or a function that is called with lines of text.
        command: The command to record in run.json.
        started: Called with the run after its folder is created.
    """
    from undamped.lab.training.fit import AUTO, fit

    _check_single_process()
    candidates = check_auto_options(user_options["model"]).get("candidates")
    train = user_options["train"]
    check("train", TrainOptions, train)
    task_class = tasks[task] if isinstance(task, str) else type(task)
    task_options = merged(task_class, AUTO, {"task": user_options["task"]})["task"]
    task = build_task(task, task_options, seed)
    _check_validation(task)
    if progress is True:  # before the comparison, which takes minutes
        sys.stderr.write(printable("".join(f"{note}\n" for note in task.notes())))
    options = {name: value for name, value in train.items() if name not in BUDGETS}
    selection = Selection(
        task, options, seed, _reporter(task, progress), progress is True, candidates
    )
    attempts, best, why = _choose(selection, Clock.of(train))
    # A closed-form model is fitted in one process, whatever networks were trained on.
    plain = {name: value for name, value in options.items() if name in ("batch_size", "precision")}
    runs: list[Run] = []

    def begin(run: Run) -> None:
        runs.append(run)
        run.update(tried=[attempt.to_dict() for attempt in attempts], why=why)
        if started is not None:
            started(run)

    while True:
        try:
            return fit(
                best.model,
                task,
                task_options=task_options,
                model_options=best.options,
                train=best.train if best.steps else plain,
                seed=seed,
                out=out,
                # A network has its own progress bar; the notes were printed above.
                progress=_print if progress is True and not best.steps else progress,
                command=command,
                started=begin,
            )
        except UndampedError as error:
            # A model that was scored may still fail on all data; then the next best is trained.
            failed = replace(best, why_not=str(error))
            attempts = [failed if attempt is best else attempt for attempt in attempts]
            if not any(attempt.usable for attempt in attempts):
                raise
            while runs:
                shutil.rmtree(runs.pop().path, ignore_errors=True)
            best, why = select(attempts, task)


def streaming_candidates(
    names: Sequence[str] | None, *, exportable: bool = False
) -> tuple[str, ...]:
    """Return the models of a comparison that follow a stream.

    All of them can be exported to ONNX, except for the naive baseline.

    Args:
        names: Models to compare; None for the portfolio.
        exportable: Whether to leave out those that cannot be exported.
    """
    names = names or (*closed_form_candidates.CANDIDATES, *networks.CANDIDATES)
    stream = [name for name in names if issubclass(models[name], (StreamingModel, Recurrent))]
    usable = tuple(name for name in stream if not exportable or name != NAIVE)
    if not usable:
        raise OptionError(
            f"None of {', '.join(names)} follows a stream or can be exported. Add bank or unicornn "
            "to model.candidates, or omit --streaming and --exportable."
        )
    return usable


def _check_single_process() -> None:
    if is_launched():
        raise OptionError(
            "model 'auto' needs a single process, since it compares training times, got several. "
            "Name a model, or start one process."
        )


def _choose(selection: Selection, clock: Clock) -> tuple[list[Attempt], Attempt, str]:
    """Return all attempts of the comparison, the best of them, and the reason for the choice."""
    if optional.too_short(selection.task):
        best = Attempt(closed_form_candidates.FORECASTERS[0])
        why = f"There are too few values to compare models; {best.model} needs no comparison."
        return [], best, why
    attempts = compare(selection, clock)
    return attempts, *select(attempts, selection.task)


def compare(selection: Selection, clock: Clock) -> list[Attempt]:
    """Try the models of the portfolio within the budget."""
    task = selection.task
    attempts: list[Attempt] = []
    best, reserve = None, 0.0
    for name in closed_form_candidates.candidates(task, selection.candidates):
        if selection.verbose:
            _print(f"trying {name}")
        remaining = clock.without(reserve)
        attempts.append(closed_form_candidates.try_closed_form(name, selection, remaining))
        selection.report(attempts[-1])
        best = best_of(attempts, task)
        if best is not None:
            reserve = ensembles.final_seconds([best])
    ensemble = ensembles.try_ensemble(attempts, selection, clock)
    if ensemble is not None:
        attempts.append(ensemble)
        selection.report(ensemble)
        parts = [attempt for attempt in attempts if attempt.model in ensemble.options["of"]]
        reserve = ensembles.final_seconds(parts)
    why_not = _why_no_networks(best, task)
    if why_not:
        names = networks.candidates(selection.candidates)
        return [*attempts, *(Attempt(name, why_not=why_not) for name in names)]
    return [*attempts, *networks.try_networks(selection, clock, reserve)]


def select(attempts: list[Attempt], task: Task) -> tuple[Attempt, str]:
    """Return the best attempt, and the reason in a sentence."""
    best, why = _best(attempts, task)
    late = [attempt.model for attempt in attempts if attempt.late]
    if late:
        why += f" For want of time it was not compared with {', '.join(late)} (train.minutes)."
    return best, why


def _best(attempts: list[Attempt], task: Task) -> tuple[Attempt, str]:
    closed_form, why = ensembles.choose([a for a in attempts if not a.steps], task)
    network = best_of([attempt for attempt in attempts if attempt.steps], task)
    if closed_form is None or network is None:
        best = closed_form or network
        if best is None:
            reason = attempts[0].why_not.rstrip(".")
            raise OptionError(
                f"None of the models that auto compares can be used: {reason}. Name a model; "
                "'undamped list models' shows all."
            )
        return best, why or f"{best.model} was best on {data_of(best)}."
    pick = max if task.higher_is_better else min
    to_beat = pick(closed_form.valid, closed_form.score)
    gain = network.valid - to_beat if task.higher_is_better else to_beat - network.valid
    if gain > MARGIN * standard_error(to_beat, valid_count(task), task):
        return network, (
            f"{network.model} was better than {closed_form.model}, which is fitted in seconds, by "
            "more than two standard errors on validation data."
        )
    return closed_form, (
        f"{(why or f'{closed_form.model} was best on {data_of(closed_form)}.')[:-1]}, and no "
        "network better by more than two standard errors."
    )


def _why_no_networks(best: Attempt | None, task: Task) -> str:
    """Return why no network could be selected, whatever its score; empty if one could."""
    if best is not None and closed_form_candidates.too_few_windows(task):
        return "there are too few windows to train a network on."
    if best is None or best.model in closed_form_candidates.ALWAYS:
        return ""
    count = valid_count(task)
    margin = MARGIN * standard_error(best.valid, count, task)
    if task.metric.endswith("accuracy") and 1 - best.valid <= margin:
        return f"nothing can be better than {best.model} by more than chance."
    if count < FEW:
        return f"{count} validation targets cannot tell a network's skill from luck; {FEW} can."
    return ""


def _check_validation(task: Task) -> None:
    if optional.validates_on_training(task) and not optional.too_short(task):
        raise OptionError(
            "auto needs validation data to compare models on, but there is none. Set a fraction "
            "for it (validation_fraction, or fractions=), or name a model."
        )


def _print(text: str) -> None:
    sys.stderr.write(printable(f"auto: {text}\n"))


def _reporter(task: Task, progress: ShowProgress) -> Callable[[Attempt], None]:
    def report(attempt: Attempt) -> None:
        metric = task.metric.replace("_", " ")
        line = (
            f"{attempt.model}: {metric} {attempt.score:.4g} in {attempt.seconds:.1f} s"
            if attempt.usable
            else f"{attempt.model} not tried: {in_short(attempt.why_not or 'no finite answers')}"
        )
        if callable(progress):
            progress(line)
        elif progress:
            _print(line)

    return report
