"""Constructors that check their arguments against their annotations.

Registered models, tasks, solvers and gradients are checked by `undamped._base.registry`; other
public classes use the decorator `checked`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, get_type_hints

from undamped._base.options import convert, refuse_unknown, shared_options

S = TypeVar("S")
P = ParamSpec("P")


def checked(constructor: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Check the arguments of a constructor against its annotations, and pass them on converted.

    A wrong value raises an `OptionError`, an unknown keyword an `UnknownOptionError` with the
    nearest name. Options taken as a group, by `**solve: Unpack[SolveOptions]`, appear in the
    signature one by one and arrive complete.

    Args:
        constructor: An `__init__` with annotations as `undamped._base.options` reads them.

    Example:
        >>> @checked
        ... def __init__(self, size: PositiveInt) -> None: ...
    """
    signature = _expanded_signature(constructor)

    @cache
    def hints() -> dict[str, Any]:  # annotations can be resolved once the module is complete
        group = {name: option.annotation for name, option in shared_options(constructor).items()}
        return get_type_hints(constructor, include_extras=True) | group

    @wraps(constructor)
    def construct(self: S, *args: P.args, **options: P.kwargs) -> None:
        owner = type(self).__name__
        refuse_unknown(owner, options, list(signature.parameters)[1:])
        bound = signature.bind(self, *args, **options)
        for name in list(bound.arguments)[1:]:
            annotation = hints().get(name, Any)
            bound.arguments[name] = convert(annotation, bound.arguments[name], f"{owner}.{name}")
        for name, option in shared_options(constructor).items():
            bound.arguments.setdefault(name, option.default)
        constructor(*bound.args, **bound.kwargs)

    construct.__signature__ = signature  # type: ignore[attr-defined]
    construct.checks_options = True  # type: ignore[attr-defined]
    return construct


def check_constructor(target: type) -> None:
    """Make the constructor of a class check its arguments, unless it does.

    Args:
        target: The class. If its constructor passes options on (`**options`), it must check their
            values itself; unknown names are refused by the signature of the class.
    """
    constructor: Any = target.__init__
    if hasattr(constructor, "checks_options"):
        return
    parameters = inspect.signature(constructor).parameters.values()
    if constructor is object.__init__:
        constructor = checked(_without_options)
    elif all(p.kind is not inspect.Parameter.VAR_KEYWORD for p in parameters):
        constructor = checked(constructor)
    elif hasattr(target, "__signature__"):
        constructor = _with_known_names(constructor)
    target.__init__ = constructor  # type: ignore[misc]


def _with_known_names(constructor: Callable[..., None]) -> Callable[..., None]:
    """Refuse unknown keywords before Python reports a required argument that is missing."""

    @wraps(constructor)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        refuse_unknown(type(self).__name__, options, list(inspect.signature(type(self)).parameters))
        constructor(self, *args, **options)

    construct.checks_options = True  # type: ignore[attr-defined]
    return construct


def _without_options(self: Any) -> None:
    """Construct an object that has no options."""


def with_fixed(constructor: Callable[..., None], **fixed: Any) -> Callable[..., None]:
    """Return a constructor in which some options have fixed values and are no longer accepted.

    Args:
        constructor: A checked `__init__`.
        fixed: The options and their values.
    """
    signature = inspect.signature(constructor)
    free = [p for name, p in signature.parameters.items() if name not in fixed]

    @wraps(constructor)
    def construct(self: Any, *args: Any, **options: Any) -> None:
        refuse_unknown(type(self).__name__, options, [p.name for p in free[1:]])
        constructor(self, *args, **options, **fixed)

    construct.__signature__ = signature.replace(parameters=free)  # type: ignore[attr-defined]
    return construct


def _expanded_signature(constructor: Callable[..., None]) -> inspect.Signature:
    """Return the signature with the options of a group in place of `**group`."""
    signature = inspect.signature(constructor)
    parameters = list(signature.parameters.values())
    if parameters[-1].kind is not inspect.Parameter.VAR_KEYWORD:
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
    return signature.replace(parameters=[*parameters[:-1], *group])
