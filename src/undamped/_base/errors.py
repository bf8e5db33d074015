"""The errors that this library raises on purpose.

A message is one or two sentences: what is wrong, with the value, and what to do. The command line
prints it and exits with code 2, so it must make sense without the source.
"""

from __future__ import annotations

import re

# C0 except tab and line break, C1, and characters that change the direction of writing.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_LONGEST = 300


class UndampedError(Exception):
    """Base class of all errors that are raised on purpose, with a message for the user."""


class OptionError(UndampedError, ValueError):
    """An option has a wrong type, lies outside its range, or contradicts another one."""


class UnknownNameError(UndampedError, LookupError):
    """No model, task, solver or option has this name."""


class UnknownOptionError(UnknownNameError, TypeError):
    """A call has an unknown keyword; also a `TypeError`, which Python itself would raise."""


class ShapeError(UndampedError, ValueError):
    """A tensor does not have the required shape."""


class DataError(UndampedError, ValueError):
    """Data cannot be used."""


class DataWarning(UserWarning):
    """Data can be used, but something about them is suspicious."""


class RunError(UndampedError, RuntimeError):
    """A run folder is missing, damaged, in use, or unsuitable for a command."""


class NonFiniteError(UndampedError, ArithmeticError):
    """A loss, a gradient or a state is not finite."""


class MissingPackageError(UndampedError, ModuleNotFoundError):
    """A package that a part of the library needs is not installed."""


def shortened(value: object) -> str:
    """Return a value as text of at most 300 characters, because a file may contain anything."""
    try:
        text = str(value)
    except ValueError:  # an integer with thousands of digits
        return "a number with thousands of digits"
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def printable(text: str) -> str:
    """Return text without characters that control a terminal, for names that come from files.

    Args:
        text: The text; line breaks and tabs remain.
    """
    return _CONTROL.sub("", text)


class SolveError(UndampedError, RuntimeError):
    """A differential equation could not be solved to the end.

    Args:
        message: Sample, time, step size, the likely cause and what to try.
        solution: The partial solution.
    """

    def __init__(self, message: str, solution: object = None) -> None:
        super().__init__(message)
        self.solution = solution
