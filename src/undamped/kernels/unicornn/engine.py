"""What a stack of oscillators runs on: the compiled kernels of the CPU, or Triton's of a GPU.

Both have the same kernels with the same arguments. They differ in how arguments are handed over, in
how lengths are written down, in how long a chunk is, and in whether the batch is shared by threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.dispatch import Implementation
from undamped.kernels.shared.chunks import chunk_length, scan_bytes
from undamped.kernels.shared.lengths import remaining_by_column
from undamped.kernels.shared.threads import over_columns, run_in_parallel, split_batch

GPU_CHUNK = 512  # steps: a launch is short beside them, and what a chunk keeps is small


class Engine(ABC):
    """Kernels, and how to run them."""

    @property
    @abstractmethod
    def kernels(self) -> Any:
        """The module with `forward`, `forward_keep`, `inverse` and `backward`."""

    @abstractmethod
    def constants(self, tensors: Sequence[Tensor], alpha: float) -> tuple[Any, ...]:
        """Return weight, step, bias and α as the kernels take them."""

    @abstractmethod
    def remaining(
        self, lengths: Tensor | None, start: int, stop: int, hidden: int, unused: Tensor
    ) -> tuple[bool, Any]:
        """Say whether a sequence may end before `stop`, and how many steps each lives."""

    @abstractmethod
    def shortest(self, lengths: Tensor | None, steps: int) -> int:
        """Return a step before which no sequence ends."""

    @abstractmethod
    def chunk(self, steps: int, columns: int, layers: int, item_size: int) -> int:
        """Choose how many steps make a chunk."""

    @abstractmethod
    def run(self, kernel: Any, steps: int, columns: int, arguments: Sequence[Any]) -> None:
        """Run a kernel over all columns."""

    @abstractmethod
    def parts(self, steps: int, batch: int, hidden: int) -> list[slice]:
        """Return the shares of a batch that run side by side."""

    @abstractmethod
    def together(self, works: Sequence[Callable[[], Any]], product: int) -> list[Any]:
        """Run the work on all shares."""


class OnCPU(Engine):
    """Numba's kernels over arrays; threads take shares of the batch."""

    @property
    def kernels(self) -> Any:
        """Imported when first used, as Numba takes a while."""
        from undamped.kernels.unicornn import compiled

        return compiled

    def constants(self, tensors: Sequence[Tensor], alpha: float) -> tuple[Any, ...]:
        """Arrays, and a number of their type."""
        arrays = [tensor.numpy() for tensor in tensors]
        return *arrays, arrays[0].dtype.type(alpha)

    def remaining(
        self, lengths: Tensor | None, start: int, stop: int, hidden: int, unused: Tensor
    ) -> tuple[bool, Any]:
        """A number for each column."""
        return remaining_by_column(lengths, start, stop, hidden, unused.numpy())

    def shortest(self, lengths: Tensor | None, steps: int) -> int:
        """The shortest length."""
        return steps if lengths is None else int(lengths.min())

    def chunk(self, steps: int, columns: int, layers: int, item_size: int) -> int:
        """As many steps as the cache holds."""
        return chunk_length(steps, scan_bytes(columns, layers, item_size))

    def run(self, kernel: Any, steps: int, columns: int, arguments: Sequence[Any]) -> None:
        """Hand over arrays."""
        arrays = [a.numpy() if isinstance(a, Tensor) else a for a in arguments]
        over_columns(kernel, steps, columns, *arrays)

    def parts(self, steps: int, batch: int, hidden: int) -> list[slice]:
        """One for each thread."""
        return split_batch(steps, batch, hidden)

    def together(self, works: Sequence[Callable[[], Any]], product: int) -> list[Any]:
        """Run them in threads."""
        return run_in_parallel(list(works), product)


class OnGPU(Engine):
    """Triton's kernels over tensors; the whole batch at once. Experimental."""

    @property
    def kernels(self) -> Any:
        """Imported when first used, as it brings Triton."""
        from undamped.kernels.unicornn import gpu

        return gpu

    def constants(self, tensors: Sequence[Tensor], alpha: float) -> tuple[Any, ...]:
        """Tensors all of them."""
        return *tensors, tensors[0].new_full((1,), alpha)

    def remaining(
        self, lengths: Tensor | None, start: int, stop: int, hidden: int, unused: Tensor
    ) -> tuple[bool, Any]:
        """A number for each sequence; whether one ends is not looked up, which would wait."""
        if lengths is None:
            return False, unused
        left = (lengths - start).clamp(0, stop - start)
        return True, left.to(unused.device, torch.int32)

    def shortest(self, lengths: Tensor | None, steps: int) -> int:
        """Nothing is known without waiting."""
        return steps if lengths is None else 0

    def chunk(self, steps: int, columns: int, layers: int, item_size: int) -> int:
        """A fixed number."""
        return min(steps, GPU_CHUNK)

    def run(self, kernel: Any, steps: int, columns: int, arguments: Sequence[Any]) -> None:
        """Launch it."""
        kernel(*arguments)

    def parts(self, steps: int, batch: int, hidden: int) -> list[slice]:
        """All of it."""
        return [slice(0, batch)]

    def together(self, works: Sequence[Callable[[], Any]], product: int) -> list[Any]:
        """One after the other: there is one."""
        return [work() for work in works]


def engine_for(way: Implementation) -> Engine:
    """Return the engine for what `dispatch.implementation` chose."""
    return OnGPU() if way == "triton" else OnCPU()
