"""The norm of an attempt's error in units of the tolerance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.ode.state.packing import Packing, Part

if TYPE_CHECKING:
    from undamped.ode.settings import Settings


class ErrorNorm:
    """The error of an attempt in units of the tolerance.

    Equation:
        max over tensors ‖e / (atol + rtol max(|y|, |y'|))‖, root mean square

    A norm over all tensors of a tuple would hide the error of a small one behind a large one. The
    mean of a complex tensor is over its numbers, not over the two reals of each.

    Args:
        rtol: Relative tolerance; one, or one for every number of the packed state.
        atol: Absolute tolerance, likewise.
        parts: The tensors that count; by default the complete state, as one.
        function: Replaces the root mean square, on packed errors.
        leading: How many leading numbers of the flattened state count, in place of parts.
    """

    def __init__(
        self,
        rtol: float | Tensor,
        atol: float | Tensor,
        parts: tuple[Part, ...] | None = None,
        function: Callable[[Tensor], Any] | None = None,
        leading: int | None = None,
    ) -> None:
        self.rtol, self.atol, self.parts, self.function = rtol, atol, parts, function
        self.leading = leading
        allowed = (rtol + atol) > 0
        if not (bool(allowed.all()) if isinstance(allowed, Tensor) else allowed):
            raise OptionError(
                "rtol and atol must not both be 0: no step is without error. Allow some, such as "
                "rtol=1e-10."
            )
        uniform = not isinstance(rtol, Tensor) and not isinstance(atol, Tensor)
        self.uniform = (float(rtol), float(atol)) if uniform else (0.0, 0.0)
        """Both tolerances, where they are the same for every number."""
        self.compiled = uniform and parts is None and function is None
        """Whether a kernel can compute it: one tolerance, and one tensor."""

    @classmethod
    def of(cls, settings: Settings, packing: Packing) -> ErrorNorm:
        """Return the norm of a solve."""
        norm = settings.norm
        if norm is None:
            return cls(settings.rtol, settings.atol, packing.parts)
        return cls(settings.rtol, settings.atol, packing.parts, lambda r: norm(packing.unpack(r)))

    @torch.no_grad()
    def weights(self, y: Tensor) -> Tensor:
        """Return the factors from numbers to units of the tolerance at y."""
        return self._at_least_tiny(y.abs().mul_(self.rtol).add_(self.atol)).reciprocal_()

    @torch.no_grad()
    def ratio(self, error: Tensor, y: Tensor, y1: Tensor) -> Tensor:
        """Return the error of every number of a step from y to y1."""
        scale = torch.maximum(y.abs(), y1.abs()).mul_(self.rtol).add_(self.atol)
        scale = self._at_least_tiny(scale)
        # The last term is zero, or NaN where the step ended in infinity: no error is small
        # relative to that.
        return error.div(scale).add_(y1 - y1)

    @staticmethod
    def _at_least_tiny(scale: Tensor) -> Tensor:
        """Return a positive scale: the error of numbers that stay zero is zero, not 0/0."""
        return scale.clamp_min_(torch.finfo(scale.dtype).tiny)

    def __call__(self, error: Tensor, y: Tensor, y1: Tensor) -> float:
        """Return the norm for a step from y to y1; none of the three may carry a graph."""
        return self.reduce(self.ratio(error, y, y1))

    def reduce(self, ratio: Tensor) -> float:
        """Return one number for the errors of all."""
        if self.function is not None:
            value = self.function(ratio)
            if isinstance(value, Tensor) and value.numel() != 1:
                raise OptionError(
                    "options.norm must return one number for the state, got shape "
                    f"{tuple(value.shape)}. errors.pow(2).mean().sqrt() is the usual norm."
                )
            return float(value)
        if self.parts is None:
            return _root_mean_square(ratio.reshape(-1)[: self.leading])
        return largest(
            _root_mean_square(ratio[..., part.low : part.high], part.reals) for part in self.parts
        )

    def of_rows(self, rows: Tensor) -> ErrorNorm:
        """Return the norm for some samples of the batch."""
        if not isinstance(self.rtol, Tensor) and not isinstance(self.atol, Tensor):
            return self
        rtol, atol = (x[rows] if isinstance(x, Tensor) else x for x in (self.rtol, self.atol))
        return ErrorNorm(rtol, atol, self.parts, self.function)

    def each(self, error: Tensor, y: Tensor, y1: Tensor) -> Tensor:
        """Return the norm of every sample, in double precision."""
        ratio = self.ratio(error, y, y1)
        if self.parts is None:
            return sample_norms(ratio)
        norms = [sample_norms(ratio[..., part.low : part.high], part.reals) for part in self.parts]
        return torch.stack(norms).amax(0)


def largest(sizes: Iterable[float]) -> float:
    """Return the largest number, NaN if there is one, which max() would ignore."""
    return max(sizes, key=lambda size: (size != size, size))


def _root_mean_square(value: Tensor, reals: int = 1) -> float:
    return torch.linalg.vector_norm(value).item() / math.sqrt(max(value.numel() / reals, 1))


def sample_norms(value: Tensor, reals: int = 1) -> Tensor:
    """Return the root mean square of every sample's numbers, in double precision.

    Args:
        value: The numbers, a sample to a row.
        reals: How many of them make up one number of the state.
    """
    rows = value.reshape(len(value), -1).double()
    return torch.linalg.vector_norm(rows, dim=1) / math.sqrt(max(rows.shape[1] / reals, 1))
