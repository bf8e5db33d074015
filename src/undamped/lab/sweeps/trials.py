"""What became of the trials of a sweep."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from undamped.lab.sweeps.folder import SweepFolder

if TYPE_CHECKING:
    from optuna import Study

SURPLUS = "surplus"
"""Marks a trial that was begun beyond the wanted number, by machines that began at once."""
ERROR = "error"
MACHINE = "machine"
"""Says from which folder a trial was begun."""
TOKEN = "token"
"""By which whoever begins a trial finds it among all."""


@dataclass(frozen=True)
class Trial:
    """A trial.

    Args:
        number: Which one, from 0.
        state: running, finished, stopped early (it was behind the others) or failed.
        value: The best validation, in the task's metric; None while there is none.
        settings: What varies, by name.
        seconds: Of training.
        run: The folder of its run, if it lies here.
        error: Why it failed.
    """

    number: int
    state: str
    value: float | None
    settings: dict[str, Any]
    seconds: float | None
    run: str | None
    error: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)


def trials_of(folder: SweepFolder, study: Study) -> list[Trial]:
    """Return all trials, in the order in which they began.

    Args:
        folder: The folder of the sweep.
        study: Optuna's study of it.
    """
    words = {"RUNNING": "running", "COMPLETE": "finished", "PRUNED": "stopped early"}
    found = []
    for one in study.get_trials(deepcopy=False):
        if SURPLUS in one.user_attrs:
            continue
        run = folder.run(one.number)
        settings = {} if run is None else run.settings
        found.append(
            Trial(
                one.number,
                words.get(one.state.name, "failed" if one.state.is_finished() else "waiting"),
                one.value if one.state.name == "COMPLETE" else None,
                {key: one.params[key] for key in folder.plan.space if key in one.params},
                (settings.get("result") or settings).get("seconds"),
                None if run is None else str(run.path),
                one.user_attrs.get(ERROR),
            )
        )
    return found


def best_of(trials: list[Trial], higher: bool) -> Trial | None:
    """Return the trial with the best validation; the earliest of equals.

    Args:
        trials: All trials.
        higher: Whether more is better.
    """
    finished = [one for one in trials if one.value is not None]
    return min(finished, key=lambda one: _rank(one, higher), default=None)


def in_order(trials: list[Trial], higher: bool) -> list[Trial]:
    """Return trials, the best first and those without a value last.

    Args:
        trials: All trials.
        higher: Whether more is better.
    """
    return sorted(trials, key=lambda one: (one.value is None, _rank(one, higher), one.number))


def _rank(trial: Trial, higher: bool) -> float:
    if trial.value is None:
        return 0.0
    return -trial.value if higher else trial.value


def importances(study: Study) -> dict[str, float]:
    """Return which share of the variation of the results each setting explains.

    Empty with fewer than four results, or where nothing varied.

    Args:
        study: Optuna's study.
    """
    from optuna.importance import get_param_importances

    finished = [one for one in study.get_trials(deepcopy=False) if one.state.name == "COMPLETE"]
    if len(finished) < 4 or len({one.value for one in finished}) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings that did not vary
        try:
            return dict(get_param_importances(study))
        except (RuntimeError, ValueError):  # nothing to be said from these results
            return {}
