"""The passes of sparse attentive backtracking for the samples of one thread.

Saved for the backward pass: sums of state and context, contexts, cells, stored rows, and a few
indices and weights per step. Gates, queries and keys are recomputed, a chunk at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undamped.kernels.memory import sparse_loops
from undamped.kernels.memory.scan import BatchShard, Record, arrays_of
from undamped.kernels.memory.sparse_loops import (
    SparseArrays,
    SparseChunk,
    SparseGradients,
    SparseWeights,
)


@dataclass(frozen=True)
class SparsePlan:
    """The arguments that are no tensors.

    Args:
        keep_every: The number of steps between two stored states.
        top: The number of states that are attended to; if no more are stored, by softmax.
        rank: The rank of the score that is subtracted from all if more are stored.
        truncate: The number of steps after which the gradient through the recurrence is cut; 0
            never.
        lengths: (batch,), the lengths of sequences, or None.
        times: The steps at which the state of any sample is stored.
    """

    keep_every: int
    top: int
    rank: int
    truncate: int
    lengths: Tensor | None
    times: NDArray[np.int64]


@dataclass(frozen=True)
class SparseMarks:
    """The contents of a memory besides states, without gradient.

    Args:
        flags: (batch, slots), whether a slot is occupied.
        clock: (batch, 1), the number of steps of a sample so far.
    """

    flags: Tensor
    clock: Tensor

    def of(self, part: slice) -> SparseMarks:
        """Return those of a slice of the batch."""
        return SparseMarks(self.flags[part].detach(), self.clock[part].detach())


class SparseShard(BatchShard):
    """The samples of one thread."""

    names: ClassVar = (
        "hidden",
        "context",
        "cell",
        "slots",
        "input",
        "bias",
        "recurrent",
        "query",
        "key",
        "vector",
    )
    finals: ClassVar = {"hidden": 0, "context": 0, "cell": 0, "slots": 1, "flags": 0, "clock": 0}
    carried: ClassVar = 4

    def __init__(
        self,
        plan: SparsePlan,
        part: slice,
        x: Tensor,
        marks: SparseMarks,
        tensors: dict[str, Tensor],
    ) -> None:
        super().__init__(plan, part, x, marks, tensors)
        clock = self.marks.clock.numpy().reshape(1, -1).astype(np.int64)
        steps = np.arange(self.steps)[:, None]
        running = steps < self.alive
        self.due = running & ((clock + steps + 1) % plan.keep_every == 0)
        self.cut = np.zeros_like(running)
        if plan.truncate:
            self.cut = running & (clock + steps != 0) & ((clock + steps) % plan.truncate == 0)
        self.column = np.full(self.steps, -1, np.int64)
        self.column[plan.times] = self.slots + np.arange(len(plan.times))

    @property
    def output(self) -> Tensor:
        """h and c concatenated; zeros where a sequence has ended."""
        output = torch.cat((self.states[1:], self.contexts[1:]), dim=-1)
        return output if self.plan.lengths is None else output.masked_fill_(self.over, 0)

    def forward(self) -> None:
        t, steps, batch, hidden = self.tensors, self.steps, self.batch, self.hidden
        count, attended = self.slots + len(self.plan.times), self.plan.top
        self.states = self.empty(steps + 1, batch, hidden)
        self.contexts, self.cells = torch.empty_like(self.states), torch.empty_like(self.states)
        self.states[0] = t["hidden"][self.part]
        self.contexts[0] = t["context"][self.part]
        self.cells[0] = t["cell"][self.part]
        self.rows = self.empty(count, batch, hidden)
        self.rows[: self.slots] = t["slots"][:, self.part]
        self.flags = np.zeros((count, batch), dtype=bool)
        self.flags[: self.slots] = (self.marks.flags != 0).t().numpy()
        self.attention = self.empty(steps, batch, attended)
        self.index = np.empty((steps, batch, attended), np.int32)
        self.limit = np.empty((steps, batch), np.int32)
        self.total = self.empty(steps, batch)
        keys = torch.empty_like(self.rows)
        keys[: self.slots] = self.rows[: self.slots] @ t["key"].t()
        settings = (self.slots, self.plan.rank, self._weights(transposed=True), self._arrays(keys))
        product, query, scores = self.buffers((batch, 4 * hidden), (batch, hidden), (count,))
        raw, best = torch.zeros_like(self.states[0]).numpy(), np.empty(attended + 1, np.int64)
        more = (self.due, self.alive, (product, query, raw, scores, best))
        for begin in range(0, steps, self.chunk):
            projected = self.projected(begin).numpy()
            sparse_loops.forward(self.blas, begin, *settings, projected, *more)

    def final(self) -> tuple[Tensor, ...]:
        """Return h, c, the cell, stored rows, flags and clocks after the last step."""
        flags = torch.from_numpy(self.flags).t().to(self.x.dtype)
        clock = self.marks.clock + torch.from_numpy(np.minimum(self.alive, self.steps)).unsqueeze(1)
        ends = (self.states[-1], self.contexts[-1], self.cells[-1], self.rows)
        return *(end.clone() for end in ends), flags, clock

    def record(self) -> Record:
        steps, batch = self.steps, self.batch
        # The initial rows have no step; they are written to an extra column, which is cut off.
        times = torch.full((len(self.rows),), steps)
        times[self.slots :] = torch.from_numpy(self.plan.times)
        index = torch.from_numpy(self.index).long()
        rows = torch.where(index >= 0, self.attention, 0)
        weights = self.x.new_zeros(batch, steps, steps + 1)
        if len(times):
            weights.scatter_add_(2, times[index.clamp_min(0)].transpose(0, 1), rows.transpose(0, 1))
        return Record(weights[:, :, :steps], torch.empty(batch, steps, 0, dtype=torch.long))

    def backward(self, output: Tensor, *carried: Tensor) -> dict[str, Tensor]:
        t, hidden = self.tensors, self.hidden
        last_hidden, last_context, last_cell, slots = carried
        grads = output[:, self.part].contiguous()
        if self.plan.lengths is not None:
            grads = grads.masked_fill(self.over, 0)
        grad_contexts = grads[:, :, hidden:].contiguous()
        ends, samples = torch.from_numpy(self.alive - 1), torch.arange(self.batch)
        grad_contexts[ends, samples] += last_context[self.part]
        arrays = self._arrays(self.rows @ t["key"].t())
        totals = self.zero_gradients("query") | {
            "hidden": last_hidden[self.part].clone(),
            "context": torch.zeros_like(last_context[self.part]),
            "cell": last_cell[self.part].clone(),
        }
        rows, keys = slots[:, self.part].clone(), torch.zeros_like(self.rows)
        sums = (totals["hidden"], totals["cell"], rows, keys, totals["vector"])
        gradients = SparseGradients(*(total.numpy() for total in sums))
        weights = self._weights(transposed=False)
        buffers = self.buffers((self.batch, hidden), (hidden,), (self.attention.shape[2],))
        for begin in reversed(range(0, self.steps, self.chunk)):
            projected = self.projected(begin)
            count, at = projected.shape[0], slice(begin, begin + projected.shape[0])
            before = self.states[at].view(-1, hidden)
            product = projected.view(-1, self.width).addmm_(before, t["recurrent"].t())
            after = slice(begin + 1, begin + count + 1)
            raw = (self.states[after] - self.contexts[after]).view(-1, hidden)
            query = raw @ t["query"].t()
            grad_gates = self.empty(count, self.batch, self.width)
            grad_query = self.empty(count, self.batch, hidden)
            products = (product.view_as(grad_gates), query.view_as(grad_query))
            sequences = (grads[at, :, :hidden], grad_contexts[at], *products)
            chunk = SparseChunk(*arrays_of(*sequences, grad_gates, grad_query))
            more = (chunk, self.due, self.cut, self.alive, buffers)
            sparse_loops.backward(self.blas, begin, weights, arrays, gradients, *more)
            drive = grad_gates.view(-1, self.width)
            totals["recurrent"].addmm_(drive.t(), before)
            totals["query"].addmm_(grad_query.view(-1, hidden).t(), raw)
            self.add_input_gradients(totals, begin, drive)
        totals["key"] = keys.view(-1, hidden).t() @ self.rows.view(-1, hidden)
        totals["slots"] = rows[: self.slots] + keys[: self.slots] @ t["key"]
        return totals

    def _weights(self, *, transposed: bool) -> SparseWeights:
        matrices = [self.tensors[name] for name in ("recurrent", "query", "key")]
        matrices = [matrix.t() if transposed else matrix for matrix in matrices]
        return SparseWeights(*arrays_of(*matrices, self.tensors["vector"]))

    def _arrays(self, keys: Tensor) -> SparseArrays:
        states = arrays_of(self.states, self.contexts, self.cells, self.rows, keys)
        attention, total = arrays_of(self.attention, self.total)
        marks = (self.flags, self.column)
        arrays: Any = (*states, *marks, attention, self.index, self.limit, total)
        return SparseArrays(*arrays)
