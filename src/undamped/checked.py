"""Constructors that check what they are given, also when they are called from Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from undamped.options import convert

S = TypeVar("S")
P = ParamSpec("P")


def checked(
    constructor: Callable[Concatenate[S, P], None],
) -> Callable[Concatenate[S, P], None]:
    """Check the arguments of a constructor against its annotations, and hand them on converted.

    A wrong value is refused as `Class.option: expected …, got ….`, as the command line does, so
    that a slip in a name cannot choose another variant.

    Args:
        constructor: An `__init__` with annotations as `undamped.options` reads them.

    Example:
        >>> @checked
        ... def __init__(self, size: PositiveInt) -> None: ...
    """
    signature = inspect.signature(constructor)

    @cache
    def hints() -> dict[str, Any]:  # names in annotations exist only when the module is complete
        return get_type_hints(constructor, include_extras=True)

    @wraps(constructor)
    def construct(self: S, *args: P.args, **options: P.kwargs) -> None:
        given = signature.bind(self, *args, **options)
        for name in list(given.arguments)[1:]:
            what = f"{type(self).__name__}.{name}"
            given.arguments[name] = convert(hints()[name], given.arguments[name], what)
        constructor(*given.args, **given.kwargs)

    return construct
