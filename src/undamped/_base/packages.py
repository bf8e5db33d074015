"""Packages beyond the four that the library needs: torch, NumPy, Numba and safetensors."""

from __future__ import annotations

from importlib.util import find_spec

from undamped._base.errors import MissingPackageError

CORE = ("torch", "numpy", "numba", "safetensors")
"""What layers, solvers, models and analysis need."""
LAB = ("scipy", "sklearn", "typer", "rich", "matplotlib", "plotly", "pandas", "PIL")
"""What the workbench needs besides."""


def require(what: str, *packages: str) -> None:
    """Refuse to go on unless some packages can be imported.

    Args:
        what: What needs them, as the message should say it.
        packages: Their names, as they are imported.
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
