"""The samples that one thread takes through time: what it keeps, forward and backward.

Kept for the backward pass: hidden states, what the recurrence read, an LSTM's cells, attention
weights and the indices of what was attended to. Keys, scores, gates and contexts are computed
again, the products of a chunk of time at once.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.memory.arrays import (
    BY_SCORE,
    LEARNED,
    LSTM,
    Arrays,
    BackwardChunk,
    Buffers,
    Choices,
    ForwardChunk,
    Gradients,
    Memory,
    Weights,
)
from undamped.kernels.memory.backward import backward
from undamped.kernels.memory.chunks import BatchShare
from undamped.kernels.memory.forward import forward
from undamped.kernels.memory.plan import TENSORS, Marks, Plan


class Share(BatchShare):
    """The samples that one thread takes through time."""

    names: ClassVar = TENSORS
    finals: ClassVar = {"mixed": 0, "cell": 0, "slots": 1, "scores": 0, "seen": 0, "expected": 0}
    carried: ClassVar = 3
    batched: ClassVar = {"mixed": 0, "cell": 0, "slots": 1}

    def __init__(
        self, plan: Plan, part: slice, x: Tensor, marks: Marks, tensors: dict[str, Tensor]
    ) -> None:
        super().__init__(plan, part, x, marks, tensors)
        self.grows = plan.screening < 0
        self.kind = plan.step, plan.alignment, plan.screening, plan.mix == LEARNED
        self.seen = self.marks.seen != 0
        self.choices = Choices(
            plan.step, plan.alignment, plan.mix, plan.screening, self.slots, 1 / max(1, plan.recent)
        )

    @property
    def output(self) -> Tensor:
        """The hidden states."""
        return self.states[self.slots :]

    @property
    def guarded(self) -> Tensor:
        """All states, of which the output is a part."""
        return self.states

    def weights(self, recurrent: Tensor, key: Tensor, mixing: Tensor) -> Weights:
        """Return the trained numbers, with the matrices turned as a loop reads them."""
        t = self.tensors
        small = [t[name].contiguous().numpy() for name in ("vector", "threshold", "relevance")]
        return Weights(
            recurrent.contiguous().numpy(),
            key.contiguous().numpy(),
            small[0],
            mixing.contiguous().numpy(),
            small[1],
            small[2],
            t["silence"].contiguous().numpy().reshape(-1),
        )

    def forward(self) -> None:
        """Run; what is needed later stays in this object."""
        t, steps, batch, hidden = self.tensors, self.steps, self.batch, self.hidden
        total = self.slots + steps
        self.states = self.empty(total, batch, hidden)
        self.states[: self.slots] = t["slots"][:, self.part]
        keys = self.empty(total, batch, hidden)
        if self.slots:
            torch.matmul(self.states[: self.slots], t["key"].t(), out=keys[: self.slots])
        self.mixed = self.empty(steps + 1, batch, hidden)
        self.mixed[0] = t["mixed"][self.part]
        lstm = self.plan.step == LSTM
        self.cells = self.empty(*((steps + 1, batch, hidden) if lstm else (1, batch, 0)))
        if lstm:
            self.cells[0] = t["cell"][self.part]
        self._index(total)
        arrays = self._arrays(keys)
        weights = self.weights(t["recurrent"].t(), t["key"].t(), t["mixing"].t())
        product = self.empty(batch, self.width + hidden).numpy()
        joined = torch.zeros(batch, 2 * hidden, dtype=self.x.dtype).numpy()
        buffers = self._workspace(self.width, hidden, 2)
        run = forward(*self.kind)
        for begin in range(0, steps, self.chunk):
            run(
                ForwardChunk(
                    self.blas,
                    begin,
                    self.choices,
                    weights,
                    arrays,
                    self.memory,
                    self.projected(begin).numpy(),
                    product,
                    joined,
                    self.alive,
                    buffers,
                )
            )

    def _workspace(self, total: int, row: int, rows: int) -> Buffers:
        """Return arrays for a loop to work in; the two passes use them differently."""
        sizes = (total,), (row,), (rows, self.hidden), (self.batch, 2 * self.hidden)
        return Buffers(*(self.empty(*size).numpy() for size in sizes))

    def _index(self, total: int) -> None:
        """Say which rows the slots of the start are, and make room for weights and indices."""
        plan, batch, steps = self.plan, self.batch, self.steps
        rows_of_slots = torch.arange(self.slots).expand(batch, -1)
        rows_of_slots = torch.where(self.seen, rows_of_slots, -1)
        scores = self.marks.scores
        self.memory = Memory(
            rows_of_slots[:, : plan.recent].to(torch.int32).numpy().copy(),
            scores[:, : plan.recent].numpy().copy(),
            rows_of_slots[:, plan.recent :].to(torch.int32).numpy().copy(),
            scores[:, plan.recent :].numpy().copy(),
            self.marks.expected.numpy().copy(),
        )
        if self.grows:
            rows = torch.cat(
                (rows_of_slots, torch.arange(self.slots, total).expand(batch, -1)), dim=1
            )
            self.index = rows.to(torch.int32).contiguous().view(-1)
            size = batch * (steps * self.slots + steps * (steps + 1) // 2)
        else:
            size = steps * batch * (plan.recent + plan.kept)
            self.index = torch.empty(size, dtype=torch.int32)
        self.attention = self.empty(size)

    def _arrays(self, keys: Tensor) -> Arrays:
        return Arrays(
            self.states.numpy(),
            keys.numpy(),
            self.mixed.numpy(),
            self.cells.numpy(),
            self.attention.numpy(),
            self.index.numpy(),
        )

    def final(self) -> tuple[Tensor, ...]:
        """Return mixed, cell, slots, scores, flags and expectation after the last step."""
        if self.grows:
            steps = torch.arange(self.steps)
            seen = torch.cat((self.seen, steps < torch.from_numpy(self.alive).unsqueeze(1)), dim=1)
            slots, scores = self.states, self.marks.scores.clone()
        else:
            self.places = torch.from_numpy(
                np.concatenate((self.memory.recent, self.memory.kept), axis=1)
            ).long()
            parts = (self.memory.recent_score, self.memory.kept_score)
            scores, seen = torch.from_numpy(np.concatenate(parts, axis=1)), self.places >= 0
            index = self.places.clamp_min(0).t().unsqueeze(-1).expand(-1, -1, self.hidden)
            slots = self.states.gather(0, index) * seen.t().unsqueeze(-1)
        expected = torch.from_numpy(self.memory.expected)
        ends = self.mixed[-1].clone(), self.cells[-1].clone()
        return *ends, slots, scores, seen.to(self.x.dtype), expected

    def backward(self, output: Tensor, *carried: Tensor) -> dict[str, Tensor]:
        """Return the gradients of the tensors, and of x under "x"."""
        mixed, cell, slots = carried
        t, steps, batch, hidden = self.tensors, self.steps, self.batch, self.hidden
        flat = self.states.view(-1, hidden)
        keys = (flat @ t["key"].t()).view_as(self.states)
        states_gradient = torch.zeros_like(self.states)
        if self.grows:
            states_gradient += slots[:, self.part]
        else:
            seen = (self.places >= 0).t().unsqueeze(-1)
            index = self.places.clamp_min(0).t().unsqueeze(-1).expand(-1, -1, hidden)
            states_gradient.scatter_add_(0, index, slots[:, self.part] * seen)
        learned = self.plan.mix == LEARNED
        totals = {name: torch.zeros_like(t[name]) for name in ("vector", "threshold", "relevance")}
        totals |= {
            "mixed": mixed[self.part].clone(),
            "cell": cell[self.part].clone(),
            "mixing": torch.zeros_like(t["mixing"]),
            "recurrent": torch.zeros_like(t["recurrent"]),
            "input": torch.zeros_like(t["input"]),
            "bias": torch.zeros_like(t["bias"]),
            "x": torch.empty_like(self.x),
        }
        by_score = self.plan.screening == BY_SCORE
        gradients = Gradients(
            states_gradient.numpy(),
            (keys_gradient := torch.zeros_like(self.states)).numpy(),
            totals["vector"].numpy(),
            totals["mixing"].numpy(),
            totals["threshold"].numpy(),
            totals["relevance"].numpy(),
            (scores := self.x.new_zeros(self.states.shape[:2] if by_score else (1, 1))).numpy(),
            totals["mixed"].numpy(),
            totals["cell"].numpy(),
        )
        weights = self.weights(t["recurrent"], t["key"], t["mixing"])
        arrays = self._arrays(keys)
        buffers = self._workspace(hidden, len(self.states), batch)
        width, run = self.width + hidden, backward(*self.kind)
        for begin in reversed(range(0, steps, self.chunk)):
            count = min(self.chunk, steps - begin)
            before = self.mixed[begin : begin + count].view(-1, hidden)
            product = (before @ t["recurrent"].t()).view(count, batch, width)
            product[:, :, : self.width] += self.projected(begin)
            gradient = self.empty(count, batch, width)
            joined = self.x.new_zeros((count, batch, 3 * hidden) if learned else (1, 1, 0))
            run(
                BackwardChunk(
                    self.blas,
                    begin,
                    self.choices,
                    weights,
                    arrays,
                    gradients,
                    output[begin : begin + count, self.part].contiguous().numpy(),
                    product.numpy(),
                    gradient.numpy(),
                    joined.numpy(),
                    self.alive,
                    buffers,
                )
            )
            flat = gradient.view(-1, width)
            totals["recurrent"].addmm_(flat.t(), before)
            self.add_input_gradients(totals, begin, flat[:, : self.width])
            if learned:
                rows = joined.view(-1, 3 * hidden)
                totals["mixing"].addmm_(rows[:, 2 * hidden :].t(), rows[:, : 2 * hidden])
        flat = self.states.view(-1, hidden)
        totals["key"] = keys_gradient.view(-1, hidden).t() @ flat
        totals["slots"] = states_gradient[: self.slots]
        if self.slots:
            totals["slots"] = totals["slots"] + keys_gradient[: self.slots] @ t["key"]
        if by_score and self.slots:
            self._score_of_slots(totals, scores)
        return totals

    def _score_of_slots(self, totals: dict[str, Tensor], scores: Tensor) -> None:
        """Bring the gradient of learned scores to the slots that a pass began with."""
        weight = self.tensors["relevance"]
        states, grad_scores = self.states[: self.slots], scores[: self.slots]
        slope = grad_scores * torch.sigmoid(-(states @ weight[:-1] + weight[-1]))
        totals["slots"] = totals["slots"] + slope.unsqueeze(-1) * weight[:-1]
        totals["relevance"][:-1] += torch.einsum("nb,nbh->h", slope, states)
        totals["relevance"][-1] += slope.sum()
