"""The forward and backward pass of the samples of one thread.

Saved for the backward pass: hidden states, the states that the recurrence read, an LSTM's cells,
attention weights and the indices of attended states. Keys, scores, gates and contexts are
recomputed, the products of a chunk of time at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

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
from undamped.kernels.memory.loops import backward, forward
from undamped.kernels.memory.scan import BatchShard, Record, arrays_of


@dataclass(frozen=True)
class Plan:
    """The arguments that are no tensors.

    Args:
        step: One of `arrays.TANH`, …, `arrays.LSTM`.
        alignment: One of `arrays.ADDITIVE`, `arrays.DOT`.
        mix: One of `arrays.HALF`, …
        screening: One of `arrays.BY_ATTENTION`, …; −1 stores all states.
        recent: The number of last states that are attended to.
        relevant: The number of relevant ones.
        lengths: (batch,), the lengths of sequences, or None.
    """

    step: int
    alignment: int
    mix: int
    screening: int
    recent: int
    relevant: int
    lengths: Tensor | None


@dataclass(frozen=True)
class Marks:
    """The contents of a memory besides states, without gradient.

    Args:
        scores: (batch, slots), the relevance of the slots.
        flags: (batch, slots), whether a slot is occupied.
        expected: (batch, product), the expected input, projected, minus the projection of zeros;
            (batch, 0) if it is not needed.
    """

    scores: Tensor
    flags: Tensor
    expected: Tensor

    def of(self, part: slice) -> Marks:
        """Return those of a slice of the batch."""
        return Marks(*(tensor[part].detach() for tensor in vars(self).values()))


class Shard(BatchShard):
    """The samples of one thread; `slots` is (slots, batch, hidden)."""

    names: ClassVar = (
        "mixed",
        "cell",
        "slots",
        "input",
        "bias",
        "recurrent",
        "key",
        "vector",
        "mixing",
        "threshold",
        "relevance",
        "silence",
    )
    finals: ClassVar = {"mixed": 0, "cell": 0, "slots": 1, "scores": 0, "flags": 0, "expected": 0}
    carried: ClassVar = 3

    def __init__(
        self, plan: Plan, part: slice, x: Tensor, marks: Marks, tensors: dict[str, Tensor]
    ) -> None:
        super().__init__(plan, part, x, marks, tensors)
        self.grows = plan.screening < 0
        self.kind = plan.step, plan.alignment, plan.screening, plan.mix == LEARNED
        self.occupied = self.marks.flags != 0
        self.choices = Choices(
            plan.step, plan.alignment, plan.mix, plan.screening, self.slots, 1 / max(1, plan.recent)
        )

    @property
    def output(self) -> Tensor:
        return self.states[self.slots :]

    def _weights(self, *, transposed: bool) -> Weights:
        """Return the parameters, with matrices in the layout of a loop."""
        t, matrices = self.tensors, ("recurrent", "key", "mixing")
        named = {name: t[name].t() if transposed else t[name] for name in matrices}
        named |= {name: t[name] for name in ("vector", "threshold", "relevance")}
        named["silence"] = t["silence"].reshape(-1)
        return Weights(*arrays_of(*(named[name] for name in Weights._fields)))

    def _loop_buffers(self, total: int, row: int, rows: int) -> Buffers:
        """Return the buffers of a loop; the two passes use them differently."""
        both = (self.batch, 2 * self.hidden)
        return Buffers(*self.buffers((total,), (row,), (rows, self.hidden), both))

    def forward(self) -> None:
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
        arrays, weights = self._arrays(keys), self._weights(transposed=True)
        (product,) = self.buffers((batch, self.width + hidden))
        joined = torch.zeros(batch, 2 * hidden, dtype=self.x.dtype).numpy()
        buffers = self._loop_buffers(self.width, hidden, 2)
        run, settings = forward(*self.kind), (self.choices, weights, arrays, self.memory)
        for begin in range(0, steps, self.chunk):
            projected = self.projected(begin).numpy()
            more = (projected, product, joined, self.alive, buffers)
            run(ForwardChunk(self.blas, begin, *settings, *more))

    def _index(self, total: int) -> None:
        """Set the rows of the first slots, and allocate weights and indices."""
        plan, batch, steps = self.plan, self.batch, self.steps
        rows_of_slots = torch.arange(self.slots).expand(batch, -1)
        rows_of_slots = torch.where(self.occupied, rows_of_slots, -1).to(torch.int32)
        columns = (slice(0, plan.recent), slice(plan.recent, None))
        pair = (rows_of_slots, self.marks.scores)
        tensors = [tensor[:, column] for column in columns for tensor in pair]
        self.memory = Memory(*(part.numpy().copy() for part in (*tensors, self.marks.expected)))
        if self.grows:
            rows = torch.arange(self.slots, total, dtype=torch.int32).expand(batch, -1)
            self.index = torch.cat((rows_of_slots, rows), dim=1).contiguous().view(-1)
            size = batch * (steps * self.slots + steps * (steps + 1) // 2)
        else:
            size = steps * batch * (plan.recent + plan.relevant)
            self.index = torch.empty(size, dtype=torch.int32)
        self.attention = self.empty(size)

    def _arrays(self, keys: Tensor) -> Arrays:
        tensors = (self.states, keys, self.mixed, self.cells, self.attention, self.index)
        return Arrays(*(tensor.numpy() for tensor in tensors))

    def final(self) -> tuple[Tensor, ...]:
        """Return mixed, cell, slots, scores, flags and expectation after the last step."""
        if self.grows:
            occupied = torch.cat((self.occupied, ~self.over.squeeze(-1).t()), dim=1)
            slots, scores = self.states, self.marks.scores.clone()
        else:
            memory = self.memory
            rows = np.concatenate((memory.recent, memory.relevant), axis=1)
            self.final_rows = torch.from_numpy(rows).long()
            scores = np.concatenate((memory.recent_score, memory.relevant_score), axis=1)
            scores, occupied = torch.from_numpy(scores), self.final_rows >= 0
            slots = self.states.gather(0, self._final_index()) * occupied.t().unsqueeze(-1)
        expected = torch.from_numpy(self.memory.expected)
        ends = self.mixed[-1].clone(), self.cells[-1].clone()
        return *ends, slots, scores, occupied.to(self.x.dtype), expected

    def _final_index(self) -> Tensor:
        """Return the rows of the final slots, (slots, samples, hidden)."""
        return self.final_rows.clamp_min(0).t().unsqueeze(-1).expand(-1, -1, self.hidden)

    def record(self) -> Record:
        steps, batch, slots = self.steps, self.batch, self.slots
        weights, over = self.x.new_zeros(batch, steps, slots + steps), self.over
        if self.grows:
            begin = 0
            for t in range(steps):
                count = slots + t + 1
                rows = self.attention[begin : begin + batch * count].view(batch, count)
                weights[:, t, :count] = torch.where(over[t], 0, rows)
                begin += batch * count
            relevant = torch.empty(batch, steps, 0, dtype=torch.long)
            return Record(weights[:, :, slots:], relevant)
        index = self.index.view(steps, batch, -1).long().masked_fill(over, -1)
        rows = torch.where(index >= 0, self.attention.view(steps, batch, -1), 0)
        weights.scatter_add_(2, index.clamp_min(0).transpose(0, 1), rows.transpose(0, 1))
        relevant = (index[:, :, self.plan.recent :] - slots).clamp_min(-1)
        return Record(weights[:, :, slots:], relevant.transpose(0, 1))

    def backward(self, output: Tensor, *carried: Tensor) -> dict[str, Tensor]:
        mixed, cell, slots = (
            part[:, self.part] if dim else part[self.part]
            for part, dim in zip(carried, self.finals.values(), strict=False)
        )
        t, steps, batch, hidden = self.tensors, self.steps, self.batch, self.hidden
        flat = self.states.view(-1, hidden)
        keys = (flat @ t["key"].t()).view_as(self.states)
        states_gradient = torch.zeros_like(self.states)
        if self.grows:
            states_gradient += slots
        else:
            occupied = (self.final_rows >= 0).t().unsqueeze(-1)
            states_gradient.scatter_add_(0, self._final_index(), slots * occupied)
        learned, by_score = self.plan.mix == LEARNED, self.plan.screening == BY_SCORE
        totals = self.zero_gradients("threshold", "relevance", "mixing")
        totals |= {"mixed": mixed.clone(), "cell": cell.clone()}
        keys_gradient = torch.zeros_like(self.states)
        scores = self.x.new_zeros(self.states.shape[:2] if by_score else (1, 1))
        named = {**totals, "states": states_gradient, "keys": keys_gradient, "scores": scores}
        named["cells"] = totals["cell"]
        gradients = Gradients(*(named[name].numpy() for name in Gradients._fields))
        weights = self._weights(transposed=False)
        buffers = self._loop_buffers(hidden, len(self.states), batch)
        width, run = self.width + hidden, backward(*self.kind)
        settings = (self.choices, weights, self._arrays(keys), gradients)
        for begin in reversed(range(0, steps, self.chunk)):
            count = min(self.chunk, steps - begin)
            before = self.mixed[begin : begin + count].view(-1, hidden)
            product = (before @ t["recurrent"].t()).view(count, batch, width)
            product[:, :, : self.width] += self.projected(begin)
            gradient = self.empty(count, batch, width)
            joined = self.x.new_zeros((count, batch, 3 * hidden) if learned else (1, 1, 0))
            grad_output = output[begin : begin + count, self.part]
            arrays = arrays_of(grad_output, product, gradient, joined)
            arguments: Any = (self.blas, begin, *settings, *arrays, self.alive, buffers)
            run(BackwardChunk(*arguments))
            rows = gradient.view(-1, width)
            totals["recurrent"].addmm_(rows.t(), before)
            self.add_input_gradients(totals, begin, rows[:, : self.width])
            if learned:
                rows = joined.view(-1, 3 * hidden)
                totals["mixing"].addmm_(rows[:, 2 * hidden :].t(), rows[:, : 2 * hidden])
        totals["key"] = keys_gradient.view(-1, hidden).t() @ flat
        totals["slots"] = states_gradient[: self.slots]
        if self.slots:
            totals["slots"] = totals["slots"] + keys_gradient[: self.slots] @ t["key"]
        if by_score and self.slots:
            self._score_of_slots(totals, scores)
        return totals

    def _score_of_slots(self, totals: dict[str, Tensor], scores: Tensor) -> None:
        """Add the gradient of learned scores to the initial slots."""
        weight = self.tensors["relevance"]
        states, grad_scores = self.states[: self.slots], scores[: self.slots]
        slope = grad_scores * torch.sigmoid(-(states @ weight[:-1] + weight[-1]))
        totals["slots"] = totals["slots"] + slope.unsqueeze(-1) * weight[:-1]
        totals["relevance"][:-1] += torch.einsum("nb,nbh->h", slope, states)
        totals["relevance"][-1] += slope.sum()
