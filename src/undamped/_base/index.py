"""Write the index, the catalogue and the stubs: `python -m undamped._base.index`.

`undamped._index` has the module of every registered name, so that a look-up imports one file.
`_catalogue.jsonl` has their descriptions, so that `undamped list` imports none.
`__init__.pyi` of packages whose names are loaded on demand tells type checkers and editors what
there is. A test compares the files with what this module would write.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from pathlib import Path
from typing import Any

from undamped._base import registry
from undamped._base.describe import CATALOGUE, describe_entry
from undamped._base.describe import REGISTRIES as DESCRIBED

REGISTRIES = {
    "MODELS": (registry.models, ("undamped.nn", "undamped.models", "undamped.lab.baselines")),
    "TASKS": (registry.tasks, ("undamped.lab.tasks",)),
    "SOLVERS": (registry.solvers, ("undamped.ode",)),
    "GRADIENTS": (registry.gradients, ("undamped.ode.gradients",)),
    "INSTRUMENTS": (registry.instruments, ("undamped.analysis", "undamped.lab.instruments")),
    "EXPERIMENTS": (registry.experiments, ("undamped.lab.papers",)),
    "BENCHMARKS": (registry.benchmarks, ("undamped.lab.benchmarks",)),
    "READERS": (registry.readers, ("undamped.lab.data.recordings.formats",)),
}
STUBS = tuple(
    f"undamped{package}"
    for package in (
        *("", ".nn", ".ode", ".kernels", ".models", ".parametrizations", ".analysis"),
        ".lab.tasks",
    )
)
NOTE = "Written by `python -m undamped._base.index`; do not edit."


def index_text() -> str:
    """Return the text of `undamped/_index.py`, after importing every module there is."""
    lines = [f'"""Where every registered name is defined.\n\n{NOTE}\n"""', ""]
    for constant in REGISTRIES:
        lines.append(f"{constant} = {{")
        for name, entry in _library_entries(constant).items():
            target = registry.definition_of(entry)
            lines.append(f'    "{name}": "{target.__module__}:{target.__qualname__}",')
        lines += ["}", ""]
    return "\n".join(lines)


def catalogue_text() -> str:
    """Return the text of `undamped/_catalogue.jsonl`, a description of every entry."""
    return "".join(
        json.dumps(describe_entry(name, names), ensure_ascii=False, separators=(",", ":")) + "\n"
        for kind, names in DESCRIBED.items()
        for name in _library_entries(kind.upper())
    )


def _library_entries(constant: str) -> dict[str, Any]:
    names, packages = REGISTRIES[constant]
    for package in packages:
        _import_modules(package)
    entries = sorted(names._entries.items())
    return {name: entry for name, entry in entries if names.source_of(name) == registry.LIBRARY}


def stub_text(package: str) -> str:
    """Return the text of a package's stub."""
    module = importlib.import_module(package)
    modules = {**vars(module)["_NAMES"], **vars(module).get("_CLASSES", {})}
    packages = [name for name in module.__all__ if name not in modules]
    imports = [f"from {source} import {name} as {name}" for name, source in modules.items()]
    imports += [f"from {package} import {name} as {name}" for name in packages]
    heading = f'"""{(module.__doc__ or "").splitlines()[0]}\n\n{NOTE}\n"""'
    return "\n".join([heading, "", *sorted(imports), ""])


def write(folder: Path | None = None) -> list[Path]:
    """Write index, catalogue and stubs below a folder, by default that of the source."""
    root = folder or Path(__file__).parents[2]
    texts = {root / "undamped" / "_index.py": index_text()}
    texts[root / "undamped" / CATALOGUE.name] = catalogue_text()
    texts |= {
        root.joinpath(*package.split("."), "__init__.pyi"): stub_text(package) for package in STUBS
    }
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
