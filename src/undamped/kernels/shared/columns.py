"""Elementwise recurrences: compiled loops on the CPU, Triton kernels on a GPU.

Both have kernels of the same names, `KERNELS` of a module, and the same arguments. They differ in
the calling convention, in the length of a chunk of time, and in whether threads divide the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.dispatch import runs_triton
from undamped.kernels.shared.chunks import chunk_length, remaining_steps, scan_bytes
from undamped.kernels.shared.limits import current_limits
from undamped.kernels.shared.threads import over_columns, run_in_parallel, split_batch

_module = cache(import_module)  # imported once: `import_module` is slow
GPU_CHUNK = 512  # steps: long compared with a launch, and few checkpoints


def sequence_table(sequences: Sequence[Tensor], columns: int, first: Tensor | None = None) -> Any:
    """Describe sequences (steps, …), contiguous within a step, to a compiled column scan.

    Each row has the address of time 0, the bytes from a time to the next, the address of the first
    row and the numbers per column. With `first` the first sequence is delayed by one step: its row
    at time t is that of time t − 1, and `first` at time 0.
    """
    rows = []
    for sequence in sequences:
        address, stride = sequence.data_ptr(), sequence.stride(0) * sequence.element_size()
        numbers = sequence.numel() // max(1, sequence.shape[0] * columns)  # of no column, zero
        rows.append((address, stride, address, numbers))
    if first is not None:
        address, stride, _, numbers = rows[0]
        rows[0] = (address - stride, stride, first.data_ptr(), numbers)
    return np.array(rows, np.int64)


class Columns:
    """Compiled kernels on the CPU, in which threads divide the columns or the batch."""

    module = "compiled"

    def kernels(self, package: str) -> dict[Any, Any]:
        """Return the kernels of a package, imported when first used, as Numba takes a while."""
        return _module(f"undamped.kernels.{package}.{self.module}").KERNELS

    def run(
        self,
        kernel: Any,
        sequences: Sequence[Tensor],
        constants: Tensor,
        state: Tensor,
        *,
        sums: Tensor | None = None,
        first: Tensor | None = None,
        remaining: Any = None,
    ) -> None:
        """Run a kernel over all columns.

        Args:
            kernel: One of `kernels`.
            sequences: Tensors (steps, …), contiguous within a step, as the kernel expects them.
            constants: (constants, hidden).
            state: (states, …), changed in place.
            sums: (sums, columns) in double precision, to which the kernel adds.
            first: The row of the first sequence before its first step, if the kernel reads it
                delayed.
            remaining: The result of `remaining`.
        """
        steps, (fixed, hidden) = sequences[0].shape[0], constants.shape
        states = state.view(state.shape[0], -1)
        columns, count = states.shape[1], fixed + states.shape[0]
        totals = None if sums is None else sums.view(sums.shape[0], -1)
        values = state.new_zeros(count + (0 if totals is None else totals.shape[0]), columns)
        values[:fixed].view(fixed, -1, hidden).copy_(constants.unsqueeze(1))
        values[fixed:count].copy_(states)
        over_columns(
            kernel,
            steps,
            columns,
            sequence_table(sequences, columns, first),
            values.numpy(),
            np.full(1, steps) if remaining is None else remaining,
            steps,
        )
        states.copy_(values[fixed:count])
        if totals is not None:
            totals.add_(values[count:])

    def remaining(self, lengths: Tensor | None, start: int, stop: int) -> Any:
        """Return how many of the steps from `start` to `stop` each sequence has; None if all."""
        return remaining_steps(lengths, start, stop)

    def shortest(self, lengths: Tensor | None, steps: int) -> int:
        """Return a number of steps that every sequence has."""
        return steps if lengths is None else int(lengths.min())

    def chunk(self, steps: int, columns: int, layers: int, item_size: int) -> int:
        """Return the number of steps of a chunk: as many as fit in the cache."""
        limit = current_limits().chunk_steps
        if limit is not None:
            return min(steps, limit)
        return chunk_length(steps, scan_bytes(columns, layers, item_size))

    def shards(self, steps: int, batch: int, hidden: int) -> list[slice]:
        """Return the shards of a batch, one for each thread."""
        return split_batch(steps, batch, hidden)

    def run_all(self, works: Sequence[Callable[[], Any]], product: int) -> list[Any]:
        """Run the functions of all shards."""
        return run_in_parallel(list(works), product)


class GPUColumns(Columns):
    """Triton kernels, which run the whole batch at once. Experimental."""

    module = "gpu"

    def run(
        self,
        kernel: Any,
        sequences: Sequence[Tensor],
        constants: Tensor,
        state: Tensor,
        *,
        remaining: Any = None,
        **optional: Any,
    ) -> None:
        """Launch a kernel; absent arguments are omitted."""
        from undamped.kernels.shared.gpu import launch

        (function, flags), hidden = kernel, constants.shape[1]
        more = [optional[name] for name in ("first", "sums") if optional.get(name) is not None]
        sizes = (len(sequences[0]), state[0].numel() // hidden, hidden)
        launch(function, (*sequences, *more, constants, state), remaining, sizes, **flags)

    def remaining(self, lengths: Tensor | None, start: int, stop: int) -> Any:
        """Return the same on the GPU; always a tensor, since a comparison would synchronise."""
        return None if lengths is None else (lengths - start).clamp(0, stop - start)

    def shortest(self, lengths: Tensor | None, steps: int) -> int:
        """Return 0: a larger bound would need a synchronisation."""
        return steps if lengths is None else 0

    def chunk(self, steps: int, columns: int, layers: int, item_size: int) -> int:
        return min(steps, current_limits().chunk_steps or GPU_CHUNK)

    def shards(self, steps: int, batch: int, hidden: int) -> list[slice]:
        return [slice(0, batch)]

    def run_all(self, works: Sequence[Callable[[], Any]], product: int) -> list[Any]:
        return [work() for work in works]


def columns_for(tensor: Tensor) -> Columns:
    """Return the implementation of column scans for the device of a tensor."""
    return GPUColumns() if runs_triton(tensor) else Columns()


def input_rows(x: Tensor, lengths: Tensor | None, shortest: int, start: int, stop: int) -> Tensor:
    """Return some steps of (time, batch, input) as rows, with zeros where sequences have ended.

    Args:
        x: The sequences.
        lengths: (batch,), or None.
        shortest: A number of steps that every sequence has.
        start: The first step.
        stop: The step after the last.
    """
    rows = x.detach()[start:stop]
    if lengths is not None and shortest < stop:
        steps = torch.arange(start, stop, device=x.device).unsqueeze(1)
        rows = rows.masked_fill((steps >= lengths.to(x.device)).unsqueeze(-1), 0)
    return rows.reshape(-1, x.shape[-1])
