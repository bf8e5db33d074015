"""Registries: names of models, tasks, solvers, instruments, papers, benchmarks and readers.

A registry is an index: it knows for every name the module that defines it, and a look-up imports
that module and nothing else. The index (`_index.json`) is written by
`python -m undamped.lab.catalogue`, and a test compares it with the decorators in the source.
Third-party code adds entries with the same decorators, see `undamped.extend`.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from undamped._base.checked import check_constructor
from undamped._base.errors import OptionError
from undamped._base.options import check, unknown_name
from undamped.version import __version__

T = TypeVar("T")
M = TypeVar("M")


@dataclass(frozen=True)
class Source:
    """Where an entry comes from.

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
        values = {name: stored.get(name, "") for name in ("kind", "name", "version")}
        plain = all(isinstance(value, str) for value in values.values())
        kinds = ("undamped", "file", "package", "program")
        return cls(**values) if plain and values["kind"] in kinds else None


LIBRARY = Source("undamped", "undamped", __version__)

LOADING: ContextVar[Source | None] = ContextVar("LOADING", default=None)
"""The file or package that is being loaded, which is the source of what it registers."""


def source_of_module(module: str) -> Source:
    """Return the source of what a module defines."""
    if module.startswith("undamped.") and not module.startswith("undamped._base.plugins."):
        return LIBRARY
    return LOADING.get() or Source("program", module)


class Registry(Generic[T]):
    """Names and the classes or functions they stand for.

    Args:
        kind: The name of the kind in messages, for example "model".
        index: For every name of this library, "module:attribute".
        checked: Whether constructors of classes check their arguments once they are registered.

    Example:
        >>> tasks["copy"]
        <class 'undamped.lab.tasks.copying.Copy'>
    """

    def __init__(self, kind: str, index: Mapping[str, str], *, checked: bool = False) -> None:
        self.kind = kind
        self.checked = checked
        self.index = index
        self._entries: dict[str, Any] = {}
        self._sources: dict[str, Source] = {}

    def register(self, name: str) -> Callable[[M], M]:
        """Return a decorator that registers a class or function under `name`."""

        def enter(entry: M) -> M:
            source = source_of_module(_module_of(entry))
            owner = self._sources.get(name) or (LIBRARY if name in self.index else source)
            redefined = name in self._entries and self._is_redefinition(name, entry)
            if owner != source or (name in self._entries and not redefined):
                raise OptionError(
                    f"Cannot register the {self.kind} '{name}' of {source}: the name is taken by "
                    f"{owner}."
                )
            if self.checked and isinstance(entry, type):
                check_constructor(entry)
            self._entries[name] = entry
            self._sources[name] = source
            return entry

        return enter

    def _is_redefinition(self, name: str, entry: object) -> bool:
        """Return whether an entry replaces itself, as when a notebook cell is run twice."""
        before = self._entries[name]
        return self._sources[name].kind == "program" and (
            _module_of(before),
            getattr(before, "__qualname__", None),
        ) == (_module_of(entry), getattr(entry, "__qualname__", None))

    def source_of(self, name: str) -> Source:
        """Return where an entry comes from."""
        if name in self.index:
            return LIBRARY
        self[name]  # raises where there is no such name
        return self._sources[name]

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            if name in self.index:
                importlib.import_module(self.index[name].partition(":")[0])
            else:
                _load_third_party()
        if name not in self._entries:
            raise unknown_name(self.kind, name, list(self))
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        if name not in self.index and name not in self._entries:
            _load_third_party()
        return name in self.index or name in self._entries

    def __iter__(self) -> Iterator[str]:
        _load_third_party()
        return iter(sorted({*self.index, *self._entries}))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def name_of(self, target: object) -> str | None:
        """Return the name under which a class is registered, or None."""
        return next((name for name, entry in self._entries.items() if entry is target), None)

    def classes_in(self, package: str, index: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the classes that a package of this library registers, and the module of each.

        Args:
            package: The package.
            index: An index that is newer than the one in use.
        """
        entries = (entry.partition(":") for entry in (index or self.index).values())
        return {name: mod for mod, _, name in entries if f"{mod}.".startswith(f"{package}.")}

    def build(self, name: str, **options: Any) -> Any:
        """Build the entry called `name`; unknown options and wrong values are refused."""
        entry: Any = self[name]
        return entry(**(options if self.checked else check(name, entry, options)))


def _module_of(entry: Any) -> str:
    return definition_of(entry).__module__


def definition_of(entry: Any) -> Any:
    """Return the class or function of an entry; a reader is a record around a function."""
    return entry if isinstance(entry, type) else getattr(entry, "read", entry)


def _load_third_party() -> None:
    # Imported by name, because that module imports this one.
    importlib.import_module("undamped._base.plugins").load_everything()


_INDEX = json.loads(Path(__file__).parents[1].joinpath("_index.json").read_text(encoding="utf-8"))

models: Registry[Any] = Registry("model", _INDEX["models"], checked=True)
tasks: Registry[Any] = Registry("task", _INDEX["tasks"], checked=True)
solvers: Registry[Any] = Registry("solver", _INDEX["solvers"], checked=True)
gradients: Registry[Any] = Registry("gradient", _INDEX["gradients"], checked=True)
instruments: Registry[Any] = Registry("instrument", _INDEX["instruments"])
experiments: Registry[Any] = Registry("experiment", _INDEX["experiments"])
benchmarks: Registry[Any] = Registry("benchmark", _INDEX["benchmarks"])
readers: Registry[Any] = Registry("reader", _INDEX["readers"])
