"""How the next settings are chosen, and which trainings end early."""

from __future__ import annotations

import itertools
import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from undamped._base.errors import OptionError, explain
from undamped.lab.sweeps.plan import Plan
from undamped.lab.sweeps.space import Choices, Range, read_space

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler


def sampler_for(plan: Plan, begun: int) -> BaseSampler:
    """Return what chooses the settings of the next trial.

    Its random numbers depend on the seed and on how many trials have begun, so that a process that
    was stopped and started again does not choose what it has chosen before.

    Args:
        plan: The plan of the sweep.
        begun: How many trials have begun.
    """
    from optuna import samplers

    seed = int(np.random.SeedSequence([plan.seed, begun]).generate_state(1)[0])
    if plan.sampler == "random":
        return samplers.RandomSampler(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Optuna calls some of them experimental
        if plan.sampler == "qmc":
            return samplers.QMCSampler(seed=plan.seed, warn_independent_sampling=False)
        if plan.sampler == "gp":
            return samplers.GPSampler(seed=seed)
        if plan.sampler == "grid":
            point = grid_point(plan, begun)
            return samplers.PartialFixedSampler(point, samplers.RandomSampler(seed))
        return samplers.TPESampler(seed=seed)


def pruner_for(plan: Plan) -> BasePruner:
    """Return what ends trainings early.

    Args:
        plan: The plan of the sweep.
    """
    from optuna import pruners

    if plan.pruner == "hyperband":
        return pruners.HyperbandPruner()
    return pruners.MedianPruner() if plan.pruner == "median" else pruners.NopPruner()


def grid_size(plan: Plan) -> int:
    """Return how many points the grid of a sweep has.

    Args:
        plan: The plan; every setting has to have choices or steps.
    """
    return math.prod(len(_values(key, value)) for key, value in plan.space.items())


def grid_point(plan: Plan, number: int) -> dict[str, Any]:
    """Return a point of the grid.

    Args:
        plan: The plan of the sweep.
        number: Which one; the last setting changes first.
    """
    values = [_values(key, value) for key, value in plan.space.items()]
    chosen = next(itertools.islice(itertools.product(*values), number % grid_size(plan), None))
    return dict(zip(plan.space, chosen, strict=True))


def _values(key: str, value: Any) -> list[Any]:
    read = read_space(key, value)
    if isinstance(read, Choices):
        return list(read.values)
    if isinstance(read, Range) and not read.log and (read.step or isinstance(read.low, int)):
        step = read.step or 1
        return [read.low + i * step for i in range(int((read.high - read.low) / step + 1e-9) + 1)]
    raise OptionError(
        explain(
            key,
            expected="choices or a range with a distance, since all of them are tried",
            got=value,
            remedy="Write low..high:distance, or choose another --sampler.",
        )
    )
