"""What there is to say about a member: help, `undamped show` and the site are made from it."""

from __future__ import annotations

from typing import Any

from undamped._base.docstrings import sections
from undamped._base.options import settings_of, unknown_name
from undamped._base.registry import (
    Registry,
    benchmarks,
    experiments,
    instruments,
    models,
    solvers,
    tasks,
)
from undamped._base.source import OWN, Source

REGISTRIES: dict[str, Registry[Any]] = {
    "models": models,
    "tasks": tasks,
    "solvers": solvers,
    "instruments": instruments,
    "experiments": experiments,
    "benchmarks": benchmarks,
}
"""Every kind of member, in the order in which they are listed."""


def find_members(name: str) -> list[Registry[Any]]:
    """Return the registries in which a name stands; some names stand for a task and more."""
    matches = [registry for registry in REGISTRIES.values() if name in registry]
    if not matches:
        kinds = [registry.kind for registry in REGISTRIES.values()]
        names = sorted({name for registry in REGISTRIES.values() for name in registry})
        raise unknown_name(f"{', '.join(kinds[:-1])} or {kinds[-1]}", name, names)
    return matches


def registry_of(kind: str) -> Registry[Any]:
    """Return the registry of a kind of member: "task", "experiment", …"""
    by_kind = {registry.kind: registry for registry in REGISTRIES.values()}
    if kind not in by_kind:
        raise unknown_name("kind of member", kind, list(by_kind))
    return by_kind[kind]


def outside_members(kind: str) -> dict[str, Source]:
    """Return the members of a kind ("models", …) that are not this library's, and their source."""
    registry = REGISTRIES[kind]
    sources = {name: registry.source_of(name) for name in registry}
    return {name: source for name, source in sources.items() if source != OWN}


def summary(member: Any) -> str:
    """Return the question a member answers, or the first line of what it says about itself."""
    return getattr(member, "question", "") or (sections(member)[""].splitlines() or [""])[0]


def describe_member(name: str, registry: Registry[Any] | None = None) -> dict[str, Any]:
    """Return everything there is to say about a member of a registry.

    Args:
        name: The name of the member.
        registry: Where it stands; the first registry that has the name if none is given.
    """
    registry = registry or find_members(name)[0]
    member = registry[name]
    text = sections(member)
    promises = getattr(getattr(member, "cell_class", member), "promises", ())
    return {
        "name": name,
        "kind": registry.kind,
        "source": str(registry.source_of(name)),
        "summary": text.pop(""),
        **({"question": member.question} if hasattr(member, "question") else {}),
        **{heading.lower(): body for heading, body in text.items() if heading != "Args"},
        "promises": [{"kind": p.kind.value, "claim": p.claim} for p in promises],
        "options": [
            {
                "name": option.name,
                "accepts": option.accepts,
                "default": "required" if option.required else option.default,
                "about": option.description,
            }
            for option in settings_of(member).values()
        ],
    }
