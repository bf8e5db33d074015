"""Every error this library raises on purpose, and the one formula its messages follow.

A message says what was looked at, what was expected, what came, and what to do about it.
The command line prints it as it stands and exits with code 2, so it has to make sense to
somebody who has never seen the source.
"""

from __future__ import annotations

import re

# C0 but for tab and line break, C1, and what turns the direction of writing.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_LONGEST = 300


class UndampedError(Exception):
    """Base of all errors raised on purpose; its text is meant for the person at the keyboard."""


class OptionError(UndampedError, ValueError):
    """An option has a wrong type, lies outside its range, or contradicts another one."""


class UnknownNameError(UndampedError, LookupError):
    """No model, task, solver or option has this name."""


class UnknownOptionError(UnknownNameError, TypeError):
    """A call names an option nobody knows; a `TypeError` too, as Python itself would raise."""


class ShapeError(UndampedError, ValueError):
    """A tensor does not have the shape its receiver declared."""


class DataError(UndampedError, ValueError):
    """Data that was read or given cannot be used."""


class DataWarning(UserWarning):
    """Data can be used, and something about them deserves a look."""


class RunError(UndampedError, RuntimeError):
    """A run folder is missing, damaged, in use, or does not fit what is asked of it."""


class NonFiniteError(UndampedError, ArithmeticError):
    """A loss, a gradient or a state stopped being a finite number."""


class MissingPackageError(UndampedError, ModuleNotFoundError):
    """A package is not installed that a part of the library needs."""


def explain(what: str, *, expected: str, got: object, remedy: str) -> str:
    """Return the message formula: what, expected, got, remedy.

    Args:
        what: The option, file or tensor in question.
        expected: What would have been accepted.
        got: What came instead.
        remedy: One sentence that says what to do.
    """
    return f"{shortened(what)}: expected {expected}, got {shortened(got)}. {remedy}"


def shortened(value: object) -> str:
    """Return a value as text of at most 300 characters; a file may hold anything."""
    try:
        text = str(value)
    except ValueError:  # of a whole number with thousands of digits
        return "a number of thousands of digits"
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]} … {text[-half:]}"


def printable(text: str) -> str:
    """Return text without characters that control a terminal, for names that come from files.

    Args:
        text: What is to be printed; line breaks and tabs stay.
    """
    return _CONTROL.sub("", text)


class SolveError(UndampedError, RuntimeError):
    """A differential equation could not be solved to its end; `solution` holds what was reached.

    Args:
        message: Sample, time, step size, the likely cause and what to try.
        solution: The partial result.
    """

    def __init__(self, message: str, solution: object = None) -> None:
        super().__init__(message)
        self.solution = solution
