"""A name becomes a member: models, tasks, solvers, instruments, experiments, benchmarks, readers.

Everything that is generic (command line, checks, documentation pages, reports) walks a registry,
and a registry imports the modules of its own package when it is first asked. So a new member is
one file with a decorator in it, and needs no list anywhere else.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

from undamped._base.errors import OptionError, explain
from undamped._base.options import check, unknown_name
from undamped._base.source import OWN, Source, source_of_module

T = TypeVar("T")
M = TypeVar("M")


class Registry(Generic[T]):
    """Names and the members they stand for.

    Args:
        kind: What the members are called in messages, for example "model".
        package: The package, or packages, whose modules enter the members. They are imported on
            the first look-up, so that registering costs nothing where nobody asks.

    Example:
        >>> tasks = Registry("task", package="undamped.lab.tasks")
        >>> tasks["copy"]
        <class 'undamped.lab.tasks.copying.Copy'>
    """

    def __init__(self, kind: str, package: str | tuple[str, ...] = ()) -> None:
        self.kind = kind
        self.packages = (package,) if isinstance(package, str) else package
        self._entries: dict[str, Any] = {}
        self._made: dict[str, T] = {}
        self._makers: list[tuple[type, Callable[[Any], T]]] = []
        self._sources: dict[str, Source] = {}
        self._loaded = self._loading = False
        self._lock = threading.RLock()

    def register(self, name: str) -> Callable[[M], M]:
        """Return a decorator that enters a class or function under `name`."""

        def enter(member: M) -> M:
            source = source_of_module(_module_of(member))
            if source != OWN:
                self._load_own()  # so that a name that is taken is known to be
            if name in self._entries and not self._same(name, member):
                raise self._taken(name, source)
            self._entries[name] = member
            self._made.pop(name, None)
            self._sources[name] = source
            return member

        return enter

    def _same(self, name: str, member: object) -> bool:
        """Whether a member is one of before, defined again as a notebook does."""
        before = self._entries[name]
        return self._sources[name].kind == "program" and (
            _module_of(before),
            getattr(before, "__qualname__", None),
        ) == (_module_of(member), getattr(member, "__qualname__", None))

    def _taken(self, name: str, source: Source) -> Exception:
        if source == OWN:
            return ValueError(f"two {self.kind}s want the name '{name}'")
        return OptionError(
            explain(
                f"{self.kind} '{name}' of {source}",
                expected="a name that is free",
                got=f"one that {self._sources[name]} has",
                remedy="Choose another.",
            )
        )

    def source_of(self, name: str) -> Source:
        """Return where a member comes from."""
        self._load()
        return self._sources[name]

    def made_from(self, declaration: type) -> Callable[[M], M]:
        """Return a decorator for the function that makes a member of a declaration.

        A file may enter less than the whole member: a cell declares its network, and the network
        is made of the declaration when somebody asks for it.
        """

        def enter(maker: M) -> M:
            self._makers.append((declaration, maker))  # type: ignore[arg-type]
            return maker

        return enter

    def entries(self) -> dict[str, Any]:
        """Return what was entered, by name: members, or the declarations they are made of."""
        self._load()
        return dict(self._entries)

    def by_class_name(self) -> dict[str, Callable[[], T]]:
        """Return the names of the members' classes, and for each a function that returns it."""
        return {
            getattr(entry, "class_name", None) or entry.__name__: partial(self.__getitem__, name)
            for name, entry in self.entries().items()
        }

    def _load(self) -> None:
        """Load all there is: the members of the packages, and those from outside."""
        self._load_own()
        # By name, since what loads from outside stands above this module.
        importlib.import_module("undamped._base.outside").load_everything()

    def _load_own(self) -> None:
        """Import the modules of the packages, once; members enter themselves on the way."""
        if self._loaded:
            return
        with self._lock:
            if self._loaded or self._loading:
                return  # modules of the package may look something up while they load
            self._loading = True
            try:
                for package in self.packages:
                    import_modules(package)
                self._loaded = True
            finally:
                self._loading = False

    def __getitem__(self, name: str) -> T:
        self._load()
        if name not in self._entries:
            raise unknown_name(self.kind, name, list(self._entries))
        if name not in self._made:
            entry = self._entries[name]
            makers = [maker for kind, maker in self._makers if isinstance(entry, kind)]
            self._made[name] = makers[-1](entry) if makers else entry
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        self._load()
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def name_of(self, member: object) -> str | None:
        """Return the name under which a class is entered, or None."""
        return next((name for name in self if self[name] is member), None)

    def build(self, name: str, **options: Any) -> Any:
        """Build the member called `name` after checking its options."""
        member: Any = self[name]
        return member(**check(name, member, options))


def _module_of(entry: Any) -> str:
    """Return the module that defines a member, or what a declaration is about."""
    if not isinstance(entry, type):
        entry = getattr(entry, "cell", getattr(entry, "read", entry))
    return entry.__module__


def import_modules(package: str) -> None:
    """Import every module of a package, and of the packages in it."""
    found = importlib.import_module(package)
    for module in pkgutil.iter_modules(found.__path__, f"{package}."):
        if module.ispkg:
            import_modules(module.name)
        else:
            importlib.import_module(module.name)


models: Registry[Any] = Registry("model", package=("undamped.nn", "undamped.nn"))
tasks: Registry[Any] = Registry("task", package="undamped.lab.tasks")
solvers: Registry[Any] = Registry("solver", package="undamped.ode")
instruments: Registry[Any] = Registry("instrument", package="undamped.analysis")
experiments: Registry[Any] = Registry("experiment", package="undamped.lab.papers")
benchmarks: Registry[Any] = Registry("benchmark", package="undamped.lab.benchmarks")
readers: Registry[Any] = Registry("reader", package="undamped.lab.data.recordings.formats")
