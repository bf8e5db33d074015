"""Options of models, tasks and training: types and ranges read from a constructor's signature.

A constructor declares what it accepts by annotation, for example
``hidden_size: PositiveInt`` or ``initialisation: Literal["random", "henaff"]``. The same
declaration checks calls from Python, parses text from the command line or a TOML file, and
fills the help pages. A check is written here rather than taken from a validation library
because the message has to follow the formula of `undamped._base.errors`.
"""

from __future__ import annotations

import difflib
import inspect
import math
import re
import tomllib
import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, Literal, Union, Unpack, get_args, get_origin, get_type_hints

from undamped._base.docstrings import documented_arguments
from undamped._base.errors import OptionError, UnknownNameError, UnknownOptionError, explain

REQUIRED = inspect.Parameter.empty
CLOSE = 0.65
"""How alike names have to be, from 0 to 1, for one to be suggested in place of the other."""


@dataclass(frozen=True)
class Range:
    """The numbers an option accepts; an open end excludes its limit."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.open_low else value >= self.low
        below = value < self.high if self.open_high else value <= self.high
        return above and below

    def __str__(self) -> str:
        words = []
        if self.low > -math.inf:
            words.append(f"{'above' if self.open_low else 'at least'} {_limit(self.low)}")
        if self.high < math.inf:
            words.append(f"{'below' if self.open_high else 'at most'} {_limit(self.high)}")
        return " and ".join(words)


def _limit(value: float) -> str:
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e15 else f"{value:g}"


PositiveInt = Annotated[int, Range(low=1)]
NonNegativeInt = Annotated[int, Range(low=0)]
Units = Annotated[int, Range(low=1, high=10_000_000)]
Layers = Annotated[int, Range(low=1, high=10_000)]
PositiveFloat = Annotated[float, Range(low=0, open_low=True)]
NonNegativeFloat = Annotated[float, Range(low=0)]
Fraction = Annotated[float, Range(low=0, high=1)]
DropoutRate = Annotated[float, Range(low=0, high=1, open_high=True)]


@dataclass(frozen=True)
class Default:
    """What an option is where nobody says, and a sentence about it; for groups of options."""

    value: Any
    about: str


@dataclass(frozen=True)
class Option:
    """One named option: what it accepts, its default, and a sentence about it."""

    name: str
    annotation: Any
    default: Any
    description: str = ""

    @property
    def required(self) -> bool:
        """Whether a value has to be given."""
        return self.default is REQUIRED

    @property
    def accepts(self) -> str:
        """What the option accepts, in words."""
        return describe(self.annotation)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name closest to `name`, or None if nothing is close."""
    folded = {k.lower(): k for k in known}
    words = {word: k for full, k in folded.items() for word in re.split("[_-]", full)}
    for choices in (folded, words):  # 'hiden' is close to a word of 'hidden_size'
        found = difflib.get_close_matches(name.lower(), list(choices), n=1, cutoff=CLOSE)
        if found:
            return choices[found[0]]
    return None


def unknown_name(kind: str, name: str, known: Sequence[str]) -> UnknownNameError:
    """Return the error for a name nobody knows, with the nearest one that somebody does."""
    close = nearest(name, known)
    listing = ", ".join(sorted(known)) or "none"
    remedy = f"Did you mean '{close}'?" if close else f"Choose one of: {listing}."
    return UnknownNameError(
        explain(f"{kind} '{name}'", expected=f"a known {kind}", got="an unknown one", remedy=remedy)
    )


def unknown_option(owner: str, name: str, known: Sequence[str]) -> UnknownOptionError:
    """Return the error for an option nobody knows, a `TypeError` as for any call."""
    return UnknownOptionError(str(unknown_name(f"option of {owner}", name, known)))


@cache
def options_of(target: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a class or function, in the order of its signature."""
    declare = getattr(target, "declared_options", None)
    return signature_options(target) if declare is None else declare()


def signature_options(target: Callable[..., Any]) -> dict[str, Option]:
    """Return the options that the signature of a class or function declares."""
    owner = target.__init__ if inspect.isclass(target) else target
    group = shared_options(owner)
    texts: dict[str, str] = {}
    for base in reversed(target.__mro__) if inspect.isclass(target) else (target,):
        texts |= documented_arguments(base)
    hints = get_type_hints(owner, include_extras=True)
    skipped = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    own = {
        p.name: Option(p.name, hints.get(p.name, Any), p.default, texts.get(p.name, ""))
        for p in inspect.signature(owner).parameters.values()
        if p.name != "self" and p.kind not in skipped and p.name not in group
    }
    shared = {
        name: replace(option, description=texts.get(name, option.description))
        for name, option in group.items()
    }
    return {**own, **shared}


def shared_options(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the options a function takes as a group, by `**name: Unpack[Group]`.

    A group is a `TypedDict` that several constructors share: its fields say what is accepted and,
    with `Default`, what holds where nobody says and what it means.

    Args:
        function: The constructor.
    """
    for name, parameter in inspect.signature(inspect.unwrap(function)).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            annotation = get_type_hints(function, include_extras=True).get(name)
            if get_origin(annotation) is Unpack:
                return options_in(get_args(annotation)[0])
    return {}


@cache
def options_in(group: Any) -> dict[str, Option]:
    """Return the options of a group, a `TypedDict` whose fields carry their `Default`."""
    found = {}
    for name, annotation in get_type_hints(group, include_extras=True).items():
        kind, *marks = get_args(annotation)
        (default,) = (mark for mark in marks if isinstance(mark, Default))
        for mark in marks:
            if mark is not default:
                kind = Annotated[kind, mark]
        found[name] = Option(name, kind, default.value, default.about)
    return found


def settings_of(target: Callable[..., Any]) -> dict[str, Option]:
    """Return the options that a person can write down: all but those that are functions."""
    return {n: option for n, option in options_of(target).items() if not _is_function(option)}


def _is_function(option: Option) -> bool:
    kinds = get_args(option.annotation) or (option.annotation,)
    return any(get_origin(kind) is Callable for kind in (option.annotation, *kinds))


def check(
    owner: str, target: Callable[..., Any], values: Mapping[str, Any], *, text: bool = False
) -> dict[str, Any]:
    """Check `values` against the options of `target` and return them converted.

    Args:
        owner: Whose options these are, as the message should say it.
        target: The class or function whose signature declares the options.
        values: Names and values; values may be left out where a default exists.
        text: Whether strings are to be parsed, as they come from a command line.
    """
    return check_against(owner, options_of(target), values, text=text)


def check_against(
    owner: str, declared: Mapping[str, Option], values: Mapping[str, Any], *, text: bool = False
) -> dict[str, Any]:
    """Check `values` against declared options and return them converted; see `check`."""
    checked = {}
    for name, value in values.items():
        if name not in declared:
            raise unknown_option(owner, name, list(declared))
        checked[name] = convert(declared[name].annotation, value, f"{owner}.{name}", text=text)
    return checked


def convert(annotation: Any, value: Any, what: str, *, text: bool = False) -> Any:
    """Return `value` as `annotation` wants it, or raise an `OptionError` that names `what`."""
    try:
        return _convert(annotation, value, text)
    except (TypeError, ValueError, OverflowError, RecursionError):
        shown = repr(value) if isinstance(value, str) or value is None else value
        raise OptionError(
            explain(
                what, expected=describe(annotation), got=shown, remedy="Give a value of that kind."
            )
        ) from None


def check_fields(owner: str, value: Any) -> None:
    """Check every field of a dataclass that was made of a file against its annotation.

    Args:
        owner: What the dataclass is, as the message should say it.
        value: The dataclass.
    """
    for name, option in options_of(type(value)).items():
        item = getattr(value, name)
        if is_dataclass(item):
            check_fields(f"{owner}.{name}", item)
        convert(option.annotation, item, f"{owner}.{name}")


def _convert(annotation: Any, value: Any, text: bool) -> Any:
    if annotation is Any:
        return value
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        converted = _convert(arguments[0], value, text)
        for limit in arguments[1:]:
            if isinstance(limit, Range) and converted not in limit:
                raise ValueError(converted)
        return converted
    if origin in (Union, types.UnionType):
        return _convert_union(arguments, value, text)
    if origin is Literal:
        if value in arguments:
            return value
        raise ValueError(value)
    if origin is not None and issubclass(origin, Mapping):
        return _convert_mapping(value, text)
    if origin is not None and issubclass(origin, Sequence):
        return _convert_sequence(arguments, value, text)
    if origin is not None and issubclass(origin, Set):
        return frozenset(_convert_sequence(arguments, value, text))
    return _convert_plain(annotation, value, text)


def _convert_union(choices: tuple[Any, ...], value: Any, text: bool) -> Any:
    if type(None) in choices and (
        value is None or (text and str(value).lower() in ("none", "null"))
    ):
        return None
    for choice in choices:
        if choice is type(None):
            continue
        try:
            return _convert(choice, value, text)
        except (TypeError, ValueError, OverflowError):
            continue
    raise ValueError(value)


def _convert_sequence(arguments: tuple[Any, ...], value: Any, text: bool) -> tuple[Any, ...]:
    if isinstance(value, str):
        if not text:
            raise TypeError(value)
        value = [item.strip() for item in value.strip("[]()").split(",") if item.strip()]
        if not value:  # it would mean "all" or "none", and nobody says that by saying nothing
            raise ValueError(value)
    if isinstance(value, Mapping):
        raise TypeError(value)
    element = arguments[0] if arguments else Any
    return tuple(_convert(element, item, text) for item in value)


def _convert_mapping(value: Any, text: bool) -> dict[str, Any]:
    """Return names and values; as text they are written {name = value, other = value}."""
    if isinstance(value, str):
        if not text:
            raise TypeError(value)
        value = tomllib.loads(f"value = {value}")["value"]
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return dict(value)


def _convert_plain(annotation: Any, value: Any, text: bool) -> Any:
    if annotation is bool:
        return _to_bool(value, text)
    if annotation is int:
        return _to_int(value, text)
    if annotation is float:
        return _to_float(value, text)
    if annotation is str and not isinstance(value, str):
        raise TypeError(value)
    if inspect.isclass(annotation) and not isinstance(value, annotation):
        raise TypeError(value)
    return value


def _to_bool(value: Any, text: bool) -> bool:
    if isinstance(value, bool):
        return value
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if text and isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise TypeError(value)


def _to_int(value: Any, text: bool) -> int:
    if text and isinstance(value, str):
        value = float(value.replace("_", "")) if not value.lstrip("+-").isdigit() else int(value)
    if isinstance(value, bool):
        raise TypeError(value)
    if isinstance(value, float):
        if not value.is_integer():
            raise ValueError(value)
        return int(value)
    if not hasattr(value, "__index__"):
        raise TypeError(value)
    return int(value)


def _to_float(value: Any, text: bool) -> float:
    if isinstance(value, bool) or (isinstance(value, str) and not text):
        raise TypeError(value)
    converted = float(value)
    if not math.isfinite(converted):
        raise ValueError(value)
    return converted


def describe(annotation: Any) -> str:
    """Say in words what an annotation accepts, as an error message or a help page needs it."""
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if annotation in names:
        return names[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        limits = " and ".join(str(limit) for limit in arguments[1:] if isinstance(limit, Range))
        return f"{describe(arguments[0])} {limits}".strip()
    if origin in (Union, types.UnionType):
        return " or ".join("none" if a is type(None) else describe(a) for a in arguments)
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Mapping):
        return "names and values, {name = value}"
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Sequence):
        return f"a list, each {describe(arguments[0])}" if arguments else "a list"
    return getattr(annotation, "__name__", str(annotation))
