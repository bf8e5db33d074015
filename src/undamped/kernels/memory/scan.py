"""A pass of a network with memory as one differentiable function.

The batch is divided among threads. A shard (`BatchShard`) runs the forward and the backward pass of
its samples in chunks of time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped.kernels.dispatch import runs_as_operator
from undamped.kernels.shared.gemm import product_address
from undamped.kernels.shared.operator import refuse_second_derivatives
from undamped.kernels.shared.threads import run_in_parallel, split_batch

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Record:
    """Attention weights and memory contents of a pass.

    Args:
        weights: (batch, time, time), row t the weights that step t gives to all steps.
        relevant: (batch, time, relevant), the steps of the relevant states after each; −1 where a
            slot is empty or holds a state of before the pass.
    """

    weights: Tensor
    relevant: Tensor


class BatchShard(ABC):
    """The samples of one thread.

    Args:
        plan: The arguments that are no tensors; it has `lengths`.
        part: The slice of the batch.
        x: (time, batch, input), the input of all samples.
        marks: The contents of the memory besides states; `of(part)` returns those of a slice.
        tensors: By the names in `names`; among them input (product, input), bias and key.
    """

    names: ClassVar[tuple[str, ...]]
    """The tensors of a pass, in order; (0,) for an unused one."""
    finals: ClassVar[dict[str, int]]
    """The parts of the final state, and which of their dimensions is the batch."""
    carried: ClassVar[int]
    """How many of them, the first ones, have a gradient."""
    states: Tensor
    """All hidden states, which must not be modified before the backward pass."""

    def __init__(
        self, plan: Any, part: slice, x: Tensor, marks: Any, tensors: dict[str, Tensor]
    ) -> None:
        self.plan, self.part, self.tensors = plan, part, tensors
        self.x = x[:, part].contiguous()
        self.steps, self.batch, _ = self.x.shape
        self.hidden, self.width = tensors["key"].shape[1], tensors["input"].shape[0]
        self.slots = tensors["slots"].shape[0]
        alive = torch.full((self.batch,), self.steps)
        if plan.lengths is not None:
            alive = plan.lengths.to("cpu", torch.int64)[part]
        self.alive = alive.numpy()
        self.marks = marks.of(part)
        self.blas = product_address(x.dtype)
        per_step = 2 * self.batch * (self.width + self.hidden) * x.element_size()
        self.chunk = max(1, min(self.steps, CHUNK_BYTES // per_step))

    @property
    def multiplications(self) -> int:
        """The multiplications of the product of a step, query included."""
        return self.batch * self.hidden * (self.width + self.hidden)

    @property
    def over(self) -> Tensor:
        """(time, samples, 1), whether a sequence has ended."""
        return (torch.arange(self.steps).unsqueeze(1) >= torch.from_numpy(self.alive)).unsqueeze(-1)

    def empty(self, *shape: int) -> Tensor:
        """Return a new tensor."""
        return self.x.new_empty(shape)

    def buffers(self, *shapes: tuple[int, ...]) -> tuple[Any, ...]:
        """Return the buffers of a loop."""
        return tuple(self.empty(*shape).numpy() for shape in shapes)

    def projected(self, begin: int) -> Tensor:
        """Return the projected inputs of a chunk, (steps, samples, product)."""
        inputs = self.x[begin : begin + self.chunk]
        bias = self.tensors["bias"]
        flat, weight = inputs.reshape(-1, inputs.shape[2]), self.tensors["input"].t()
        result = torch.addmm(bias, flat, weight) if bias.numel() else flat @ weight
        return result.view(inputs.shape[0], self.batch, self.width)

    def zero_gradients(self, *names: str) -> dict[str, Tensor]:
        """Return zeros for gradients of tensors, input matrix and bias; a buffer for x."""
        names = ("input", "bias", "recurrent", "vector", *names)
        sums = {name: torch.zeros_like(self.tensors[name]) for name in names}
        return {**sums, "x": torch.empty_like(self.x)}

    def add_input_gradients(self, totals: dict[str, Tensor], begin: int, drive: Tensor) -> None:
        """Add the gradient of `projected`, (rows, product), to those of x, matrix and bias."""
        inputs = self.x[begin : begin + self.chunk]
        totals["input"].addmm_(drive.t(), inputs.reshape(-1, inputs.shape[2]))
        if self.tensors["bias"].numel():
            totals["bias"] += drive.sum(0)
        totals["x"][begin : begin + self.chunk] = (drive @ self.tensors["input"]).view_as(inputs)

    @property
    @abstractmethod
    def output(self) -> Tensor:
        """(time, samples, features), the outputs."""

    @abstractmethod
    def forward(self) -> None:
        """Run the forward pass; this object stores what the backward pass needs."""

    @abstractmethod
    def final(self) -> tuple[Tensor, ...]:
        """Return the parts of the final state of these samples."""

    @abstractmethod
    def record(self) -> Record:
        """Return attention weights and memory contents, after `forward`."""

    @abstractmethod
    def backward(self, output: Tensor, *carried: Tensor) -> dict[str, Tensor]:
        """Return the gradients of the tensors, and of x under "x".

        Args:
            output: The gradient of the output, of all samples.
            carried: The gradients of the first parts of `finals`, of all samples.
        """


def arrays_of(*tensors: Tensor) -> Any:
    """Return a list of tensors as contiguous arrays."""
    return [tensor.contiguous().numpy() for tensor in tensors]


def memory_scan(
    kind: type[BatchShard], plan: Any, x: Tensor, tensors: dict[str, Tensor], marks: Any
) -> tuple[Tensor, dict[str, Tensor]]:
    """Run over (time, batch, input); return outputs and the parts of the final state.

    Args:
        kind: `Shard` or `SparseShard`.
        plan: The arguments that are no tensors.
        x: The input.
        tensors: By the names in `kind.names`; missing ones are empty.
        marks: The contents of the memory besides states.
    """
    if runs_as_operator(x):
        from undamped.kernels.memory.operator import scan_by_operator

        return scan_by_operator(plan, x, tensors, marks)
    inputs = [tensors.get(name, x.new_empty(0)) for name in kind.names]
    output, *final = _MemoryScan.apply(kind, plan, x, marks, *inputs)  # type: ignore[misc]
    return output, dict(zip(kind.finals, final, strict=True))


def memory_record(
    kind: type[BatchShard], plan: Any, x: Tensor, tensors: dict[str, Tensor], marks: Any
) -> Record:
    """Run over (time, batch, input) as `memory_scan` does; return attention weights."""
    named = {name: tensors.get(name, x.new_empty(0)).detach() for name in kind.names}
    shard = kind(plan, slice(0, x.shape[1]), x.detach(), marks, named)
    shard.forward()
    return shard.record()


def run_shards(
    kind: type[BatchShard], plan: Any, x: Tensor, marks: Any, named: dict[str, Tensor]
) -> tuple[list[BatchShard], Tensor, list[Tensor]]:
    """Run the forward pass; return the shards, outputs and the final memory."""
    steps, batch, _ = x.shape
    parts = split_batch(steps, batch, 4 * named["key"].shape[0])
    shards = [kind(plan, part, x, marks, named) for part in parts]
    run_in_parallel([shard.forward for shard in shards], shards[0].multiplications)
    output = _joined([shard.output for shard in shards], 1)
    ends = zip(*(shard.final() for shard in shards), strict=True)
    final = [_joined(part, dim) for part, dim in zip(ends, kind.finals.values(), strict=True)]
    return shards, output, final


def summed_gradients(shards: list[BatchShard], gradients: Sequence[Tensor]) -> dict[str, Tensor]:
    """Run the backward pass; return the gradients by name, that of the input under "x"."""
    works = [partial(shard.backward, *gradients) for shard in shards]
    results = run_in_parallel(works, shards[0].multiplications)
    kind = type(shards[0])
    joined = dict(list(kind.finals.items())[: kind.carried]) | {"x": 1}
    return {
        name: _joined(parts, joined[name]) if name in joined else _summed(parts)
        for name in results[0]
        for parts in [[part[name] for part in results]]
    }


class _MemoryScan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, kind: type[BatchShard], plan: Any, x: Tensor, marks: Any, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        named = {name: tensor.detach() for name, tensor in zip(kind.names, tensors, strict=True)}
        ctx.shards, output, final = run_shards(kind, plan, x.detach(), marks, named)
        # Saved so that torch detects an in-place change before the backward pass.
        ctx.save_for_backward(x, *tensors, *(shard.states for shard in ctx.shards))
        ctx.mark_non_differentiable(*final[kind.carried :])
        return output, *final

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override]
        refuse_second_derivatives()
        _ = ctx.saved_tensors
        kind = type(ctx.shards[0])
        sums = summed_gradients(ctx.shards, gradients[: 1 + kind.carried])
        needs = zip(kind.names, ctx.needs_input_grad[4:], strict=True)
        return None, None, sums["x"], None, *(sums.get(n) if need else None for n, need in needs)


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim)


def _summed(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(list(parts)).sum(0)
