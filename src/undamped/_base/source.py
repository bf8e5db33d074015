"""Where a member comes from: this library, a file, a package, or the running program."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, Literal

from undamped.version import __version__


@dataclass(frozen=True)
class Source:
    """Where a member comes from.

    Args:
        kind: This library, a file given by --with, an installed package, or a running program.
        name: The path of the file, the name of the package, or of the program's module.
        version: The checksum (SHA-256) of the file, or the version of the package.
    """

    kind: Literal["undamped", "file", "package", "program"]
    name: str
    version: str = ""

    def __str__(self) -> str:
        return {
            "undamped": "undamped",
            "file": self.name,
            "package": f"the package {self.name} {self.version}",
            "program": f"the module {self.name}",
        }[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for run.json."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Any) -> Source | None:
        """Return what `to_dict` wrote; None of anything else."""
        kinds = {"undamped", "file", "package", "program"}
        names = ("kind", "name", "version")
        values = {name: stored.get(name, "") for name in names}
        plain = all(isinstance(value, str) for value in values.values())
        return cls(**values) if plain and values["kind"] in kinds else None


OWN = Source("undamped", "undamped", __version__)

LOADING: ContextVar[Source | None] = ContextVar("LOADING", default=None)
"""The file or package that is being loaded; what is entered meanwhile comes from it."""


def source_of_module(module: str) -> Source:
    """Return the source of what a module defines."""
    loading = LOADING.get()
    if module.startswith("undamped.") and not module.startswith("undamped._base.outside."):
        return OWN
    return loading or Source("program", module)
