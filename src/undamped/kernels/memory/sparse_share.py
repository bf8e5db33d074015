"""The samples of a pass of sparse attentive backtracking that one thread takes through time.

Kept for the backward pass: sums of state and context, contexts, cells, remembered rows, and a few
indices and weights a step. Gates, queries and keys are computed again, a chunk at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undamped.kernels.memory import sparse_loops
from undamped.kernels.memory.chunks import BatchShare
from undamped.kernels.memory.sparse_loops import SparseArrays, SparseGradients, SparseWeights


@dataclass(frozen=True)
class SparsePlan:
    """What is not a tensor.

    Args:
        keep_every: How many steps lie between two remembered states.
        top: Up to how many remembered states are attended to by softmax, all of them.
        place: Which of the scores, from the largest, is subtracted from all when there are more.
        truncate: After how many steps the gradient through the recurrence is cut; 0 never.
        lengths: (batch,) where sequences are over, or None.
        times: The steps at which any sample is remembered.
    """

    keep_every: int
    top: int
    place: int
    truncate: int
    lengths: Tensor | None
    times: NDArray[np.int64]


@dataclass(frozen=True)
class SparseMarks:
    """What a memory knows besides states; no gradient goes through it.

    Args:
        seen: (batch, slots), whether a slot holds something.
        clock: (batch, 1), how many steps a sample has made.
    """

    seen: Tensor
    clock: Tensor

    def of(self, part: slice) -> SparseMarks:
        """Return those of some samples."""
        return SparseMarks(self.seen[part].detach(), self.clock[part].detach())


class SparseShare(BatchShare):
    """The samples that one thread takes through time."""

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
    finals: ClassVar = {"hidden": 0, "context": 0, "cell": 0, "slots": 1, "seen": 0, "clock": 0}
    carried: ClassVar = 4
    batched: ClassVar = {"hidden": 0, "context": 0, "cell": 0, "slots": 1}

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
        """h and c side by side; zeros where a sequence is over."""
        shown = torch.cat((self.states[1:], self.contexts[1:]), dim=-1)
        if self.plan.lengths is not None:
            over = np.arange(self.steps)[:, None] >= self.alive
            shown.masked_fill_(torch.from_numpy(over).unsqueeze(-1), 0)
        return shown

    @property
    def guarded(self) -> Tensor:
        """All hidden states."""
        return self.states

    def forward(self) -> None:
        """Run; what is needed later stays in this object."""
        t, steps, batch, hidden = self.tensors, self.steps, self.batch, self.hidden
        count, attended = self.slots + len(self.plan.times), self.plan.top
        self.states = self.empty(steps + 1, batch, hidden)
        self.contexts, self.cells = torch.empty_like(self.states), torch.empty_like(self.states)
        self.states[0] = t["hidden"][self.part]
        self.contexts[0] = t["context"][self.part]
        self.cells[0] = t["cell"][self.part]
        self.rows = self.empty(count, batch, hidden)
        self.rows[: self.slots] = t["slots"][:, self.part]
        self.seen = np.zeros((count, batch), dtype=bool)
        self.seen[: self.slots] = (self.marks.seen != 0).t().numpy()
        self.attention = self.empty(steps, batch, attended)
        self.index = np.empty((steps, batch, attended), np.int32)
        self.limit = np.empty((steps, batch), np.int32)
        self.total = self.empty(steps, batch)
        keys = torch.empty_like(self.rows)
        keys[: self.slots] = self.rows[: self.slots] @ t["key"].t()
        arrays = self._arrays(keys)
        weights = self._weights(transposed=True)
        buffers = (
            self.empty(batch, 4 * hidden).numpy(),
            self.empty(batch, hidden).numpy(),
            torch.zeros_like(self.states[0]).numpy(),
            self.empty(count).numpy(),
            np.empty(self.plan.top + 1, np.int64),
        )
        for begin in range(0, steps, self.chunk):
            sparse_loops.forward(
                self.blas,
                begin,
                self.slots,
                self.plan.place,
                weights,
                arrays,
                self.projected(begin).numpy(),
                self.due,
                self.alive,
                buffers,
            )

    def final(self) -> tuple[Tensor, ...]:
        """Return h, c, the cell, remembered rows, flags and clocks after the last step."""
        seen = torch.from_numpy(self.seen).t().to(self.x.dtype)
        clock = self.marks.clock + torch.from_numpy(np.minimum(self.alive, self.steps)).unsqueeze(1)
        ends = (self.states[-1], self.contexts[-1], self.cells[-1])
        return *(end.clone() for end in ends), self.rows.clone(), seen, clock

    def backward(self, output: Tensor, *carried: Tensor) -> dict[str, Tensor]:
        """Return the gradients of the tensors, and of x under "x"."""
        t, hidden = self.tensors, self.hidden
        last_hidden, last_context, last_cell, slots = carried
        grads = output[:, self.part].contiguous()
        if self.plan.lengths is not None:
            over = np.arange(self.steps)[:, None] >= self.alive
            grads = grads.masked_fill(torch.from_numpy(over).unsqueeze(-1), 0)
        context_given = grads[:, :, hidden:].contiguous()
        ends, samples = torch.from_numpy(self.alive - 1), torch.arange(self.batch)
        context_given[ends, samples] += last_context[self.part]
        arrays = self._arrays(self.rows @ t["key"].t())
        summed = ("input", "bias", "recurrent", "query", "vector")
        totals = {name: torch.zeros_like(t[name]) for name in summed}
        totals |= {
            "hidden": last_hidden[self.part].clone(),
            "context": torch.zeros_like(last_context[self.part]),
            "cell": last_cell[self.part].clone(),
            "x": torch.empty_like(self.x),
        }
        rows, keys = slots[:, self.part].clone(), torch.zeros_like(self.rows)
        gradients = SparseGradients(
            totals["hidden"].numpy(),
            totals["cell"].numpy(),
            rows.numpy(),
            keys.numpy(),
            totals["vector"].numpy(),
        )
        weights = self._weights(transposed=False)
        sizes = (self.batch, hidden), (hidden,), (self.attention.shape[2],)
        buffers = tuple(self.empty(*size).numpy() for size in sizes)
        for begin in reversed(range(0, self.steps, self.chunk)):
            projected = self.projected(begin)
            count, at = projected.shape[0], slice(begin, begin + projected.shape[0])
            before = self.states[at].view(-1, hidden)
            product = projected.view(-1, self.width).addmm_(before, t["recurrent"].t())
            after = slice(begin + 1, begin + count + 1)
            raw = (self.states[after] - self.contexts[after]).view(-1, hidden)
            query = raw @ t["query"].t()
            gates_gradient = self.empty(count, self.batch, self.width)
            query_gradient = self.empty(count, self.batch, hidden)
            sparse_loops.backward(
                self.blas,
                begin,
                weights,
                arrays,
                gradients,
                grads[at, :, :hidden].contiguous().numpy(),
                context_given[at].numpy(),
                product.view(count, self.batch, -1).numpy(),
                query.view(count, self.batch, -1).numpy(),
                gates_gradient.numpy(),
                query_gradient.numpy(),
                self.due,
                self.cut,
                self.alive,
                buffers,
            )
            drive = gates_gradient.view(-1, self.width)
            totals["recurrent"].addmm_(drive.t(), before)
            totals["query"].addmm_(query_gradient.view(-1, hidden).t(), raw)
            self.add_input_gradients(totals, begin, drive)
        totals["key"] = keys.view(-1, hidden).t() @ self.rows.view(-1, hidden)
        totals["slots"] = rows[: self.slots] + keys[: self.slots] @ t["key"]
        return totals

    def _weights(self, *, transposed: bool) -> SparseWeights:
        matrices = [self.tensors[name] for name in ("recurrent", "query", "key")]
        recurrent, query, key = (
            (matrix.t() if transposed else matrix).contiguous().numpy() for matrix in matrices
        )
        return SparseWeights(recurrent, query, key, self.tensors["vector"].contiguous().numpy())

    def _arrays(self, keys: Tensor) -> SparseArrays:
        return SparseArrays(
            self.states.numpy(),
            self.contexts.numpy(),
            self.cells.numpy(),
            self.rows.numpy(),
            keys.numpy(),
            self.seen,
            self.column,
            self.attention.numpy(),
            self.index,
            self.limit,
            self.total.numpy(),
        )
