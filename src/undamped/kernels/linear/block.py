"""A block of the state-space literature around linear oscillators, as one function.

    v = norm(e),  u = B v,  z' = a z − k x + f u,  x' = x + s z',  r = C x' + d ⊙ v,
    output = e + (W₁ g + b₁) ⊙ σ̂(W₂ g + b₂),  g = gelu(r)

Each thread runs its sequences through the whole block, a tile of steps at a time: intermediate
results stay in its cache, and threads synchronise once per pass. See `block_compiled` for the saved
tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.dispatch import implementation
from undamped.kernels.linear.block_arrays import (
    BackwardBuffers,
    BlockPass,
    Buffers,
    Ends,
    Gradients,
    Stored,
    Weights,
)
from undamped.kernels.linear.block_parts import mask_rows
from undamped.kernels.shared.allocate import contiguous_copy, empty
from undamped.kernels.shared.limits import KernelLimits, current_limits
from undamped.kernels.shared.operator import refuse_second_derivatives, save, saved
from undamped.kernels.shared.threads import available_threads, run_in_parallel


class BlockWeights(NamedTuple):
    """The parameters of a block, and the dropout masks of a pass."""

    coefficients: Tensor
    """a, k, f and s, (4, units)."""
    drive: Tensor
    """B, (units, features)."""
    read: Tensor
    """C, (features, units)."""
    passing: Tensor
    """d, (features,)."""
    gate: Tensor
    """W₁ above W₂, (2 × features, features)."""
    bias: Tensor
    """(2 × features,)."""
    masks: tuple[Tensor, ...] = ()
    """(1, batch, features) each, factors on g and on the summand of e; or none."""


class BlockResult(NamedTuple):
    """The results of a block."""

    output: Tensor
    """(time, batch, features), zeros where sequences have ended."""
    last: Tensor
    """The last output of every sequence, (batch, features); zeros for one without steps."""
    readout: Tensor
    """The last r, likewise."""
    position: Tensor
    """(batch, units)."""
    velocity: Tensor


def uses_tiles(numbers: int, batch: int) -> bool:
    """Return whether the tiled pass is used: if there are at least as many sequences as threads.

    For a single sequence it is faster to divide every product among the threads.

    Args:
        numbers: The size of a layer's output.
        batch: The number of sequences.
    """
    return batch >= _threads(numbers)


def _threads(numbers: int) -> int:
    return available_threads() if numbers >= current_limits().batch_grain else 1


def oscillator_block(
    e: Tensor,
    weights: BlockWeights,
    position: Tensor,
    velocity: Tensor,
    lengths: Tensor | None,
    epsilon: float,
) -> BlockResult | None:
    """Run a block on (time, batch, features); return None if the compiled pass does not apply.

    Args:
        e: The input, of the shape of the output.
        weights: The parameters of the block.
        position: x before the first step, (batch, units).
        velocity: z, likewise.
        lengths: (batch,), at least 0, where sequences end.
        epsilon: The number that the normalisation adds to variances.
    """
    *tensors, masks = weights
    inputs = (e, *tensors, position, velocity)
    if implementation(*inputs, *masks) != "numba" or not e.numel():
        return None
    plan = _Plan.of(e, lengths, epsilon, torch.is_grad_enabled())
    return BlockResult(*_Block.apply(plan, *inputs, *(masks or (None, None))))


@dataclass(frozen=True)
class _Plan:
    """The arguments of a block without gradient.

    Args:
        epsilon: The number that the normalisation adds to variances.
        storing: Whether there may be a backward pass.
        groups: The first sequence of a group, and the number of steps of each of the group.
        threads: The number of threads that run the groups.
        limits: The sizes of tiles and groups.
    """

    epsilon: float
    storing: bool
    groups: list[tuple[int, Any]]
    threads: int
    limits: KernelLimits

    @classmethod
    def of(cls, e: Tensor, lengths: Tensor | None, epsilon: float, storing: bool) -> _Plan:
        """Divide the sequences of a pass into groups."""
        (steps, batch, _), threads = e.shape, _threads(e.numel())
        ends = np.full(batch, steps, np.int64)
        if lengths is not None:
            ends = np.clip(lengths.numpy().astype(np.int64), 0, steps)
        limits = current_limits()
        size = min(limits.tile_sequences, -(-batch // threads))
        groups = [(low, ends[low : low + size]) for low in range(0, batch, size)]
        return cls(epsilon, storing, groups, min(threads, len(groups)), limits)

    def tile(self, count: int, steps: int) -> int:
        """Return the steps of a tile of `count` sequences."""
        return min(steps, max(self.limits.tile_steps, self.limits.tile_rows // count))

    def run(self, work: Any, row: int) -> list[Any]:
        """Call a function for every group, and return its results.

        Args:
            work: A function of the index, the first sequence and the lengths of a group.
            row: Multiplications of the product of a row.
        """

        def run_groups(first: int) -> list[Any]:
            return [work(n, *self.groups[n]) for n in range(first, len(self.groups), self.threads)]

        answers: list[Any] = [None] * len(self.groups)
        works = [partial(run_groups, first) for first in range(self.threads)]
        for first, results in enumerate(run_in_parallel(works, self.limits.tile_rows * row)):
            answers[first :: self.threads] = results
        return answers


def _arrays(*tensors: Tensor) -> list[Any]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def _group_masks(masks: Sequence[Tensor | None], like: Tensor, low: int, count: int) -> list[Any]:
    """Return the masks of some sequences; a row of ones for None."""
    rows = [mask_rows(mask, like) for mask in masks]
    return [
        part if mask is None else part[low : low + count]
        for part, mask in zip(rows, masks, strict=True)
    ]


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: _Plan, *tensors: Tensor) -> Any:
        from undamped.kernels.linear import block_compiled as kernels
        from undamped.kernels.shared.gemm import product_address

        e, coefficients, drive, read, passing, gate, bias, position, velocity, *masks = tensors
        storing = plan.storing and any(ctx.needs_input_grad)
        sequence = e.detach().contiguous()
        (steps, batch, features), units = e.shape, len(drive)
        out = empty(e.shape, sequence)
        zeros = (e.new_zeros(batch, features) for _ in range(2))
        last = Ends(*_arrays(*zeros), *_arrays(*map(contiguous_copy, (position, velocity))))
        matrices = _arrays(coefficients, drive.t(), read.t(), passing, gate.t(), bias)
        blas, (x, y) = product_address(e.dtype), _arrays(sequence, out)

        def work(number: int, low: int, ends: Any) -> tuple[Tensor, ...]:
            count, tile = len(ends), plan.tile(len(ends), steps)
            rows = tile * count
            long = steps * count if storing else rows
            stored = (
                empty((long + count, units), sequence),
                empty((long, features), sequence),
                empty((long, 2 * features), sequence),
                sequence.new_empty(-(-steps // tile) if storing else 0, count, units),
            )
            weights = Weights(*matrices, *_group_masks(masks, sequence, low, count))
            buffers = Buffers.of(rows, count, features, units, x.dtype)
            group, settings = Stored(*_arrays(*stored)), (blas, plan.epsilon, tile)
            arguments = (*settings, x, y, weights, group, buffers, last, ends, low)
            kernels.forward(BlockPass(*arguments), storing)
            return stored if storing else ()

        stored = plan.run(work, features * units)
        ctx.plan = plan
        save(
            ctx,
            inputs=list(tensors[:7]),
            first_mask=masks[0],
            second_mask=masks[1],
            stored=[tensor for group in stored for tensor in group],
        )
        return out, *map(torch.from_numpy, last)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        from undamped.kernels.linear import block_compiled as kernels
        from undamped.kernels.shared.gemm import product_address

        refuse_second_derivatives()
        plan, values = ctx.plan, saved(ctx)
        e, coefficients, drive, read, passing, gate, bias = values["inputs"]
        masks, stored = (values["first_mask"], values["second_mask"]), values["stored"]
        sequence = e.detach().contiguous()
        (steps, _, features), units = e.shape, len(drive)
        out = empty(e.shape, sequence)
        last = Ends(*_arrays(*map(contiguous_copy, gradients[1:])))
        forced = coefficients[2].unsqueeze(1) * drive
        matrices = _arrays(coefficients, forced, read, passing, gate, bias)
        blas, (x, y) = product_address(e.dtype), _arrays(sequence, out)
        (grad_output,) = _arrays(gradients[0])

        def work(number: int, low: int, ends: Any) -> Any:
            count, tile = len(ends), plan.tile(len(ends), steps)
            rows, dtype = tile * count, x.dtype
            weights = Weights(*matrices, *_group_masks(masks, sequence, low, count))
            group = Stored(*_arrays(*stored[4 * number : 4 * number + 4]))
            buffers = Buffers.of(rows, count, features, units, dtype)
            settings, sums = (blas, plan.epsilon, tile), Gradients.zero(features, units, dtype)
            arguments = (*settings, x, y, weights, group, buffers, last, ends, low)
            more = BackwardBuffers.of(rows, features, units, dtype)
            kernels.backward(BlockPass(*arguments), grad_output, more, sums)
            return sums

        group_sums = plan.run(work, features * units)
        grad_units, grad_drive, grad_read, grad_passing, grad_gate, grad_bias = (
            torch.from_numpy(sum(parts[1:], parts[0])) for parts in zip(*group_sums, strict=True)
        )
        grad_force = (grad_drive.double() * drive).sum(1)
        grad_a, grad_k, grad_s = grad_units
        return (
            None,
            out,
            torch.stack([grad_a, grad_k, grad_force, grad_s]).to(e.dtype),
            coefficients[2].unsqueeze(1) * grad_drive,
            grad_read,
            grad_passing.to(e.dtype),
            grad_gate,
            grad_bias.to(e.dtype),
            *map(torch.from_numpy, last[2:]),
            None,
            None,
        )
