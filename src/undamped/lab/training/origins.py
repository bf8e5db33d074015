"""The plugins that a run was made with, and the versions of libraries.

A run names the files and packages of its plugins, but opening a run never loads them: a folder
from another person must not be able to run a program.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from undamped._base.errors import RunError
from undamped._base.plugins import loaded_sources
from undamped._base.registry import LIBRARY, Source, models, tasks
from undamped.version import __version__


def origins(model: str, task: str) -> dict[str, Any]:
    """Return the entry of run.json about plugins, also of the named model and task."""
    sources = loaded_sources()
    for registry, name in ((models, model), (tasks, task)):
        if name in registry and registry.source_of(name) not in (LIBRARY, *sources):
            sources.append(registry.source_of(name))
    return {"outside": [source.to_dict() for source in sources]} if sources else {}


def check_origins(path: str, settings: Mapping[str, Any], missing: str | None = None) -> None:
    """Raise an error if a plugin of a run is missing, and warn if it has changed.

    Args:
        path: The run folder.
        settings: Its settings.
        missing: What is not registered, for example "the model 'leaky'"; None for nothing.
    """
    sources = loaded_sources()
    for source in _sources(settings):
        # A file may have moved, so its contents are compared first.
        same = [s for s in sources if s.kind == source.kind and s.version == source.version]
        named = [s for s in sources if (s.kind, s.name) == (source.kind, source.name)]
        match = (*same, *named, None)[0]
        if match is None and missing is not None:
            raise RunError(f"{path} needs {missing}, which comes from {source}. {_remedy(source)}")
        if match is not None and match.version != source.version:
            warnings.warn(
                f"{path}: {source.name} has changed since the run was made. Numbers may differ "
                "from the run's.",
                stacklevel=3,
            )


def with_words(settings: Mapping[str, Any]) -> str:
    """Return the arguments of a command that load the plugins of a run: ' --with FILE', or none."""
    files = [source.name for source in _sources(settings) if source.kind == "file"]
    return "".join(f" --with {shlex.quote(name)}" for name in files)


def _sources(settings: Mapping[str, Any]) -> list[Source]:
    """Return the plugins that a run names; invalid entries are skipped."""
    sources = (Source.from_dict(stored) for stored in settings.get("outside", ()))
    return [source for source in sources if source is not None]


def _remedy(source: Source) -> str:
    if source.kind == "file":
        return (
            f"If you trust the file, add --with {shlex.quote(source.name)} (from "
            "Python: undamped.extend.load_file)."
        )
    if source.kind == "package":
        return f"Install {source.name}, version {source.version}."
    return f"Import {source.name} first, from Python."


_RECORDED = ("torch", "lightning", "numpy", "numba", "scikit-learn", "safetensors")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that a result depends on."""
    numbers = {"python": platform.python_version(), "undamped": __version__}
    for name in _RECORDED:
        with contextlib.suppress(PackageNotFoundError):
            numbers[name] = version(name)
    return numbers


def machine() -> dict[str, Any]:
    """Return the properties of the machine that a result depends on."""
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
