"""What a sweep varies: `0.01..0.5:log`, `16..128:16`, `tanh,relu`.

A range of whole numbers has no point and no exponent in its ends. Behind a colon stands `log`, for
values as likely in every decade, or the distance between values. Commas separate choices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undamped._base.errors import OptionError, explain

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"^({_NUMBER})\.\.({_NUMBER})(?::(log|{_NUMBER}))?$")
_LIKE_A_RANGE = re.compile(r"^[+-]?\.?\d[^/\\]*\.\.")
_WHOLE = re.compile(r"^[+-]?\d+$")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`.

    Args:
        low: The smallest.
        high: The largest.
        step: The distance between neighbours; any number in between if there is none.
        log: Whether every decade is as likely as every other.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def distribution(self) -> BaseDistribution:
        """Return it as Optuna wants it."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, self.log, int(self.step or 1))
        return FloatDistribution(self.low, self.high, self.log, self.step)


@dataclass(frozen=True)
class Choices:
    """One of several values.

    Args:
        values: As they would stand in a setting.
    """

    values: tuple[Any, ...]

    def distribution(self) -> BaseDistribution:
        """Return it as Optuna wants it."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)


def read_space(key: str, value: Any) -> Range | Choices | None:
    """Return what a setting lets vary; None where it is a value like any other.

    Args:
        key: The setting, for messages.
        value: What was given for it: text, or from a TOML file also a list.

    Example:
        >>> read_space("model.dt", "0.01..0.5:log")
        Range(low=0.01, high=0.5, step=None, log=True)
    """
    if isinstance(value, list | tuple):
        return Choices(_different(key, list(value)))
    if not isinstance(value, str):
        return None
    text = value.strip()
    found = _RANGE.match(text)
    if found is not None:
        return _read_range(key, text, *found.groups())
    if _LIKE_A_RANGE.match(text):
        raise _refused(key, "a range such as 0.01..0.5:log or 16..128:16", text)
    if "," in text:
        return Choices(_different(key, [_plain(one.strip()) for one in text.split(",")]))
    return None


def _plain(text: str) -> bool | int | float | str:
    """Return a choice as the number, true or false that it says, or as the word it is."""
    if text in ("true", "false"):
        return text == "true"
    if _WHOLE.match(text):
        return int(text)
    return float(text) if re.fullmatch(_NUMBER, text) else text


def _read_range(key: str, text: str, low: str, high: str, more: str | None) -> Range:
    whole = bool(_WHOLE.match(low) and _WHOLE.match(high))
    first, last = (int(low), int(high)) if whole else (float(low), float(high))
    if first >= last:
        raise _refused(key, "a range that begins with its smaller end", text)
    if more == "log":
        if first <= 0:
            raise _refused(key, "ends above zero in a range with log", text)
        return Range(first, last, None, True)
    if more is None:
        return Range(first, last)
    step = int(more) if whole and _WHOLE.match(more) else float(more)
    if step <= 0 or step > last - first or (whole and not isinstance(step, int)):
        raise _refused(key, "a distance that fits between the ends", text)
    return Range(first, last, step)


def _different(key: str, values: list[Any]) -> tuple[Any, ...]:
    given = [value for value in values if value != ""]
    if len(given) < 2 or len(set(map(str, given))) < len(values):
        raise _refused(key, "two or more different choices", ",".join(map(str, values)))
    if not all(isinstance(value, bool | int | float | str) for value in given):
        raise _refused(key, "choices that are numbers, words, true or false", given)
    return tuple(given)


def _refused(key: str, expected: str, got: Any) -> OptionError:
    remedy = "Write low..high, low..high:log, low..high:distance, or choices with commas."
    return OptionError(explain(key, expected=expected, got=got, remedy=remedy))


def distributions(space: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Return a space as Optuna wants it.

    Args:
        space: What may vary, by the names of settings, as text or lists.
    """
    found = {}
    for key, value in space.items():
        read = read_space(key, value)
        if read is None:
            raise _refused(key, "something that varies", value)
        found[key] = read.distribution()
    return found
