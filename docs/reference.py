"""The reference: a page for every package, with an entry for each of its public names.

A name is public if its package has it in `__all__`. What is made from a registry (the networks of
the cells) has a page of its own among the models, and a link here.
"""

import importlib
import inspect
import pkgutil
from functools import cache
from typing import Any

import undamped
from undamped._base.registry import models

HIDDEN = {
    "undamped._base",
    "undamped.lab",
    "undamped.lab.cli",
    "undamped.lab.benchmarks",
    "undamped.lab.papers",
}
"""Internals, and programs, which are described by their help."""
COLLECTIONS = ("undamped", "undamped.extend")
"""Packages that repeat names of others."""
MORE = {
    "undamped.lab.data": (
        "undamped.lab.data.recordings.read.read_recordings",
        "undamped.lab.data.recordings.series.SeriesSet",
        "undamped.lab.data.recordings.findings.look_at",
        "undamped.lab.data.recordings.preparation.Preparation",
        "undamped.lab.data.published.fetch.fetch",
    ),
    "undamped.lab.estimators": (
        "undamped.lab.estimators.aeon.UndampedClassifier",
        "undamped.lab.estimators.aeon.UndampedRegressor",
        "undamped.lab.estimators.aeon.UndampedForecaster",
    ),
    "undamped.lab.report": (
        "undamped.lab.report.watch.Watch",
        "undamped.lab.report.runs.report_run",
    ),
}
"""What is public though its package does not name it, since it needs libraries of its own."""


def packages() -> list[str]:
    """Return the packages with public names, the whole one first."""
    found = ["undamped", "undamped.extend"]
    for parent in (undamped, undamped.lab):
        for module in pkgutil.iter_modules(parent.__path__, f"{parent.__name__}."):
            if module.ispkg and module.name not in HIDDEN:
                found.append(module.name)
    found += ["undamped.ode.fields", "undamped.models.physics.fields"]
    return [name for name in found if public_names(name) or name in MORE]


def public_names(package: str) -> list[str]:
    """Return the public names of a package."""
    module = importlib.import_module(package)
    return sorted(getattr(module, "__all__", ()))


def entry(package: str, name: str) -> str:
    """Return the entry of a public name in Markdown."""
    member = getattr(importlib.import_module(package), name)
    known = models.name_of(member) if inspect.isclass(member) else None
    if known is not None:
        return f"### {name}\n\n{first_line(member)} See [{known}](../models/{known}.md).\n"
    if name == "__version__":
        return f"### {name}\n\nThe version, as text.\n"
    if inspect.ismodule(member):
        return f"### {name}\n\n{first_line(member)}\n"
    if not (inspect.isclass(member) or inspect.isroutine(member)):
        return f"### {name}\n\n{value(member)}\n"
    path = full_name(package, name)
    owner = owners()[path]
    if owner != package:
        return f"### {name}\n\n{first_line(member)} See [{owner}]({owner}.md#{path}).\n"
    return f"::: {path}\n"


def full_name(package: str, name: str) -> str:
    """Return the module and the name of a class or function, where it is defined."""
    member = getattr(importlib.import_module(package), name)
    home = getattr(inspect.unwrap(member), "__module__", package)
    return f"{home}.{getattr(member, '__qualname__', name)}"


@cache
def owners() -> dict[str, str]:
    """Return the package whose page has the entry of a class or function; others link to it."""
    found: dict[str, str] = {}
    collections = [package for package in packages() if package in COLLECTIONS]
    for package in [*(p for p in packages() if p not in COLLECTIONS), *collections]:
        for name in public_names(package):
            found.setdefault(full_name(package, name), package)
        for path in MORE.get(package, ()):
            found.setdefault(path, package)
    return found


def value(member: Any) -> str:
    """Say what a name is that is neither a class nor a function."""
    words = str(member).replace("typing.", "").replace("\n", " ")
    return f"`{words}`" if len(words) < 200 else f"A `{type(member).__name__}`."


def first_line(member: Any) -> str:
    """Return the first line of a docstring."""
    return (inspect.getdoc(member) or "").partition("\n")[0]


def page(package: str) -> str:
    """Write the page of one package."""
    about = first_line(importlib.import_module(package))
    entries = [entry(package, name) for name in public_names(package)]
    entries += [f"::: {path}\n" for path in MORE.get(package, ())]
    return "\n".join([f"# {package}", "", about, "", *entries])


def index() -> str:
    """Write the list of all public names, by package."""
    lines = ["# Reference", ""]
    for package in packages():
        more = [path.rpartition(".")[2] for path in MORE.get(package, ())]
        names = ", ".join(f"`{name}`" for name in (*public_names(package), *more))
        lines += [f"## [{package}]({package}.md)", "", names, ""]
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Return every page of the reference by its path."""
    found = {f"reference/{package}.md": page(package) for package in packages()}
    return {"reference/index.md": index(), **found}
