"""Descriptions of registered entries, and the files made of them.

`python -m undamped.lab.catalogue` writes three kinds of files, and tests compare them:

- `_index.json` has the module of every registered name, so that a look-up imports one file.
- `_catalogue.jsonl` has the descriptions of this library's entries, so that `undamped list` and
  `undamped show` import neither them nor torch.
- `__init__.pyi` of packages whose names are loaded on demand lists their names for type checkers
  and editors.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin

import undamped
from undamped._base import registry
from undamped._base.docstrings import sections
from undamped._base.options import Option, options_of
from undamped._base.registry import Registry

PACKAGES: dict[str, tuple[Registry[Any], tuple[str, ...]]] = {
    "models": (registry.models, ("undamped.nn", "undamped.models", "undamped.lab.baselines")),
    "tasks": (registry.tasks, ("undamped.lab.tasks",)),
    "solvers": (registry.solvers, ("undamped.ode",)),
    "gradients": (registry.gradients, ("undamped.ode.gradients",)),
    "instruments": (registry.instruments, ("undamped.analysis", "undamped.lab.instruments")),
    "experiments": (registry.experiments, ("undamped.lab.papers",)),
    "benchmarks": (registry.benchmarks, ("undamped.lab.benchmarks",)),
    "readers": (registry.readers, ("undamped.lab.data.recordings.formats",)),
}
"""Every registry, and the packages of this library that have its entries."""
REGISTRIES: dict[str, Registry[Any]] = {
    kind: names for kind, (names, _) in PACKAGES.items() if kind not in ("gradients", "readers")
}
"""The registries that have a catalogue, in the order in which they are listed."""
STUBS = tuple(
    f"undamped{package}"
    for package in (
        *("", ".nn", ".ode", ".kernels", ".models", ".parametrizations", ".analysis"),
        *(".testing", ".lab.tasks"),
    )
)
NOTE = "Written by `python -m undamped.lab.catalogue`; do not edit."
CATALOGUE = Path(undamped.__file__).with_name("_catalogue.jsonl")


def summary(page: dict[str, Any]) -> str:
    """Return one line about an entry: the question it answers, or the start of its description."""
    return page.get("question", "") or (page["summary"].splitlines() or [""])[0]


def describe_entry(name: str, names: Registry[Any]) -> dict[str, Any]:
    """Import an entry of a registry and return its description.

    Args:
        name: The name of the entry.
        names: Its registry.
    """
    entry = names[name]
    text = sections(entry)
    promises = getattr(getattr(entry, "cell_class", entry), "promises", ())
    is_task = names is registry.tasks and isinstance(getattr(entry, "input_kind", None), str)
    return {
        "name": name,
        "kind": names.kind,
        "source": str(names.source_of(name)),
        "summary": text.pop(""),
        **({"question": entry.question} if hasattr(entry, "question") else {}),
        **({"inputs": entry.input_kind} if is_task else {}),
        **({"for": _purposes(entry)} if names is registry.models else {}),
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


def _purposes(model: Any) -> list[str]:
    """Return what a model is made for."""
    # By name, since the catalogue imports no models.
    bases = {base.__name__ for base in getattr(model, "__mro__", ())}
    physics = model.__module__.startswith("undamped.models.physics.")
    irregular = model.__module__.startswith("undamped.models.irregular.")
    irregular |= "times" in getattr(model, "uses", ()) and "NaiveBaseline" not in bases
    purposes = {
        "forecast": "ForecastModel" in bases,
        "streaming": hasattr(model, "cell_class") or "StreamingModel" in bases,
        "irregular": irregular and not physics,
        "physics": physics,
    }
    return [purpose for purpose, applies in purposes.items() if applies]


def settings_of(target: Callable[..., Any]) -> dict[str, Option]:
    """Return the options that can be written in a file: all but those that are functions."""
    return {n: option for n, option in options_of(target).items() if not _is_function(option)}


def _is_function(option: Option) -> bool:
    kinds = get_args(option.annotation) or (option.annotation,)
    return any(get_origin(kind) is Callable for kind in (option.annotation, *kinds))


def make_index() -> dict[str, dict[str, str]]:
    """Import every module there is; return where each entry is defined, by registry and name."""
    index = {}
    for kind in PACKAGES:
        targets = {n: registry.definition_of(entry) for n, entry in _library_entries(kind).items()}
        index[kind] = {n: f"{t.__module__}:{t.__qualname__}" for n, t in targets.items()}
    return index


def index_text(index: dict[str, dict[str, str]] | None = None) -> str:
    """Return the text of `undamped/_index.json`."""
    return json.dumps({"note": NOTE, **(index or make_index())}, indent=1) + "\n"


def catalogue_text() -> str:
    """Return the text of `undamped/_catalogue.jsonl`, a description of every entry."""
    return "".join(
        json.dumps(describe_entry(name, names), ensure_ascii=False, separators=(",", ":")) + "\n"
        for kind, names in REGISTRIES.items()
        for name in _library_entries(kind)
    )


def _library_entries(kind: str) -> dict[str, Any]:
    names, packages = PACKAGES[kind]
    for package in packages:
        _import_modules(package)
    entries = sorted(names._entries.items())
    return {name: entry for name, entry in entries if names.source_of(name) == registry.LIBRARY}


def stub_text(package: str, index: dict[str, dict[str, str]] | None = None) -> str:
    """Return the text of a package's stub.

    Args:
        package: Its name.
        index: What `make_index` returned, where classes may have moved since the index in use.
    """
    module = importlib.import_module(package)
    modules, classes = dict(vars(module)["_NAMES"]), vars(module).get("_CLASSES", {})
    packages = [name for name in module.__all__ if name not in {*modules, *classes}]
    for kind, (names, _) in PACKAGES.items():
        if classes and names.classes_in(package) == classes:
            modules |= names.classes_in(package, index[kind] if index else None)
    imports = [f"from {source} import {name} as {name}" for name, source in modules.items()]
    imports += [f"from {package} import {name} as {name}" for name in packages]
    heading = f'"""{(module.__doc__ or "").splitlines()[0]}\n\n{NOTE}\n"""'
    return "\n".join([heading, "", *sorted(imports), ""])


def write(folder: Path | None = None) -> list[Path]:
    """Write index, catalogue and stubs below a folder, by default that of the source."""
    root = folder or CATALOGUE.parents[1]
    index = make_index()
    texts = {root / "undamped" / "_index.json": index_text(index)}
    texts[root / "undamped" / CATALOGUE.name] = catalogue_text()
    for package in STUBS:
        texts[root.joinpath(*package.split("."), "__init__.pyi")] = stub_text(package, index)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(texts)


def _import_modules(package: str) -> None:
    """Import every module of a package, and of the packages in it."""
    module = importlib.import_module(package)
    for entry in pkgutil.iter_modules(module.__path__, f"{package}."):
        if entry.ispkg:
            _import_modules(entry.name)
        else:
            importlib.import_module(entry.name)


if __name__ == "__main__":
    for path in write():
        sys.stdout.write(f"{path}\n")
