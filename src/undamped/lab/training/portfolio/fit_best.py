"""`fit("auto", task)`: race models on validation data, then fit the best one."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from undamped._base.errors import OptionError, UndampedError, explain, printable
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import Task
from undamped.lab.training.portfolio import at_once_members, networks
from undamped.lab.training.portfolio.at_once_members import try_at_once
from undamped.lab.training.portfolio.attempt import (
    Attempt,
    Clock,
    better,
    in_short,
    standard_error,
    without_budget,
)
from undamped.lab.training.portfolio.networks import try_networks
from undamped.lab.training.run import Run

MARGIN = 2.0
"""By how many standard errors a network has to be better."""
FEW = 20
"""Validation answers below which no network is tried: the best of a hundred states of its weights
on a handful of series is luck."""


def fit_best(
    task: Task,
    *,
    task_options: Mapping[str, Any],
    train: dict[str, Any],
    seed: int,
    out: str | Path,
    progress: bool | Callable[[str], None] = True,
    command: str | None = None,
    started: Callable[[Run], None] | None = None,
) -> Run:
    """Race a portfolio of models on validation data, and fit the winner.

    Members that learn at once come first, the cheapest before the others, and are judged on several
    draws of validation data where these are few; then networks, trained in two rounds, if there
    are twenty validation answers to judge them by. A network has to be better by more than two
    standard errors, both on the same validation part and than the mean over all draws: there are
    several of them, and each shows the best of all its weights on that part. The winner is then
    fitted as always: a member that learns at once from training and validation data, a network with
    validation data to choose its weights by. Only then is the test part looked at.

    Args:
        task: The task.
        task_options: The options it was built with.
        train: Options of training. A budget of `seconds` or `minutes` is one for everything
            (five minutes if none is given); one of `steps` or `epochs` is that of the longest
            training of a network, and makes the race a function of the seed.
        seed: Where all random numbers come from.
        out: The folder in which the run's folder is made.
        progress: Whether to say how it goes; or a function that is told.
        command: What to write down as the command that made the run.
        started: Called with the run when its folder is there.
    """
    from undamped.lab.training.fit import fit

    _check_validation(task)
    if progress is True and task.notes():  # what the data were taken for, before minutes go by
        sys.stderr.write(printable("\n".join(task.notes()) + "\n"))
    clock, said = Clock.of(train), without_budget(train)
    if optional.too_short(task):
        tried, winner = [], Attempt(at_once_members.FORECASTERS[0])
        why = f"There are too few values to compare models; {winner.model} needs no comparison."
    else:
        tried = race(task, said, seed, clock, _teller(task, progress), talk=progress is True)
        winner, why = chosen(tried, task)
    # What learns at once does so on one processor, whatever networks were trained on.
    plain = {name: said[name] for name in ("batch_size", "precision") if name in said}
    begun: list[Run] = []

    def begin(run: Run) -> None:
        begun.append(run)
        run.update(tried=[one.to_dict() for one in tried], why=why)
        if started is not None:
            started(run)

    while True:
        try:
            return fit(
                winner.model,
                task,
                task_options=task_options,
                train=winner.train if winner.steps else plain,
                seed=seed,
                out=out,
                # A network has a bar of its own; the notes have been said.
                progress=_line if progress is True and not winner.steps else progress,
                command=command,
                started=begin,
            )
        except UndampedError as error:
            # What could be scored may still refuse to learn from all data; another one will do.
            tried = [replace(one, why_not=str(error)) if one is winner else one for one in tried]
            if not any(one.usable for one in tried):
                raise
            while begun:
                shutil.rmtree(begun.pop().path, ignore_errors=True)
            winner, why = chosen(tried, task)


def race(
    task: Task,
    train: dict[str, Any],
    seed: int,
    clock: Clock,
    say: Callable[[Attempt], None],
    talk: bool = False,
) -> list[Attempt]:
    """Try the members of the portfolio, as far as the budget goes.

    Args:
        task: The task.
        train: Options of training without a budget.
        seed: Where random numbers come from.
        clock: The budget.
        say: Called with every attempt.
        talk: Whether to say what is begun, and to draw bars for networks.
    """
    tried: list[Attempt] = []
    best, reserve = None, 0.0
    for name in at_once_members.members(task):
        if talk:
            _line(f"trying {name}")
        tried.append(try_at_once(name, task, train, seed, clock.without(reserve)))
        say(tried[-1])
        best = _best([one for one in tried if one.usable], task)
        if best is not None:  # what it takes to fit it at the end
            reserve = at_once_members.FINAL * best.seconds / max(1, best.draws)
    useless = _why_no_networks(best, task)
    if useless:
        return [*tried, *(Attempt(name, why_not=useless) for name in networks.members())]
    return [*tried, *try_networks(task, train, seed, clock, reserve, say, talk)]


def chosen(tried: list[Attempt], task: Task) -> tuple[Attempt, str]:
    """Return the winner, and why it is that.

    Args:
        tried: All attempts.
        task: The task.
    """
    usable = [one for one in tried if one.usable]
    at_once = _best([one for one in usable if not one.steps], task)
    trained = _best([one for one in usable if one.steps], task)
    if at_once is None and trained is None:
        raise OptionError(
            explain(
                "auto",
                expected="a task that one of the models of the race can answer",
                got=f"none: {tried[0].why_not.rstrip('.')}",
                remedy="Name a model; 'undamped list' shows all.",
            )
        )
    if at_once is None or trained is None:
        winner = at_once or trained
        assert winner is not None
        return winner, f"{winner.model} was best on {_where(winner)}."
    pick = max if task.higher_is_better else min
    to_beat = pick(at_once.valid, at_once.score)
    gain = trained.valid - to_beat if task.higher_is_better else to_beat - trained.valid
    if gain > MARGIN * standard_error(to_beat, _valid_count(task), task):
        return trained, (
            f"{trained.model} was better than {at_once.model}, which learns in seconds, by more "
            "than two standard errors on validation data."
        )
    return at_once, (
        f"{at_once.model} was best on {_where(at_once)}, and no network better by more than "
        "two standard errors."
    )


def _best(attempts: list[Attempt], task: Task) -> Attempt | None:
    found = None
    for one in attempts:
        if found is None or better(one, found, task):
            found = one
    return found


def _where(attempt: Attempt) -> str:
    if attempt.draws > 1:
        return f"validation data drawn {attempt.draws} times"
    return "validation data"


def _why_no_networks(best: Attempt | None, task: Task) -> str:
    """Say why no network could win, whatever came of it; nothing where one could."""
    if best is not None and at_once_members.too_few_windows(task):
        return "there are too few windows to train a network on."
    if best is None or best.model in at_once_members.ALWAYS:
        return ""
    count = _valid_count(task)
    margin = MARGIN * standard_error(best.valid, count, task)
    if task.metric.endswith("accuracy") and 1 - best.valid <= margin:
        return f"nothing can be better than {best.model} by more than chance."
    if count < FEW:
        return f"{count} validation answers cannot tell a network's skill from luck; {FEW} can."
    return ""


def _valid_count(task: Task) -> int:
    """Return how many answers validation looks at."""
    count = task.count("valid", 64) or 1
    return max(1, sum(task.answers(task.batch("valid", n, 64)) for n in range(count)))


def _check_validation(task: Task) -> None:
    if optional.validates_on_training(task) and not optional.too_short(task):
        raise OptionError(
            explain(
                "auto",
                expected="validation data, on which models are compared",
                got="none",
                remedy="Leave a share for it (validation_fraction, or fractions=), or name a "
                "model.",
            )
        )


def _line(said: str) -> None:
    sys.stderr.write(printable(f"auto: {said}\n"))


def _teller(task: Task, progress: bool | Callable[[str], None]) -> Callable[[Attempt], None]:
    def say(attempt: Attempt) -> None:
        metric = task.metric.replace("_", " ")
        line = (
            f"{attempt.model}: {metric} {attempt.score:.4g} in {attempt.seconds:.1f} s"
            if attempt.usable
            else f"{attempt.model} not tried: {in_short(attempt.why_not or 'no finite answers')}"
        )
        if callable(progress):
            progress(line)
        elif progress:
            _line(line)

    return say
