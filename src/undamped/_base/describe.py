"""Descriptions of registered entries, for help, `undamped list`, `undamped show` and the site.

`_catalogue.jsonl` has the descriptions of this library's entries, so that `list` and `show` import
neither them nor torch. `python -m undamped._base.index` writes it, and a test compares it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from undamped._base.docstrings import sections
from undamped._base.options import settings_of, unknown_name
from undamped._base.registry import (
    LIBRARY,
    Registry,
    Source,
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


def registries_with(name: str) -> list[Registry[Any]]:
    """Return the registries that have a name; some names are a task's and an experiment's."""
    matches = [registry for registry in REGISTRIES.values() if name in registry]
    if not matches:
        kinds = [registry.kind for registry in REGISTRIES.values()]
        names = sorted({name for registry in REGISTRIES.values() for name in registry})
        raise unknown_name(f"{', '.join(kinds[:-1])} or {kinds[-1]}", name, names)
    return matches


def registry_of(kind: str) -> Registry[Any]:
    """Return the registry of a kind of entry: "task", "experiment", …"""
    by_kind = {registry.kind: registry for registry in REGISTRIES.values()}
    if kind not in by_kind:
        raise unknown_name("kind", kind, list(by_kind))
    return by_kind[kind]


def third_party_entries(kind: str) -> dict[str, Source]:
    """Return the third-party entries of a kind ("models", …) and the source of each."""
    registry = REGISTRIES[kind]
    sources = {name: registry.source_of(name) for name in registry}
    return {name: source for name, source in sources.items() if source != LIBRARY}


def summary(page: dict[str, Any]) -> str:
    """Return one line about an entry: the question it answers, or the start of its description."""
    return page.get("question", "") or (page["summary"].splitlines() or [""])[0]


def page_of(name: str, registry: Registry[Any]) -> dict[str, Any]:
    """Return the description of an entry from the catalogue; third-party entries are imported.

    Args:
        name: The name of the entry.
        registry: Its registry.
    """
    page = _catalogue().get((registry.kind, name))
    return page or describe_entry(name, registry)


@cache
def _catalogue() -> dict[tuple[str, str], dict[str, Any]]:
    with CATALOGUE.open(encoding="utf-8") as lines:
        return {(page["kind"], page["name"]): page for page in map(json.loads, lines)}


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
