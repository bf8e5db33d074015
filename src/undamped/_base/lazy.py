"""Public names that are loaded when somebody asks for them.

A package gives itself `__getattr__` and `__dir__` from here. Its names are those of a short table
(name and module) and those of the members of a registry, which nobody has to write down.
`python -m undamped._base.stubs` writes them into the stub that editors and type checkers read.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str,
    table: Mapping[str, str],
    members: Callable[[], Mapping[str, Callable[[], Any]]] = dict,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package, or of a module.

    Args:
        package: Its name.
        table: Public names, and the modules in which they are defined.
        members: Returns the names of members, and for each a function that returns it.
    """

    def public() -> list[str]:
        return sorted({*table, *members()})

    def listing() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public()})

    def is_package() -> bool:
        return hasattr(sys.modules[package], "__path__")

    def keep(name: str, value: Any) -> Any:
        vars(sys.modules[package])[name] = value  # so that nobody has to come here again
        return value

    def get(name: str) -> Any:
        if name == "__all__":
            return public()
        if not name.startswith("_"):
            if name in table:
                return keep(name, getattr(importlib.import_module(table[name]), name))
            # Before members are asked for: an import of a submodule comes here first.
            if is_package() and importlib.util.find_spec(f"{package}.{name}") is not None:
                return importlib.import_module(f"{package}.{name}")
            if name in (found := members()):
                return keep(name, found[name]())
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return get, listing
