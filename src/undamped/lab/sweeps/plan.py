"""The plan of a sweep, which is the same in all of its processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from undamped._base.errors import OptionError, RunError
from undamped._base.options import check_fields

Sampler = Literal["tpe", "random", "qmc", "gp", "grid"]
Pruner = Literal["median", "hyperband", "none"]


@dataclass(frozen=True)
class Plan:
    """The plan of a sweep.

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
