"""Where the members of a run came from, and what to say when they are not there any more.

A run names the files and packages with which it was made. It never loads them: a folder that
somebody sent must not be able to run a program.
"""

from __future__ import annotations

import os
import platform
import shlex
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from undamped._base.errors import RunError, explain
from undamped._base.plugins import loaded_sources
from undamped._base.registry import LIBRARY, Source, models, tasks


def origins(model: str, task: str) -> dict[str, Any]:
    """Return what a run has to remember about members from outside; often nothing.

    Args:
        model: The registry name of the model.
        task: The registry name of the task.
    """
    sources = loaded_sources()
    for registry, name in ((models, model), (tasks, task)):
        if name in registry and registry.source_of(name) not in (LIBRARY, *sources):
            sources.append(registry.source_of(name))
    return {"outside": [source.to_dict() for source in sources]} if sources else {}


def check_origins(path: str, settings: Mapping[str, Any], missing: str | None = None) -> None:
    """Say what is missing of that with which a run was made, or has changed since.

    Args:
        path: The run folder.
        settings: Its settings.
        missing: What could not be found, for example "the model 'leaky'"; none if all was.
    """
    now = loaded_sources()
    for source in _sources(settings):
        # A file may have moved; what counts is what is in it.
        same = [one for one in now if one.kind == source.kind and one.version == source.version]
        named = [one for one in now if (one.kind, one.name) == (source.kind, source.name)]
        there = (*same, *named, None)[0]
        if there is None and missing is not None:
            raise RunError(
                explain(
                    path,
                    expected=f"{missing}, which comes from {source}",
                    got="a program without it",
                    remedy=_remedy(source),
                )
            )
        if there is not None and there.version != source.version:
            warnings.warn(
                f"{path}: expected {source.name} as it was when the run was made, got another "
                "version of it. Numbers may differ from the run's.",
                stacklevel=3,
            )


def with_words(settings: Mapping[str, Any]) -> str:
    """Return what a command needs to find the members of a run: ' --with FILE', or nothing."""
    files = [source.name for source in _sources(settings) if source.kind == "file"]
    return "".join(f" --with {shlex.quote(name)}" for name in files)


def _sources(settings: Mapping[str, Any]) -> list[Source]:
    """Return what a run names; what is no source says nothing and is passed over."""
    sources = (Source.from_dict(stored) for stored in settings.get("outside", ()))
    return [source for source in sources if source is not None]


def _remedy(source: Source) -> str:
    if source.kind == "file":
        return (
            f"Look at the file, and if you trust it, add --with {shlex.quote(source.name)} (from "
            "Python: undamped.extend.load_file)."
        )
    if source.kind == "package":
        return f"Install {source.name}, version {source.version}."
    return f"Import {source.name} first, from Python."


_RECORDED = ("undamped", "torch", "lightning", "numpy", "numba", "scikit-learn", "safetensors")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that shape a result."""
    found = {"python": platform.python_version()}
    for name in _RECORDED:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Describe the machine as far as it shapes a result."""
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }
