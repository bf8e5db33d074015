"""Callbacks of a field: functions it carries that hear of every step.

A field may have `callback_step(t, y, size)`, called before every attempt, and
`callback_accept_step` and `callback_reject_step`, called after it; with `_adjoint` at the end of
their names they hear of the steps of an adjoint solve.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import explain
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
        self._found = [getattr(function, name, None) for name in NAMES]
        self.any = any(callable(one) for one in self._found)

    def warn_unheard(self, names: Sequence[str], method: str) -> None:
        """Warn of callbacks that a solve will never call.

        Args:
            names: Those it does not.
            method: What solves, in words.
        """
        found = [
            name for name, one in zip(NAMES, self._found, strict=True) if name in names and one
        ]
        if found:
            warnings.warn(
                explain(
                    f"{', '.join(found)} of the field",
                    expected="a method that calls it",
                    got=method,
                    remedy="Choose a method with step control, such as 'dopri5', or leave it out.",
                ),
                stacklevel=2,
            )

    def attempt(self, t: float, y: Tensor, h: float) -> None:
        """Tell of a step about to be tried."""
        self._call(0, t, y, h)

    def accepted(self, t: float, y: Tensor, h: float) -> None:
        """Tell of a step that was accepted, from t and y."""
        self._call(1, t, y, h)

    def rejected(self, t: float, y: Tensor, h: float) -> None:
        """Tell of one that was not."""
        self._call(2, t, y, h)

    def _call(self, number: int, t: float, y: Tensor, h: float) -> None:
        function = self._found[number]
        if callable(function):
            like = {"dtype": torch.float64, "device": y.device}
            function(torch.tensor(t, **like), self.packing.unpack(y), torch.tensor(abs(h), **like))


def pass_on(source: Callable[..., Any], target: Any) -> None:
    """Give a function the adjoint callbacks of a field as callbacks of its own."""
    for name in NAMES:
        found = getattr(source, f"{name}_adjoint", None)
        if callable(found):
            setattr(target, name, found)
