"""Options of models, tasks and training: types and ranges read from a constructor's signature.

A constructor declares what it accepts by annotation, for example
``hidden_size: PositiveInt`` or ``initialisation: Literal["random", "henaff"]``. The same
declaration checks calls from Python, parses text from the command line or a TOML file, and
fills the help pages. No validation library is used, because a message should be one sentence that
names the option, what it accepts and the value.
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
from undamped._base.errors import OptionError, UnknownNameError, UnknownOptionError, shortened

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
        low, high = _limit(self.low), _limit(self.high)
        if self.high == math.inf:
            return f"{'>' if self.open_low else '≥'} {low}"
        if self.low == -math.inf:
            return f"{'<' if self.open_high else '≤'} {high}"
        return f"in {'(' if self.open_low else '['}{low}, {high}{')' if self.open_high else ']'}"


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
    """The default of an option and a sentence about it, for groups of options."""

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
        """Whether there is no default."""
        return self.default is REQUIRED

    @property
    def accepts(self) -> str:
        """A description of the values that the option accepts."""
        return describe(self.annotation)


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the name in `names` closest to `name`, or None if none is close."""
    folded = {candidate.lower(): candidate for candidate in names}
    words = {word: full for low, full in folded.items() for word in re.split("[_-]", low)}
    for choices in (folded, words):  # 'hiden' is close to a word of 'hidden_size'
        matches = difflib.get_close_matches(name.lower(), list(choices), n=1, cutoff=CLOSE)
        if matches:
            return choices[matches[0]]
    return None


def unknown_name(kind: str, name: str, names: Sequence[str]) -> UnknownNameError:
    """Return the error for a name that is not in `names`, with the nearest one that is."""
    return UnknownNameError(f"Unknown {kind} '{shortened(name)}'. {_suggestion(name, names)}")


def unknown_option(owner: str, name: str, names: Sequence[str]) -> UnknownOptionError:
    """Return the error for an unknown keyword of a call, which is a `TypeError`."""
    suggestion = _suggestion(name, names) if names else "It has no options."
    return UnknownOptionError(f"{owner} has no option '{shortened(name)}'. {suggestion}")


def refuse_unknown(owner: str, options: Iterable[str], names: Sequence[str]) -> None:
    """Raise an `UnknownOptionError` for the first option that is not in `names`."""
    for name in options:
        if name not in names:
            raise unknown_option(owner, name, names)


def _suggestion(name: str, names: Sequence[str]) -> str:
    close = nearest(name, names)
    listing = ", ".join(sorted(names)) or "none"
    return f"Did you mean '{close}'?" if close else f"Choose one of: {listing}."


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
    options = {
        p.name: Option(p.name, hints.get(p.name, Any), p.default, texts.get(p.name, ""))
        for p in inspect.signature(owner).parameters.values()
        if p.name != "self" and p.kind not in skipped and p.name not in group
    }
    shared = {
        name: replace(option, description=texts.get(name, option.description))
        for name, option in group.items()
    }
    return {**options, **shared}


def shared_options(function: Callable[..., Any]) -> dict[str, Option]:
    """Return the options a function takes as a group, by `**name: Unpack[Group]`.

    A group is a `TypedDict` that several constructors share. Its fields declare which values are
    accepted and carry a `Default`.

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
    options = {}
    for name, annotation in get_type_hints(group, include_extras=True).items():
        kind, *metadata = get_args(annotation)
        (default,) = (item for item in metadata if isinstance(item, Default))
        for item in metadata:
            if item is not default:
                kind = Annotated[kind, item]
        options[name] = Option(name, kind, default.value, default.about)
    return options


def select(options: Mapping[str, Any], group: type) -> dict[str, Any]:
    """Return the options that belong to a group, as keyword arguments.

    Args:
        options: All options of a constructor, completed by `checked`.
        group: The `TypedDict` that declares those to return.
    """
    return {name: options[name] for name in options_in(group)}


def check(
    owner: str, target: Callable[..., Any], values: Mapping[str, Any], *, text: bool = False
) -> dict[str, Any]:
    """Check `values` against the options of `target` and return them converted.

    Args:
        owner: The name of the class or function, for messages.
        target: The class or function whose signature declares the options.
        values: Names and values; values may be left out where a default exists.
        text: Whether values are strings from a command line, to be parsed.
    """
    return check_against(owner, options_of(target), values, text=text)


def check_against(
    owner: str, declared: Mapping[str, Option], values: Mapping[str, Any], *, text: bool = False
) -> dict[str, Any]:
    """Check `values` against declared options and return them converted; see `check`."""
    refuse_unknown(owner, values, list(declared))
    checked = {}
    for name, value in values.items():
        checked[name] = convert(declared[name].annotation, value, f"{owner}.{name}", text=text)
    return checked


def convert(annotation: Any, value: Any, what: str, *, text: bool = False) -> Any:
    """Return `value` converted to `annotation`, or raise an `OptionError` that names `what`."""
    try:
        return _convert(annotation, value, text)
    except (TypeError, ValueError, OverflowError, RecursionError):
        pass
    number = _as_number(value, text)
    requirement = _requirement(annotation, number is not None and math.isfinite(number))
    if number is not None and not math.isfinite(number):
        requirement = requirement.replace("a number", "a finite number")
    text_value = repr(value) if isinstance(value, str) and number is None else value
    raise OptionError(f"{what} must be {requirement}, got {shortened(text_value)}.")


def _as_number(value: Any, text: bool) -> float | None:
    if isinstance(value, bool) or (isinstance(value, str) and not text):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _requirement(annotation: Any, numeric: bool) -> str:
    """Return what a value must be; for a number outside of its range, the range alone."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if numeric and origin is Annotated and arguments[0] is float:
        return " and ".join(str(limit) for limit in arguments[1:] if isinstance(limit, Range))
    if numeric and origin in (Union, types.UnionType) and len(arguments) == 2:
        scalar, sequence = arguments
        if get_origin(sequence) is Sequence and get_args(sequence) == (scalar,):
            return f"{_requirement(scalar, numeric)} (or a list of such values)"
    return describe(annotation)


def check_fields(owner: str, value: Any) -> None:
    """Check every field of a dataclass that was read from a file against its annotation.

    Args:
        owner: The name of the dataclass, for messages.
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
        if not value:  # an empty text is more likely a mistake than an empty list
            raise ValueError(value)
    if isinstance(value, Mapping):
        raise TypeError(value)
    element = arguments[0] if arguments else Any
    return tuple(_convert(element, item, text) for item in value)


def _convert_mapping(value: Any, text: bool) -> dict[str, Any]:
    """Return a dictionary; as text it is written {name = value, other = value}."""
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
    """Return a description of the values that an annotation accepts, for messages and help."""
    names = {int: "an integer", float: "a number", bool: "true or false", str: "a string"}
    if annotation in names:
        return names[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        limits = " and ".join(str(limit) for limit in arguments[1:] if isinstance(limit, Range))
        return f"{describe(arguments[0])} {limits}".strip()
    if origin in (Union, types.UnionType):
        return " or ".join("none" if a is type(None) else describe(a) for a in arguments)
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(map(repr, arguments))
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Mapping):
        return "a mapping, {name = value}"
    if origin is not None and inspect.isclass(origin) and issubclass(origin, Sequence):
        return f"a list, each {describe(arguments[0])}" if arguments else "a list"
    return getattr(annotation, "__name__", str(annotation))
