"""Samplers, which propose the settings of a trial, and pruners, which stop trainings early."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped._base.errors import OptionError
from undamped.lab.sweeps.plan import Plan
from undamped.lab.sweeps.space import Choices, Range, read_space

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler


def sampler_for(plan: Plan, trial: int) -> BaseSampler:
    """Return the sampler of a trial.

    Its random numbers depend on the seed and the number of the trial, so that a restarted process
    does not repeat earlier settings.

    Args:
        plan: The plan of the sweep.
        trial: The number of the trial.
    """
    from optuna import samplers

    seed = int(np.random.SeedSequence([plan.seed, trial]).generate_state(1)[0])
    if plan.sampler == "random":
        return samplers.RandomSampler(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls some of them experimental
        if plan.sampler == "qmc":
            return samplers.QMCSampler(seed=plan.seed, warn_independent_sampling=False)
        if plan.sampler == "gp":
            return samplers.GPSampler(seed=seed)
        if plan.sampler == "grid":
            point = grid_point(plan, trial)
            return samplers.PartialFixedSampler(point, samplers.RandomSampler(seed))
        return samplers.TPESampler(seed=seed)


def pruner_for(plan: Plan) -> BasePruner:
    """Return the pruner of a sweep."""
    from optuna import pruners

    if plan.pruner == "hyperband":
        return pruners.HyperbandPruner()
    return pruners.MedianPruner() if plan.pruner == "median" else pruners.NopPruner()


def grid_size(plan: Plan) -> int:
    """Return the number of points of a grid; all settings need choices or steps."""
    return math.prod(len(_values(key, value)) for key, value in plan.space.items())


def grid_point(plan: Plan, number: int) -> dict[str, Any]:
    """Return a point of the grid.

    Args:
        plan: The plan of the sweep.
        number: Its number; the last setting changes first.
    """
    values = [_values(key, value) for key, value in plan.space.items()]
    point = next(itertools.islice(itertools.product(*values), number % grid_size(plan), None))
    return dict(zip(plan.space, point, strict=True))


def _values(key: str, value: Any) -> list[Any]:
    space = read_space(key, value)
    if isinstance(space, Choices):
        return list(space.values)
    if isinstance(space, Range) and not space.log and (space.step or isinstance(space.low, int)):
        step = space.step or 1
        count = int((space.high - space.low) / step + 1e-9) + 1
        return [space.low + i * step for i in range(count)]
    raise OptionError(
        f"{key} must have choices or a range with a step in a grid, got {value}. Write "
        "low..high:step, or choose another --sampler."
    )
