"""Write the index of the registries and the stubs: `python -m undamped._base.index`.

`undamped._index` has the module of every registered name, so that a look-up imports one file.
`__init__.pyi` of packages whose names are loaded on demand tells type checkers and editors what
there is. A test compares the files with what this module would write.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

from undamped._base import registry

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
    for package in ("", ".nn", ".ode", ".kernels", ".models", ".parametrizations", ".lab.tasks")
)
NOTE = "Written by `python -m undamped._base.index`; do not edit."


def index_text() -> str:
    """Return the text of `undamped/_index.py`, after importing every module there is."""
    lines = [f'"""Where every registered name is defined.\n\n{NOTE}\n"""', ""]
    for constant, (names, packages) in REGISTRIES.items():
        for package in packages:
            _import_modules(package)
        lines.append(f"{constant} = {{")
        for name, entry in sorted(names._entries.items()):
            if names.source_of(name) == registry.LIBRARY:
                target = registry.definition_of(entry)
                lines.append(f'    "{name}": "{target.__module__}:{target.__qualname__}",')
        lines += ["}", ""]
    return "\n".join(lines)


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
    """Write index and stubs below a folder, that of the source if none is given."""
    root = folder or Path(__file__).parents[2]
    texts = {root / "undamped" / "_index.py": index_text()}
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
