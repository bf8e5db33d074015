"""Callbacks of a field: functions that are called at every step.

A field may have `callback_step(t, y, size)`, called before every attempt, and
`callback_accept_step` and `callback_reject_step`, called after it; with `_adjoint` at the end of
their names they are called at the steps of an adjoint solve.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from undamped.ode.state.packing import Packing

NAMES = ("callback_step", "callback_accept_step", "callback_reject_step")


class Callbacks:
    """The callbacks of one solve.

    Args:
        function: The user's field.
        packing: Of its state.
    """

    def __init__(self, function: Callable[..., Any], packing: Packing) -> None:
        self.packing = packing
        self._functions = [getattr(function, name, None) for name in NAMES]
        self.any = any(callable(function) for function in self._functions)

    def warn_unused(self, names: Sequence[str], method: str) -> None:
        """Warn of callbacks that a solve will never call.

        Args:
            names: Those it does not.
            method: What solves, in words.
        """
        pairs = zip(NAMES, self._functions, strict=True)
        unused = [name for name, function in pairs if name in names and function]
        if unused:
            warnings.warn(
                f"{method} never calls {', '.join(unused)} of the field. Choose a method with step "
                "control, such as 'dopri5', or leave it out.",
                stacklevel=2,
            )

    def attempt(self, t: float, y: Tensor, h: float) -> None:
        """Call the callback before an attempt."""
        self._call(0, t, y, h)

    def accepted(self, t: float, y: Tensor, h: float) -> None:
        """Call the callback after a step from t and y that was accepted."""
        self._call(1, t, y, h)

    def rejected(self, t: float, y: Tensor, h: float) -> None:
        """Call the callback after a step that was rejected."""
        self._call(2, t, y, h)

    def _call(self, index: int, t: float, y: Tensor, h: float) -> None:
        function = self._functions[index]
        if callable(function):
            like = {"dtype": torch.float64, "device": y.device}
            function(torch.tensor(t, **like), self.packing.unpack(y), torch.tensor(abs(h), **like))


def pass_on(source: Callable[..., Any], target: Any) -> None:
    """Make the adjoint callbacks of a field the callbacks of a function."""
    for name in NAMES:
        function = getattr(source, f"{name}_adjoint", None)
        if callable(function):
            setattr(target, name, function)
