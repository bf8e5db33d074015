"""Optional packages; the library itself needs torch, NumPy, Numba and safetensors."""

from __future__ import annotations

from importlib.util import find_spec

from undamped._base.errors import MissingPackageError

CORE = ("torch", "numpy", "numba", "safetensors")
"""Packages of layers, solvers, models and analysis."""
LAB = ("scipy", "sklearn", "typer", "rich", "matplotlib", "plotly", "pandas", "PIL")
"""Further packages of the workbench."""


def require(what: str, *packages: str) -> None:
    """Raise a `MissingPackageError` unless some packages are installed.

    Args:
        what: What needs them, for the message.
        packages: The names under which they are imported.
    """
    missing = [package for package in packages if not _is_installed(package)]
    if missing:
        extra = "lab" if set(missing) <= set(LAB) else "all"
        raise MissingPackageError(
            f"{what} needs {' and '.join(missing)}. "
            f"Install what is missing with: pip install 'undamped[{extra}]'",
            name=missing[0],
        )


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
