"""The full name of a setting that was given without its part: `task.delay` for `delay`."""

from __future__ import annotations

from collections.abc import Sequence

from undamped._base.errors import UndampedError, UnknownNameError, explain
from undamped._base.options import nearest, options_of
from undamped._base.registry import models, tasks
from undamped.lab.training.options import TrainOptions
from undamped.models.for_task import model_options

PARTS = ("task", "model", "train")
OWN_DATA = ("recordings", "trajectories", "picture-sequences")
"""Tasks made of files of one's own, whose options need no prefix."""


def without_part(key: str, names: Sequence[str]) -> UndampedError:
    """Return the error for a setting without a part, naming the one that was meant, if any.

    Args:
        key: What was given, for example "delay".
        names: The task and the models that were named; all are looked at where none was.
    """
    known = _full_names(names)
    close = key if key in known else nearest(key, known)
    return UnknownNameError(
        explain(
            f"setting '{key}'",
            expected="a known setting, most of them with their part, as in task.delay",
            got="an unknown one",
            remedy=f"Did you mean '{known[close]}'?"
            if close is not None
            else "'undamped show NAME' lists those of a task or a model.",
        )
    )


def _full_names(names: Sequence[str]) -> dict[str, str]:
    """Return what may be set, by its last name; what the task knows comes before the rest."""
    chosen_tasks = [name for name in names if name in tasks] or list(tasks)
    chosen_models = [name for name in names if name in models] or list(models)
    before = "" if names[:1] and names[0] in OWN_DATA else "task."
    found = {option: f"train.{option}" for option in options_of(TrainOptions)}
    for name in chosen_models:
        found |= {option: f"model.{option}" for option in model_options(name)}
    for name in chosen_tasks:
        found |= {option: f"{before}{option}" for option in options_of(tasks[name])}
    return {**found, "seed": "seed", "recipe": "recipe"}
