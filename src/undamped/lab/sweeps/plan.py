"""The plan of a sweep: its search space, its sampler, and its pruner, which stops trials.

The sampler proposes settings from the search space: `0.01..0.5:log`, `16..128:16`, `tanh,relu`. A
range of integers has no decimal point and no exponent in its ends. After a colon stands `log`, for
a log-uniform distribution, or the step between values. Commas separate choices.
"""

from __future__ import annotations

import itertools
import math
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from undamped._base.errors import OptionError, RunError, shortened
from undamped._base.options import check_fields

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.pruners import BasePruner
    from optuna.samplers import BaseSampler

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"^({_NUMBER})\.\.({_NUMBER})(?::(log|{_NUMBER}))?$")
_LIKE_A_RANGE = re.compile(r"^[+-]?\.?\d[^/\\]*\.\.")
_INTEGER = re.compile(r"^[+-]?\d+$")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`.

    Args:
        low: The smallest.
        high: The largest.
        step: The distance between values; any number in between if it is None.
        log: Whether the distribution is log-uniform.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def distribution(self) -> BaseDistribution:
        """Return the distribution of Optuna."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, self.log, int(self.step or 1))
        return FloatDistribution(self.low, self.high, self.log, self.step)


@dataclass(frozen=True)
class Choices:
    """A categorical setting.

    Args:
        values: The possible values.
    """

    values: tuple[Any, ...]

    def distribution(self) -> BaseDistribution:
        """Return the distribution of Optuna."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)


def read_space(key: str, value: Any) -> Range | Choices | None:
    """Return the search space of a setting; None if the value is not one.

    Args:
        key: The setting, for messages.
        value: Text, or a list from a TOML file.

    Example:
        >>> read_space("model.dt", "0.01..0.5:log")
        Range(low=0.01, high=0.5, step=None, log=True)
    """
    if isinstance(value, list | tuple):
        return Choices(_distinct(key, list(value)))
    if not isinstance(value, str):
        return None
    text = value.strip()
    match = _RANGE.match(text)
    if match is not None:
        return _read_range(key, text, *match.groups())
    if _LIKE_A_RANGE.match(text):
        raise _invalid(key, "a range such as 0.01..0.5:log or 16..128:16", text)
    if "," in text:
        return Choices(_distinct(key, [_literal(word.strip()) for word in text.split(",")]))
    return None


def _literal(text: str) -> bool | int | float | str:
    """Return a choice as a number, a boolean, or the text itself."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.match(text):
        return int(text)
    return float(text) if re.fullmatch(_NUMBER, text) else text


def _read_range(key: str, text: str, low: str, high: str, more: str | None) -> Range:
    integers = bool(_INTEGER.match(low) and _INTEGER.match(high))
    first, last = (int(low), int(high)) if integers else (float(low), float(high))
    if first >= last:
        raise _invalid(key, "a range from its lower to its upper end", text)
    if more == "log":
        if first <= 0:
            raise _invalid(key, "a range above zero for log", text)
        return Range(first, last, None, True)
    if more is None:
        return Range(first, last)
    step = int(more) if integers and _INTEGER.match(more) else float(more)
    if step <= 0 or step > last - first or (integers and not isinstance(step, int)):
        raise _invalid(key, "a range with a step that fits", text)
    return Range(first, last, step)


def _distinct(key: str, values: list[Any]) -> tuple[Any, ...]:
    choices = [value for value in values if value != ""]
    if len(choices) < 2 or len(set(map(str, choices))) < len(values):
        raise _invalid(key, "two or more different choices", ",".join(map(str, values)))
    if not all(isinstance(value, bool | int | float | str) for value in choices):
        raise _invalid(key, "choices that are numbers, words, true or false", choices)
    return tuple(choices)


def _invalid(key: str, expected: str, value: Any) -> OptionError:
    return OptionError(
        f"{key} must be {expected}, got {shortened(value)}. Write low..high, low..high:log, "
        "low..high:step, or choices separated by commas."
    )


def distributions(space: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Return the distributions of Optuna by setting.

    Args:
        space: The settings that vary, as text or lists.
    """
    result = {}
    for key, value in space.items():
        setting = read_space(key, value)
        if setting is None:
            raise _invalid(key, "a range or choices", value)
        result[key] = setting.distribution()
    return result


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

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Plan:
        """Return the plan that `dataclasses.asdict` describes, after checking it."""
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
        options = asdict(requested)
        for name, value in asdict(self).items():
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
