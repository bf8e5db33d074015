"""What a sweep is about: the same for every process that takes part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from undamped._base.errors import OptionError, RunError, explain
from undamped._base.options import check_fields

Sampler = Literal["tpe", "random", "qmc", "gp", "grid"]
Pruner = Literal["median", "hyperband", "none"]


@dataclass(frozen=True)
class Plan:
    """What a sweep is about.

    Args:
        task: The task's name.
        model: The model's name.
        fixed: Settings that all trials share: by part (`task`, `model`, `train`), then by name.
        space: Settings that vary, `part.name`, as they were given.
        seed: Where the random numbers of every training, and of the choices, come from.
        sampler: How settings are chosen: by Parzen estimators, at random, evenly spread, by a
            Gaussian process, or all choices one after the other.
        pruner: Which trainings end early: those below the median of the others at the same
            validation, those that lose in Hyperband's rounds, or none.
    """

    task: str
    model: str
    fixed: dict[str, dict[str, Any]] = field(default_factory=dict)
    space: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    sampler: Sampler = "tpe"
    pruner: Pruner = "median"

    def to_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Plan:
        """Read what `to_dict` wrote, and check it."""
        unknown = set(stored) - {one.name for one in fields(cls)}
        if unknown or not {"task", "model"} <= set(stored):
            raise RunError("plan: expected a task and a model, got other entries.")
        plan = cls(**stored)
        check_fields("plan", plan)
        if not all(isinstance(settings, Mapping) for settings in plan.fixed.values()):
            raise RunError("plan.fixed: expected settings by part, got something else.")
        return plan

    def settings(self, chosen: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Return all settings of a trial, by part.

        Args:
            chosen: Values of what varies, by `part.name`.
        """
        parts = {part: dict(values) for part, values in self.fixed.items()}
        for key, value in chosen.items():
            part, _, name = key.partition(".")
            parts.setdefault("model" if part == self.model else part, {})[name] = value
        return parts

    def check_same(self, other: Plan, where: str) -> None:
        """Refuse to join a sweep that is about something else.

        Args:
            other: What this process was asked for.
            where: Where the sweep lies.
        """
        mine, theirs = self.to_dict(), other.to_dict()
        for name, value in mine.items():
            if value != theirs[name]:
                raise OptionError(
                    explain(
                        where,
                        expected=f"the sweep that lies there, with {name} = {value}",
                        got=f"{name} = {theirs[name]}",
                        remedy="Type the same command to take part, or choose another --out.",
                    )
                )
