"""Public names that are imported on first access."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str], packages: tuple[str, ...] = ()
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package or module.

    Args:
        package: Its name.
        modules: Public names, and the modules in which they are defined.
        packages: Subpackages that belong to the public names.
    """
    public = sorted(name for name in (*modules, *packages) if name != "__version__")

    def directory() -> list[str]:
        return sorted({*vars(sys.modules[package]), *public})

    def get(name: str) -> Any:
        if name == "__all__":
            return public
        if name in modules:
            value = getattr(importlib.import_module(modules[name]), name)
            setattr(sys.modules[package], name, value)  # the next access does not call this
            return value
        # The import of a submodule looks the attribute up first.
        is_package = "__path__" in vars(sys.modules[package])
        if is_package and name[:1] != "_" and importlib.util.find_spec(f"{package}.{name}"):
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    return get, directory
