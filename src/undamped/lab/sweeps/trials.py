"""The trials of a sweep, their order, and the best settings as a TOML file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undamped.lab.files import write_text
from undamped.lab.sweeps.folder import SweepFolder

if TYPE_CHECKING:
    from optuna import Study

SURPLUS = "surplus"
"""Attribute of a trial beyond the requested number, which machines may start simultaneously."""
ERROR = "error"
MACHINE = "machine"
"""Attribute with the folder that started a trial."""
TOKEN = "token"
"""Attribute by which a process recognises the trial that it has just started."""


@dataclass(frozen=True)
class Trial:
    """A trial.

    Args:
        number: Its number, from 0.
        state: running, finished, stopped early (by the pruner) or failed.
        value: The best validation in the metric of the task; None if there is none.
        settings: The settings that vary, by name.
        seconds: Seconds of training.
        run: The folder of its run, if it is on this machine.
        error: The message of a failure.
    """

    number: int
    state: str
    value: float | None
    settings: dict[str, Any]
    seconds: float | None
    run: str | None
    error: str | None = None


def trials_of(folder: SweepFolder, study: Study) -> list[Trial]:
    """Return all trials, in the order in which they started.

    Args:
        folder: The folder of the sweep.
        study: Its study in Optuna.
    """
    states = {"RUNNING": "running", "COMPLETE": "finished", "PRUNED": "stopped early"}
    trials = []
    for trial in study.get_trials(deepcopy=False):
        if SURPLUS in trial.user_attrs:
            continue
        run = folder.run(trial.number)
        settings = {} if run is None else run.settings
        trials.append(
            Trial(
                trial.number,
                states.get(trial.state.name, "failed" if trial.state.is_finished() else "waiting"),
                trial.value if trial.state.name == "COMPLETE" else None,
                {key: trial.params[key] for key in folder.plan.space if key in trial.params},
                (settings.get("result") or settings).get("seconds"),
                None if run is None else str(run.path),
                trial.user_attrs.get(ERROR),
            )
        )
    return trials


def best_of(trials: list[Trial], higher: bool) -> Trial | None:
    """Return the trial with the best validation, the earliest if several are equal.

    Args:
        trials: All trials.
        higher: Whether higher values are better.
    """
    best = next(iter(in_order(trials, higher)), None)
    return best if best is not None and best.value is not None else None


def in_order(trials: list[Trial], higher: bool) -> list[Trial]:
    """Return the trials, the best first and those without a value last.

    Args:
        trials: All trials.
        higher: Whether higher values are better.
    """

    def rank(trial: Trial) -> tuple[bool, float, int]:
        value = trial.value or 0.0
        return trial.value is None, -value if higher else value, trial.number

    return sorted(trials, key=rank)


def importances(study: Study) -> dict[str, float]:
    """Return which fraction of the variance of the results each setting explains.

    It is empty with fewer than four results, or where nothing varied.

    Args:
        study: The study in Optuna.
    """
    from optuna.importance import get_param_importances

    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    if len(trials) < 4 or len({trial.value for trial in trials}) < 2:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about settings that did not vary
        try:
            return dict(get_param_importances(study))
        except (RuntimeError, ValueError):  # the results do not suffice
            return {}


def write_best(folder: SweepFolder, best: Trial) -> None:
    """Write best.toml into the folder of a sweep, for `undamped train --config`.

    Args:
        folder: The folder.
        best: The trial with the settings.
    """
    plan = folder.plan
    sections = plan.settings(best.settings)
    lines = [
        f"# The best of the sweep: trial {best.number}, {folder.metric} {best.value:.6g} on the "
        "validation split.",
        f"seed = {plan.seed}",
    ]
    names = {"task": {"name": plan.task}, "model": {"name": plan.model}}
    for section in ("task", "model", "train"):
        entries = {**names.get(section, {}), **sections.get(section, {})}
        if entries:
            lines += ["", f"[{section}]", *(f"{_key(k)} = {_toml(v)}" for k, v in entries.items())]
    write_text(folder.path / "best.toml", "\n".join(lines) + "\n")


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)
