"""The plan of a sweep, its sampler, which proposes settings, and its pruner, which stops trials."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from undamped._base.errors import OptionError, RunError
from undamped._base.options import check_fields
from undamped.lab.sweeps.space import Choices, Range, read_space

if TYPE_CHECKING:
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

Sampler = Literal["tpe", "random", "qmc", "gp", "grid"]
Pruner = Literal["median", "hyperband", "none"]


@dataclass(frozen=True)
class Plan:
    """The plan of a sweep, which is the same in all of its processes.

    Args:
        task: The name of the task.
        model: The name of the model.
        fixed: The settings of all trials: by section (`task`, `model`, `train`), then by name.
        space: The settings that vary, `section.name`, as text or lists.
        seed: The seed of every training and of the sampler.
        sampler: How settings are sampled: tree-structured Parzen estimators, at random,
            quasi-Monte Carlo, a Gaussian process, or a grid.
        pruner: Which trainings are stopped early: those below the median of the others at the same
            validation, those that Hyperband eliminates, or none.
    """

    task: str
    model: str
    fixed: dict[str, dict[str, Any]] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    sampler: Sampler = "tpe"
    pruner: Pruner = "median"

    def to_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Plan:
        """Return the plan that `to_dict` describes, after checking it."""
        unknown = set(stored) - {entry.name for entry in fields(cls)}
        if unknown or not {"task", "model"} <= set(stored):
            raise RunError("The plan must have a task and a model, and no unknown entries.")
        plan = cls(**stored)
        check_fields("plan", plan)
        if not all(isinstance(settings, Mapping) for settings in plan.fixed.values()):
            raise RunError("plan.fixed must be settings by section.")
        return plan

    def settings(self, params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return all settings of a trial by section.

        Args:
            params: The settings that vary, by `section.name`.
        """
        sections = {section: dict(values) for section, values in self.fixed.items()}
        for key, value in params.items():
            section, _, name = key.partition(".")
            sections.setdefault("model" if section == self.model else section, {})[name] = value
        return sections

    def check_same(self, requested: Plan, path: str) -> None:
        """Raise an error if the plan of a folder is not the requested one.

        Args:
            requested: The plan of this process.
            path: The folder.
        """
        options = requested.to_dict()
        for name, value in self.to_dict().items():
            if value != options[name]:
                raise OptionError(
                    f"The sweep in {path} has {name} = {value}, got {name} = {options[name]}. Use "
                    "the same command to join it, or choose another --out."
                )


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
