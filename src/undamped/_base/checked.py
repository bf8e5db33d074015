"""Constructors that check what they are given, also when they are called from Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from undamped._base.options import convert, shared_options, unknown_option

S = TypeVar("S")
P = ParamSpec("P")


def checked(
    constructor: Callable[Concatenate[S, P], None],
) -> Callable[Concatenate[S, P], None]:
    """Check the arguments of a constructor against its annotations, and hand them on converted.

    A wrong value is refused as `Class.option: expected …, got ….`, as the command line does, so
    that a slip in a name cannot choose another variant. Options taken as a group, by
    `**solve: Unpack[SolveOptions]`, stand in the signature one by one and arrive complete.

    Args:
        constructor: An `__init__` with annotations as `undamped._base.options` reads them.

    Example:
        >>> @checked
        ... def __init__(self, size: PositiveInt) -> None: ...
    """
    signature = _written_out(constructor)

    @cache
    def hints() -> dict[str, Any]:  # names in annotations exist only when the module is complete
        group = {name: option.annotation for name, option in shared_options(constructor).items()}
        return get_type_hints(constructor, include_extras=True) | group

    @wraps(constructor)
    def construct(self: S, *args: P.args, **options: P.kwargs) -> None:
        owner = type(self).__name__
        _refuse_unknown(owner, options, list(signature.parameters))
        given = signature.bind(self, *args, **options)
        for name in list(given.arguments)[1:]:
            given.arguments[name] = convert(hints()[name], given.arguments[name], f"{owner}.{name}")
        for name, option in shared_options(constructor).items():
            given.arguments.setdefault(name, option.default)
        constructor(*given.args, **given.kwargs)

    construct.__signature__ = signature  # type: ignore[attr-defined]
    return construct


def naming_unknown(constructor: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that says what an unknown option may have been meant to be.

    Args:
        constructor: An `__init__`; one that hands options on is returned as it is.
    """
    parameters = inspect.signature(constructor).parameters
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values()):
        return constructor

    @wraps(constructor)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        _refuse_unknown(type(self).__name__, options, list(parameters))
        constructor(self, *args, **options)

    return construct


def with_fixed(constructor: Callable[..., None], **fixed: Any) -> Callable[..., None]:
    """Return a constructor with some options decided, which can no longer be said.

    Args:
        constructor: A checked `__init__`.
        fixed: What is decided.
    """
    signature = inspect.signature(constructor)
    left = [p for name, p in signature.parameters.items() if name not in fixed]

    @wraps(constructor)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        _refuse_unknown(type(self).__name__, options, [p.name for p in left])
        constructor(self, *args, **options, **fixed)

    construct.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
    return construct


def _refuse_unknown(owner: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise unknown_option(owner, name, known[1:])


def _written_out(constructor: Callable[..., None]) -> inspect.Signature:
    """Return the signature with the options of a group in place of `**group`."""
    signature = inspect.signature(constructor)
    own = list(signature.parameters.values())
    if own[-1].kind is not inspect.Parameter.VAR_KEYWORD:
        return signature
    group = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=option.annotation,
        )
        for option in shared_options(constructor).values()
    ]
    return signature.replace(parameters=[*own[:-1], *group])
