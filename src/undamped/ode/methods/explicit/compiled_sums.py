"""The sums of a Runge–Kutta step by a compiled kernel.

It takes steps without a graph through their sums, and error norms, on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped._base.torch_internals import forward_mode_open
from undamped.kernels.dispatch import implementation
from undamped.ode.methods.combine import Terms, combine_terms

if TYPE_CHECKING:
    from undamped.kernels.runge_kutta_sums import WeightedSums
    from undamped.ode.loop.norm import ErrorNorm


def compiled_sums(y: Tensor) -> CompiledSums | None:
    """Return the sums for states like y, or None where no kernel takes them."""
    if torch.compiler.is_compiling() or implementation(y) != "numba" or not y.is_contiguous():
        return None
    if forward_mode_open():  # a kernel would lose the tangents
        return None
    from undamped.kernels.runge_kutta_sums import WeightedSums

    return CompiledSums(WeightedSums(y))


class CompiledSums:
    """Stage values and error norms of the steps of one solve.

    A field answers as it likes: every stage is looked at, and a step with one that is of another
    type or has gaps in its memory is summed by torch, as is every step through which a graph is
    wanted.

    Args:
        kernel: The sums.
    """

    def __init__(self, kernel: WeightedSums) -> None:
        self._kernel = kernel
        self._fit, self._seen = True, 0

    def __call__(self, y: Tensor, h: Any, terms: Terms, taken: list[Tensor]) -> Tensor:
        """Return y + h Σ a_j k_j without a graph; called after every stage."""
        count = len(taken)
        if count == 1:
            self._seen = 0
        if self._fit and 0 < self._seen == count - 1:
            # The stage before this one fitted: all in one call.
            self._seen, total = count, self._kernel.add(h, terms.row, taken[-1])
            self._fit = total is not None
            if total is not None:
                return total
        elif self._look(y, taken):
            return self._kernel.add(h, terms.row)
        return combine_terms(y, h, terms, taken)

    def restart(self) -> None:
        """Begin a step whose stages are added up elsewhere."""
        self._seen = 0

    def _look(self, y: Tensor, taken: Sequence[Tensor]) -> bool:
        """Take what is new; return whether everything in this step has fitted."""
        if not self._seen:
            self._fit = self._kernel.begin(y)
        while self._fit and self._seen < len(taken):
            self._fit = self._kernel.take(taken[self._seen])
            self._seen += 1
        return self._fit

    def error(
        self, y: Tensor, y1: Tensor, h: Any, terms: Terms, taken: Sequence[Tensor], norm: ErrorNorm
    ) -> float | None:
        """Return the norm of the error of a step; None if torch has to find it.

        Args:
            y: What the step started from.
            y1: What it arrived at.
            h: Its size.
            terms: Of the error estimate.
            taken: Its stages.
            norm: The tolerance.
        """
        if not self._look(y, taken) or not norm.compiled:
            return None
        return self._kernel.error(y1, h, terms.row, *norm.uniform, norm.leading)

    def measure(
        self, norm: ErrorNorm, y: Tensor, terms: Terms, parts: Sequence[Tensor]
    ) -> float | None:
        """Return the norm of Σ a_j part_j at y, between steps; None if torch has to find it."""
        self._seen = 0
        if not self._look(y, parts) or not norm.compiled:
            return None
        return self._kernel.error(y, 1.0, terms.row, *norm.uniform, norm.leading)

    def length(self, y: Tensor, y1: Tensor, terms: Terms, taken: Sequence[Tensor]) -> float | None:
        """Return the root mean square of Σ a_j k_j of a step; None as for `error`."""
        if not self._look(y, taken):
            return None
        return self._kernel.error(y1, 1.0, terms.row, 0.0, 1.0)
