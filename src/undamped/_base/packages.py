"""Packages a room needs beyond the core: torch, NumPy, Numba and safetensors.

The layers, the solvers and all models run on the core alone. Every other room asks for what it
uses when it is entered, so that a missing package is one sentence and not a traceback from the
middle of something.
"""

from __future__ import annotations

from importlib.util import find_spec

from undamped._base.errors import MissingPackageError, explain

CORE = ("torch", "numpy", "numba", "safetensors")
"""What has to be installed for `import undamped`, the layers, the solvers and all models."""


def require(what: str, *packages: str) -> None:
    """Refuse to go on unless some packages can be imported.

    Args:
        what: What needs them, as the message should say it.
        packages: Their names, as they are imported.
    """
    missing = [package for package in packages if not _is_there(package)]
    if missing:
        raise MissingPackageError(
            explain(
                what,
                expected=" and ".join(packages),
                got=f"no {' and no '.join(missing)}",
                remedy="Install what is missing with: pip install 'undamped[all]'",
            ),
            name=missing[0],
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
