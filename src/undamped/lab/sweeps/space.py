"""Search spaces: `0.01..0.5:log`, `16..128:16`, `tanh,relu`.

A range of integers has no decimal point and no exponent in its ends. After a colon stands `log`,
for a log-uniform distribution, or the step between values. Commas separate choices.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from undamped._base.errors import OptionError, shortened

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"^({_NUMBER})\.\.({_NUMBER})(?::(log|{_NUMBER}))?$")
_LIKE_A_RANGE = re.compile(r"^[+-]?\.?\d[^/\\]*\.\.")
_INTEGER = re.compile(r"^[+-]?\d+$")


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`.

    Args:
        low: The smallest.
        high: The largest.
        step: The distance between values; any number in between if it is None.
        log: Whether the distribution is log-uniform.
    """

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def distribution(self) -> BaseDistribution:
        """Return the distribution of Optuna."""
        from optuna.distributions import FloatDistribution, IntDistribution

        if isinstance(self.low, int) and isinstance(self.high, int):
            return IntDistribution(self.low, self.high, self.log, int(self.step or 1))
        return FloatDistribution(self.low, self.high, self.log, self.step)


@dataclass(frozen=True)
class Choices:
    """A categorical setting.

    Args:
        values: The possible values.
    """

    values: tuple[Any, ...]

    def distribution(self) -> BaseDistribution:
        """Return the distribution of Optuna."""
        from optuna.distributions import CategoricalDistribution

        return CategoricalDistribution(self.values)


def read_space(key: str, value: Any) -> Range | Choices | None:
    """Return the search space of a setting; None if the value is not one.

    Args:
        key: The setting, for messages.
        value: Text, or a list from a TOML file.

    Example:
        >>> read_space("model.dt", "0.01..0.5:log")
        Range(low=0.01, high=0.5, step=None, log=True)
    """
    if isinstance(value, list | tuple):
        return Choices(_distinct(key, list(value)))
    if not isinstance(value, str):
        return None
    text = value.strip()
    match = _RANGE.match(text)
    if match is not None:
        return _read_range(key, text, *match.groups())
    if _LIKE_A_RANGE.match(text):
        raise _invalid(key, "a range such as 0.01..0.5:log or 16..128:16", text)
    if "," in text:
        return Choices(_distinct(key, [_literal(word.strip()) for word in text.split(",")]))
    return None


def _literal(text: str) -> bool | int | float | str:
    """Return a choice as a number, a boolean, or the text itself."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.match(text):
        return int(text)
    return float(text) if re.fullmatch(_NUMBER, text) else text


def _read_range(key: str, text: str, low: str, high: str, more: str | None) -> Range:
    integers = bool(_INTEGER.match(low) and _INTEGER.match(high))
    first, last = (int(low), int(high)) if integers else (float(low), float(high))
    if first >= last:
        raise _invalid(key, "a range from its lower to its upper end", text)
    if more == "log":
        if first <= 0:
            raise _invalid(key, "a range above zero for log", text)
        return Range(first, last, None, True)
    if more is None:
        return Range(first, last)
    step = int(more) if integers and _INTEGER.match(more) else float(more)
    if step <= 0 or step > last - first or (integers and not isinstance(step, int)):
        raise _invalid(key, "a range with a step that fits", text)
    return Range(first, last, step)


def _distinct(key: str, values: list[Any]) -> tuple[Any, ...]:
    choices = [value for value in values if value != ""]
    if len(choices) < 2 or len(set(map(str, choices))) < len(values):
        raise _invalid(key, "two or more different choices", ",".join(map(str, values)))
    if not all(isinstance(value, bool | int | float | str) for value in choices):
        raise _invalid(key, "choices that are numbers, words, true or false", choices)
    return tuple(choices)


def _invalid(key: str, expected: str, value: Any) -> OptionError:
    return OptionError(
        f"{key} must be {expected}, got {shortened(value)}. Write low..high, low..high:log, "
        "low..high:step, or choices separated by commas."
    )


def distributions(space: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Return the distributions of Optuna by setting.

    Args:
        space: The settings that vary, as text or lists.
    """
    result = {}
    for key, value in space.items():
        setting = read_space(key, value)
        if setting is None:
            raise _invalid(key, "a range or choices", value)
        result[key] = setting.distribution()
    return result
