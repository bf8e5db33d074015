"""Calling the field: counted, packed, checked; and its callbacks.

A field may have `callback_step(t, y, size)`, called before every attempt, and
`callback_accept_step` and `callback_reject_step`, called after it; with `_adjoint` at the end of
their names they are called at the steps of an adjoint solve.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped._base.errors import NonFiniteError, OptionError
from undamped._base.torch_internals import version_of
from undamped.kernels.dispatch import inside_transform
from undamped.ode.loop.route import Window, inside
from undamped.ode.state.packing import Packing

if TYPE_CHECKING:
    from undamped.ode.gradients.repetition import FieldSamples

WATCHED = 16
"""Evaluations at the start of a solve that are checked for values that are overwritten later."""
CALLBACKS = ("callback_step", "callback_accept_step", "callback_reject_step")


class CountedField:
    """A user's field on packed states, with a count of its evaluations.

    Args:
        function: f(t, y), on the user's form of the state.
        packing: How that form became one tensor.
    """

    def __init__(self, function: Callable[..., Any], packing: Packing) -> None:
        self.function = function
        self.packing = packing
        self.count = 0
        # The common case, one tensor, must cost little beyond the call.
        self.plain = packing.single and packing.exact
        self._last: Tensor | None = None
        self._version = 0
        self.window: Window | None = None
        """Times within which to evaluate, where a step ends at a jump."""
        self.samples: FieldSamples | None = None
        """Collects some of the evaluations."""

    def __call__(self, t: Any, y: Tensor) -> Tensor:
        """Evaluate the field on a packed state."""
        self.count += 1
        if self.window is not None:
            t = inside(t, self.window)
        version = -1 if y.is_inference() else version_of(y)
        if self.plain:
            value = self.function(t, y)
            if type(value) is not Tensor or value.shape != y.shape:
                self.packing.check(value, y.shape)
            if self.count <= WATCHED:
                self._watch(value)
        else:
            packing = self.packing
            value = packing.pack(self.function(packing.time(t), packing.unpack(y)))
        if version >= 0 and version_of(y) != version:
            raise _changed_input()
        if self.samples is not None:
            self.samples.offer(t, y, value)
        return value

    @contextmanager
    def within(self, window: Window | None) -> Iterator[None]:
        """Evaluate on one side of a jump only."""
        self.window = window
        try:
            yield
        finally:
            self.window = None

    def _watch(self, value: Tensor) -> None:
        """Refuse a field that overwrites its values; such a field does so from the start."""
        if value is self._last and version_of(value) != self._version:
            raise OptionError(
                "The value of the field was written over by a later call, but a step needs several "
                "values at once. Return a new tensor: value.clone()."
            )
        remember = not (value.requires_grad or value.is_inference() or self.count == WATCHED)
        self._last, self._version = (value, version_of(value)) if remember else (None, 0)

    def first(self, t: Tensor, y: Tensor) -> Tensor:
        """Evaluate for the first time in a solve, checking type and finiteness too."""
        # Tensors of inference mode do not count their changes.
        before = y.clone() if y.is_inference() else None
        try:
            value = self(t, y)
        except RuntimeError as error:
            if "in-place" in str(error):
                raise _changed_input() from error
            raise
        if before is not None and not torch.equal(before, y):
            raise _changed_input()
        self.packing.check_type(value, y)
        if not all_finite(value):
            time, sample = float(t.detach().double().mean()), ""
            if self.packing.batched:
                sample = f", sample {int((~torch.isfinite(value).flatten(1).all(1)).nonzero()[0])}"
            raise NonFiniteError(
                f"The field is NaN or infinity at the start, t = {time:.6g}{sample}. Check the "
                "initial state and logarithms, roots and divisions in the field."
            )
        return value


def _changed_input() -> OptionError:
    return OptionError(
        "The state passed to the field is read only, but the field changes it in place. Make new "
        "tensors: y = y * 2 instead of y *= 2, or begin with y = y.clone()."
    )


def all_finite(value: Tensor) -> bool:
    """Whether all numbers are finite, in one pass where they are.

    Inside transforms of `torch.func` values cannot be read, and count as finite.
    """
    if inside_transform():
        return True
    value = value.detach()
    # A number that is not finite makes the sum so. The sum of huge numbers may be infinite too.
    return math.isfinite(value.sum().item()) or bool(torch.isfinite(value).all())


class Callbacks:
    """The callbacks of one solve.

    Args:
        function: The user's field.
        packing: Of its state.
    """

    def __init__(self, function: Callable[..., Any], packing: Packing) -> None:
        self.packing = packing
        functions = {name: getattr(function, name, None) for name in CALLBACKS}
        self._functions = {name: f for name, f in functions.items() if callable(f)}
        self.any = bool(self._functions)

    def warn_unused(self, names: Sequence[str], method: str) -> None:
        """Warn of callbacks that a method, in words, will never call."""
        unused = [name for name in self._functions if name in names]
        if unused:
            warnings.warn(
                f"{method} never calls {', '.join(unused)} of the field. Choose a method with step "
                "control, such as 'dopri5', or leave it out.",
                stacklevel=2,
            )

    def call(self, name: str, t: float, y: Tensor, h: float) -> None:
        """Call a callback about a step of size h from t and y, if the field has it."""
        function = self._functions.get(name)
        if function is not None:
            like = {"dtype": torch.float64, "device": y.device}
            function(torch.tensor(t, **like), self.packing.unpack(y), torch.tensor(abs(h), **like))


def use_adjoint_callbacks(source: Callable[..., Any], target: Any) -> None:
    """Make the adjoint callbacks of a field the callbacks of a function."""
    for name in CALLBACKS:
        function = getattr(source, f"{name}_adjoint", None)
        if callable(function):
            setattr(target, name, function)
