"""The best settings of a sweep as a TOML file that `undamped train --config` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from undamped._base.files import write_text
from undamped.lab.sweeps.folder import SweepFolder
from undamped.lab.sweeps.trials import Trial


def write_best(folder: SweepFolder, best: Trial) -> None:
    """Write best.toml into the folder of a sweep.

    Args:
        folder: The folder.
        best: The trial whose settings are written.
    """
    plan = folder.plan
    parts = plan.settings(best.settings)
    lines = [
        f"# The best of the sweep: trial {best.number}, {folder.metric} {best.value:.6g} on the "
        "validation part.",
        f"seed = {plan.seed}",
    ]
    names = {"task": plan.task, "model": plan.model}
    for part in ("task", "model", "train"):
        entries = {**({"name": names[part]} if part in names else {}), **parts.get(part, {})}
        if entries:
            lines += ["", f"[{part}]", *(f"{_key(k)} = {_value(v)}" for k, v in entries.items())]
    write_text(folder.path / "best.toml", "\n".join(lines) + "\n")


def _key(name: str) -> str:
    return name if name.replace("_", "").replace("-", "").isalnum() else json.dumps(name)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, int | float):
        return repr(value)
    return json.dumps(str(value), ensure_ascii=False)
