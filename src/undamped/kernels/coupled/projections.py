"""Projections of the input before the recurrence of `coupled_scan`: a product, a filter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.coupled.contract import Projection, ProjectionPass
from undamped.kernels.shared.chunks import remaining_steps

EPSILON = 1e-5
"""Added to a variance in layer normalisation, as in torch."""


def kernels() -> Any:
    """Import the compiled part, and with it Numba."""
    from undamped.kernels.coupled import projection_kernels

    return projection_kernels


class Linear(Projection):
    """x → V x + b; tensors: V (answer, input) and, where there is one, b (answer,)."""

    def begin(
        self,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        shard: slice,
        lengths: Tensor | None,
    ) -> ProjectionPass:
        return LinearPass(tensors)


class LinearPass(ProjectionPass):
    """One product a chunk, forward and backward."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.weight = tensors[0].contiguous()
        self.transposed = self.weight.t()
        self.bias = tensors[1] if len(tensors) > 1 else None
        self.tensor_gradients = [torch.zeros_like(tensor) for tensor in tensors]
        self.state, self.state_gradient = [], []

    def forward(self, chunk: int, x: Tensor, out: Tensor) -> None:
        rows, answer = x.flatten(0, 1), out.flatten(0, 1)
        if self.bias is None:
            torch.mm(rows, self.transposed, out=answer)
        else:
            torch.addmm(self.bias, rows, self.transposed, out=answer)

    def recompute(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Do the same as `forward`: there is no state."""
        self.forward(chunk, x, out)

    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        rows = gradient.flatten(0, 1)
        if self.bias is not None:
            self.tensor_gradients[1] += rows.sum(0)
        self.backprop_product(x, rows, input_gradient)

    def backprop_product(self, x: Tensor, rows: Tensor, input_gradient: Tensor | None) -> None:
        """Add to the gradient of V, and write that of the input, from that of the product."""
        self.tensor_gradients[0].addmm_(rows.t(), x.flatten(0, 1))
        if input_gradient is not None:
            input_gradient.copy_((rows @ self.weight).view(input_gradient.shape))


@dataclass
class Filtered(Projection):
    """V x + b, filtered in time as in momentum networks; tensors: V, b and, if there is one, d.

        u = V x + b,   v' = a v + s u,   m' = β m + (1 − β) u²
        answer: v' + d,  s u/√(m' + δ) + d,  or v'/√(m' + δ) + d

    The factor a is a number per time and sequence, d a shift. The filter does not depend on the
    recurrence. Its state at the start of every chunk is stored, and the backward pass recomputes
    from there.

    Args:
        decays: a, (time, batch).
        constants: s, β and δ.
        has_velocity: Whether v is part of the state.
        has_moment: Whether m is, after v.
    """

    decays: Tensor
    constants: tuple[float, float, float]
    has_velocity: bool
    has_moment: bool

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Return the constants, the parts of the state, and a."""
        return [*self.constants, float(self.has_velocity), float(self.has_moment)], [self.decays]

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        step, decay, softening, velocity, moment = numbers
        return cls(tensors[0], (step, decay, softening), bool(velocity), bool(moment))

    def begin(
        self,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        shard: slice,
        lengths: Tensor | None,
    ) -> ProjectionPass:
        return _FilteredPass(self, tensors, state, chunks, self.decays[:, shard], lengths)


class _FilteredPass(ProjectionPass):
    def __init__(
        self,
        plan: Filtered,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        decays: Tensor,
        lengths: Tensor | None,
    ) -> None:
        self.plan, self.chunks, self.state, self.state_gradient = plan, chunks, state, []
        self.linear = LinearPass(tensors[:2])
        self.nothing = state[0].new_empty(len(state[0]), 0)
        self.shift = (tensors[2] if len(tensors) > 2 else self.nothing[0]).contiguous().numpy()
        self.decays = decays.to(state[0]).contiguous().numpy()
        # In float64: 1 − β of a β rounded to float32 has an error of 5e-5 where β is 0.999.
        self.constants = np.array((*plan.constants, 1 - plan.constants[1]), self.decays.dtype)
        self.lengths = lengths
        self.starts: list[list[Tensor]] = []
        self.tensor_gradients = [
            *self.linear.tensor_gradients,
            *(torch.zeros_like(tensor) for tensor in tensors[2:]),
        ]

    def _arrays(self, state: list[Tensor]) -> tuple[Any, Any]:
        """Velocity and moment as arrays, empty where there is none."""
        parts = iter(state)
        velocity = next(parts) if self.plan.has_velocity else self.nothing
        moment = next(parts) if self.plan.has_moment else self.nothing
        return velocity.numpy(), moment.numpy()

    def _times(self, chunk: int) -> tuple[Any, Any]:
        """Return the decays of a chunk, and how many of its steps each sequence has."""
        start, stop = self.chunks[chunk]
        remaining = remaining_steps(self.lengths, start, stop)
        if remaining is None:
            remaining = np.full(self.decays.shape[1], stop - start)
        return self.decays[start:stop], remaining

    def _run(self, chunk: int, x: Tensor, out: Tensor, state: list[Tensor]) -> None:
        self.linear.forward(chunk, x, out)
        times = self._times(chunk)
        kernels().filter_rows(out.numpy(), *self._arrays(state), *times, self.constants, self.shift)

    def forward(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Store the state of the filter, then continue."""
        self.starts.append([part.clone() for part in self.state])
        self._run(chunk, x, out, self.state)

    def recompute(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Continue from the stored state of the filter."""
        self._run(chunk, x, out, [part.clone() for part in self.starts[chunk]])

    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        if len(self.tensor_gradients) > 2:
            self.tensor_gradients[2] += gradient.sum((0, 1))
        state_gradients, times = self._arrays(self.state_gradient), self._times(chunk)
        if self.plan.has_moment:
            u = torch.empty_like(gradient)
            self.linear.forward(chunk, x, u)
            state = self._arrays([part.clone() for part in self.starts[chunk]])
            arrays, buffer = (gradient.numpy(), u.numpy()), torch.empty(2, *u.shape, dtype=u.dtype)
            kernels().moment_backward(
                *arrays, *state, *state_gradients, *times, self.constants, buffer.numpy()
            )
        else:
            kernels().velocity_backward(
                gradient.numpy(), state_gradients[0], *times, self.constants[0]
            )
        self.linear.backward(chunk, x, gradient, input_gradient)


@dataclass
class Normalised(Projection):
    """g ⊙ LN(V x) + b, and columns of random masks; tensors: V, b and, if V x is normalised, g.

    The masks depend on the seed and their position only, so that they are not stored: the backward
    pass computes them again, and any number of threads computes the same.

    Args:
        size: Number of units.
        parts: The sizes of the parts of V x that are normalised separately.
        rates: For each block of columns but the last the probability of a one; () for no columns.
        dropout: The probability of a zero in the last block, which is the same at all steps.
        seed: (1,), an integer; None for expected values instead of random ones.
    """

    size: int
    parts: tuple[int, ...]
    rates: tuple[float, ...]
    dropout: float
    seed: Tensor | None

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Return the numbers, and the seed."""
        numbers = [self.size, len(self.parts), *self.parts, *self.rates, self.dropout]
        return [float(number) for number in numbers], [] if self.seed is None else [self.seed]

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        size, count = int(numbers[0]), int(numbers[1])
        parts, (*rates, dropout) = numbers[2 : 2 + count], numbers[2 + count :]
        seed = tensors[0] if tensors else None
        return cls(size, tuple(int(part) for part in parts), tuple(rates), dropout, seed)

    def width(self, tensors: Sequence[Tensor]) -> int:
        masks = len(self.rates) + 1 if self.rates else 0
        return tensors[0].shape[0] + masks * self.size

    def fill_masks(self, masks: Tensor, start: int, first: int) -> None:
        """Fill columns of masks (steps, sequences, columns).

        Args:
            masks: The columns.
            start: The first step.
            first: The index of the first sequence.
        """
        if self.seed is not None:
            origin, rates = (int(self.seed), start, first), np.array(self.rates)
            kernels().fill_masks(masks.numpy(), origin, self.size, rates, self.dropout)
            return
        for block, rate in zip(masks.split(self.size, -1), (*self.rates, 1.0), strict=True):
            block.fill_(rate)

    def begin(
        self,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        shard: slice,
        lengths: Tensor | None,
    ) -> ProjectionPass:
        return _NormalisedPass(self, tensors, chunks, shard.start or 0)


class _NormalisedPass(LinearPass):
    def __init__(
        self,
        plan: Normalised,
        tensors: Sequence[Tensor],
        chunks: list[tuple[int, int]],
        first: int,
    ) -> None:
        super().__init__(tensors)
        self.plan, self.chunks, self.first = plan, chunks, first
        self.gain = tensors[2] if len(tensors) > 2 else None

    def forward(self, chunk: int, x: Tensor, out: Tensor) -> None:
        rows = out[..., : len(self.weight)]
        product = torch.mm(x.flatten(0, 1), self.transposed).view(rows.shape)
        if self.gain is not None:
            product = torch.cat([part[0] for part in self._norms(product)], -1).mul_(self.gain)
        assert self.bias is not None  # the projection always has one
        torch.add(product, self.bias, out=rows)
        if self.plan.rates:
            masks = out[..., len(self.weight) :]
            self.plan.fill_masks(masks, self.chunks[chunk][0], self.first)

    def _norms(self, product: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Return each part normalised, its mean and the inverse of its deviation."""
        return [
            torch.native_layer_norm(part.contiguous(), part.shape[-1:], None, None, EPSILON)
            for part in product.split(self.plan.parts, -1)
        ]

    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        rows = gradient[..., : len(self.weight)]
        self.tensor_gradients[1] += rows.sum((0, 1))
        if self.gain is not None:
            product = torch.mm(x.flatten(0, 1), self.transposed).view(rows.shape)
            norms = self._norms(product)
            normal = torch.cat([norm[0] for norm in norms], -1)
            self.tensor_gradients[2] += (rows * normal).sum((0, 1))
            sizes = self.plan.parts
            triples = zip(
                (rows * self.gain).split(sizes, -1), product.split(sizes, -1), norms, strict=True
            )
            rows = torch.cat([_norm_backward(*triple) for triple in triples], -1)
        self.backprop_product(x, rows.flatten(0, 1), input_gradient)


def _norm_backward(gradient: Tensor, part: Tensor, norm: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return torch.ops.aten.native_layer_norm_backward(
        gradient.contiguous(),
        part.contiguous(),
        part.shape[-1:],
        *norm[1:],
        None,
        None,
        [True, False, False],
    )[0]
