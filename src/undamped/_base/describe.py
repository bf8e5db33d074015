"""Descriptions of registered entries, for help, `undamped list`, `undamped show` and the site.

`_catalogue.jsonl` has the descriptions of this library's entries, so that `list` and `show` import
neither them nor torch. `python -m undamped._base.index` writes it, and a test compares it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undamped._base.docstrings import sections
from undamped._base.options import settings_of
from undamped._base.registry import (
    Registry,
    benchmarks,
    experiments,
    instruments,
    models,
    solvers,
    tasks,
)

REGISTRIES: dict[str, Registry[Any]] = {
    "models": models,
    "tasks": tasks,
    "solvers": solvers,
    "instruments": instruments,
    "experiments": experiments,
    "benchmarks": benchmarks,
}
"""Every kind of entry, in the order in which they are listed."""
CATALOGUE = Path(__file__).parents[1] / "_catalogue.jsonl"


def summary(page: dict[str, Any]) -> str:
    """Return one line about an entry: the question it answers, or the start of its description."""
    return page.get("question", "") or (page["summary"].splitlines() or [""])[0]


def describe_entry(name: str, registry: Registry[Any]) -> dict[str, Any]:
    """Import an entry of a registry and return its description.

    Args:
        name: The name of the entry.
        registry: Its registry.
    """
    entry = registry[name]
    text = sections(entry)
    promises = getattr(getattr(entry, "cell_class", entry), "promises", ())
    is_task = registry is tasks and isinstance(getattr(entry, "input_kind", None), str)
    return {
        "name": name,
        "kind": registry.kind,
        "source": str(registry.source_of(name)),
        "summary": text.pop(""),
        **({"question": entry.question} if hasattr(entry, "question") else {}),
        **({"inputs": entry.input_kind} if is_task else {}),
        **{heading.lower(): body for heading, body in text.items() if heading != "Args"},
        "promises": [{"kind": p.kind.value, "claim": p.claim} for p in promises],
        "options": [
            {
                "name": option.name,
                "accepts": option.accepts,
                "default": "required" if option.required else option.default,
                "about": option.description,
            }
            for option in settings_of(entry).values()
        ],
    }
