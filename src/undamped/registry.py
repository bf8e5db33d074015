"""A name becomes a class: one registry for models, one for tasks, one for solvers.

Everything that is generic (command line, checks, documentation pages, reports) walks a
registry, so a new member is one file and one line and needs no list anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar, cast

from undamped.options import check, unknown_name

T = TypeVar("T")
M = TypeVar("M")


class Registry(Generic[T]):
    """Names and the classes they stand for.

    Args:
        kind: What the members are called in messages, for example "model".
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._members: dict[str, T] = {}

    def register(self, name: str) -> Callable[[M], M]:
        """Return a decorator that enters a class under `name`."""

        def enter(member: M) -> M:
            if name in self._members:
                raise ValueError(f"two {self.kind}s want the name '{name}'")
            self._members[name] = cast(T, member)
            return member

        return enter

    def __getitem__(self, name: str) -> T:
        try:
            return self._members[name]
        except KeyError:
            raise unknown_name(self.kind, name, list(self._members)) from None

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._members))

    def __len__(self) -> int:
        return len(self._members)

    def name_of(self, member: object) -> str | None:
        """Return the name under which a class is entered, or None."""
        return next((name for name, entered in self._members.items() if entered is member), None)

    def build(self, name: str, **options: Any) -> Any:
        """Build the member called `name` after checking its options."""
        member: Any = self[name]
        return member(**check(name, member, options))


models: Registry[Any] = Registry("model")
tasks: Registry[Any] = Registry("task")
solvers: Registry[Any] = Registry("solver")
