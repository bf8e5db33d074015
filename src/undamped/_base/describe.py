"""Descriptions of registered entries, for help, `undamped show` and the documentation."""

from __future__ import annotations

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


def registries_with(name: str) -> list[Registry[Any]]:
    """Return the registries that contain a name, for example a task and an experiment."""
    matches = [registry for registry in REGISTRIES.values() if name in registry]
    if not matches:
        kinds = [registry.kind for registry in REGISTRIES.values()]
        names = sorted({name for registry in REGISTRIES.values() for name in registry})
        raise unknown_name(f"{', '.join(kinds[:-1])} or {kinds[-1]}", name, names)
    return matches


def registry_of(kind: str) -> Registry[Any]:
    """Return the registry of a kind: "task", "experiment", …"""
    by_kind = {registry.kind: registry for registry in REGISTRIES.values()}
    if kind not in by_kind:
        raise unknown_name("kind", kind, list(by_kind))
    return by_kind[kind]


def third_party_entries(kind: str) -> dict[str, Source]:
    """Return the entries of a kind ("models", …) that plugins registered, and their sources."""
    registry = REGISTRIES[kind]
    sources = {name: registry.source_of(name) for name in registry}
    return {name: source for name, source in sources.items() if source != LIBRARY}


def summary(entry: Any) -> str:
    """Return the question of an instrument, or else the first line of the docstring."""
    return getattr(entry, "question", "") or (sections(entry)[""].splitlines() or [""])[0]


def describe_entry(name: str, registry: Registry[Any] | None = None) -> dict[str, Any]:
    """Return the description of a registered entry, as plain values.

    Args:
        name: The name of the entry.
        registry: Its registry; by default the first one that has the name.
    """
    registry = registry or registries_with(name)[0]
    entry = registry[name]
    text = sections(entry)
    promises = getattr(getattr(entry, "cell_class", entry), "promises", ())
    return {
        "name": name,
        "kind": registry.kind,
        "source": str(registry.source_of(name)),
        "summary": text.pop(""),
        **({"question": entry.question} if hasattr(entry, "question") else {}),
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
