"""Commands that do the same again with one change: another model, or another value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from undamped._base.registry import models
from undamped.models.for_task import model_options


@dataclass(frozen=True)
class Commands:
    """What was called, taken apart.

    Args:
        prefix: The command up to and without the model's name.
        model: The registry name of the model, if it has one.
        settings: The words after it that were given, such as `task.delay=5`.
    """

    prefix: str
    model: str = ""
    settings: Sequence[str] = ()

    def changed(self, setting: str) -> str:
        """Return the command for the same model with one setting changed."""
        key = setting.partition("=")[0]
        kept = [word for word in self.settings if word.partition("=")[0] != key]
        return " ".join(word for word in (self.prefix, self.model, *kept, setting) if word)

    def with_model(self, model: str) -> str:
        """Return the command for another model, with the settings it understands."""
        known = model_options(model)
        kept = []
        for word in self.settings:
            part, dot, name = word.partition("=")[0].partition(".")
            others = dot and part in ("model", *models)
            if not others or (part == "model" and name in known) or part == model:
                kept.append(word)
        return " ".join([self.prefix, model, *kept])
