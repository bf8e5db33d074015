"""What torch.compile leaves alone: how many steps a solve takes is known only from its numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def left_alone(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Return a function that a compiler calls as it is.

    It is asked to when there is one: asking loads it, which takes seconds.
    """

    @wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        if torch.compiler.is_compiling():
            alone: Any = torch.compiler.disable(function)
            return alone(*arguments, **named)
        return function(*arguments, **named)

    return call
