"""One share of the batch on its way through time, there and back, chunk after chunk of steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undamped.kernels.coupled import Now, Operator, Step
from undamped.kernels.coupled_projection import ProjectionWalk

CHUNK_BYTES = 4 << 20
"""What the arrays of a chunk may take: a thread's part of the last cache."""
SHORTEST, LONGEST = 8, 64
"""Steps of a chunk."""


@dataclass
class Share:
    """The arrays of some sequences of the batch, views of those of the whole.

    Args:
        x: (time, sequences, input).
        carried: (time + 1, sequences, width), what the operator reads, the first state at 0.
        memory: The same for what it does not read, or None.
        parameters: The tensors of the elementwise part.
        lengths: (sequences,) where sequences are over, or None.
    """

    x: Tensor
    carried: Tensor
    memory: Tensor | None
    parameters: list[Tensor]
    lengths: Tensor | None

    def finished(self, t: int) -> Tensor | None:
        """Return which rows are over at time t; None if all run."""
        if self.lengths is None:
            return None
        rows = (self.lengths <= t).nonzero().squeeze(1)
        return rows if len(rows) else None


def chunk_steps(steps: int, row_bytes: int) -> int:
    """Return how many steps make a chunk whose arrays take `row_bytes` a step."""
    return min(steps, max(SHORTEST, min(LONGEST, CHUNK_BYTES // max(1, row_bytes))))


class Walk:
    """The way of one share, with one product a step.

    Args:
        step: The elementwise part.
        operator: The linear part, bound.
        projection: The walk of the input's projection.
        share: The arrays.
        widths: Of the operator's answer and of the projected input.
        chunks: First and past-the-last step of each.
    """

    def __init__(
        self,
        step: Step,
        operator: Operator,
        projection: ProjectionWalk,
        share: Share,
        widths: tuple[int, int],
        chunks: list[tuple[int, int]],
    ) -> None:
        self.step, self.operator, self.projection, self.share = step, operator, projection, share
        self.chunks = chunks
        self.product_width, self.projected_width = widths
        self.linear_gradients: list[Tensor] = []
        self.parameter_gradients = [torch.zeros_like(part) for part in share.parameters]
        self.now = Now()
        self.now.parameters = [part.contiguous().numpy() for part in share.parameters]
        self.now.parameter_gradients = [part.numpy() for part in self.parameter_gradients]
        self.now.old_memory = self.now.new_memory = self.now.memory_flow = None

    def buffer(self, width: int, steps: int | None = None) -> Tensor:
        """Return memory for a chunk, or for the number of steps given."""
        longest = max(stop - start for start, stop in self.chunks)
        sequences = self.share.carried.shape[1]
        return self.share.carried.new_empty(steps or longest, sequences, width)

    # The way there

    def forward(self) -> None:
        """Fill `carried` and `memory`."""
        projected = self.buffer(self.projected_width)
        self.scratch = self.buffer(self.product_width, 1)[0]
        for chunk, (start, stop) in enumerate(self.chunks):
            part = projected[: stop - start]
            self.projection.forward(chunk, self.share.x[start:stop], part)
            self.forward_chunk(start, stop, part)

    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        """Make the steps of a chunk."""
        step, operator, now, share = self.step, self.operator, self.now, self.share
        states = share.carried[start : stop + 1].unbind()
        arrays = share.carried[start : stop + 1].numpy()
        inputs, given = projected.unbind(), projected.numpy()
        memories = None if share.memory is None else share.memory[start : stop + 1].numpy()
        product = self.scratch
        now.product, adds, in_place = product.numpy(), step.adds_projection, step.in_place
        for i in range(stop - start):
            now.old, now.new, now.projected = arrays[i], arrays[i + 1], given[i]
            if in_place:
                product, now.product = states[i + 1], now.new
            operator.apply(states[i], inputs[i] if adds else None, product)
            if memories is not None:
                now.old_memory, now.new_memory = memories[i], memories[i + 1]
            step.forward(now)
            if share.lengths is not None:
                self.hold(start + i)

    def hold(self, t: int) -> None:
        """Leave the states of sequences that are over where they were."""
        rows = self.share.finished(t)
        if rows is None:
            return
        for part in (self.share.carried, self.share.memory):
            if part is not None:
                part[t + 1][rows] = part[t][rows]

    # The way back

    def backward(
        self,
        output_gradient: Tensor,
        flow: Tensor,
        memory_flow: Tensor | None,
        input_gradient: Tensor | None,
    ) -> None:
        """Fill the gradients; both flows are overwritten with those of the first state.

        Args:
            output_gradient: (time, sequences, hidden).
            flow: (sequences, width), the gradient of the last `carried`.
            memory_flow: The same of `memory`.
            input_gradient: (time, sequences, input), to be filled; None if nobody asks.
        """
        self.flow, self.memory_flow = flow, memory_flow
        self.now.flow = flow.numpy()
        self.now.memory_flow = None if memory_flow is None else memory_flow.numpy()
        self.prepare_backward()
        for chunk in range(len(self.chunks) - 1, -1, -1):
            start, stop = self.chunks[chunk]
            x = self.share.x[start:stop]
            gradient = self.backward_chunk(chunk, start, stop, x, output_gradient)
            asked = None if input_gradient is None else input_gradient[start:stop]
            self.projection.backward(chunk, x, gradient, asked)

    def prepare_backward(self) -> None:
        """Make the arrays of a chunk."""
        step = self.step
        self.product_gradient = self.buffer(self.product_width)
        self.projected_gradient = self.product_gradient
        if not step.adds_projection:
            self.projected_gradient = self.buffer(self.projected_width)
        if step.reads_product:
            self.product = self.buffer(self.product_width)
            self.projected = self.buffer(self.projected_width)

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Go back through a chunk; return the gradient of its projected input."""
        step, operator, now, share = self.step, self.operator, self.now, self.share
        steps = stop - start
        read = share.carried[start:stop].flatten(0, 1)
        products, inputs = self.sums_again(chunk, x, read)
        gradients = self.product_gradient[:steps].unbind()
        product_gradients = self.product_gradient.numpy()
        projected_gradients = self.projected_gradient.numpy()
        arrays = share.carried[start : stop + 1].numpy()
        memories = None if share.memory is None else share.memory[start : stop + 1].numpy()
        shown = self.flow[:, : output_gradient.shape[2]]
        given = output_gradient[start:stop].unbind()
        onwards = self.flow if step.passes_on else None
        for i in range(steps - 1, -1, -1):
            over = share.finished(start + i)
            waiting = None if over is None else self.set_aside(over)
            shown += given[i] if over is None else given[i].index_fill(0, over, 0)
            now.old, now.new = arrays[i], arrays[i + 1]
            if products is not None:
                now.product, now.projected = products[i], inputs[i]
            if memories is not None:
                now.old_memory, now.new_memory = memories[i], memories[i + 1]
            now.product_gradient = product_gradients[i]
            now.projected_gradient = projected_gradients[i]
            step.backward(now)
            operator.transpose(gradients[i], onwards, self.flow)
            if waiting is not None:
                self.bring_back(over, waiting)
        self.add_linear(operator.gradients(read, self.product_gradient[:steps].flatten(0, 1)))
        return self.projected_gradient[:steps]

    def sums_again(self, chunk: int, x: Tensor, read: Tensor) -> tuple[Any, Any]:
        """Find products and projected input of a chunk again, where the step needs them."""
        step, steps = self.step, len(x)
        if not step.reads_product:
            return None, None
        product, projected = self.product[:steps], self.projected[:steps]
        self.projection.again(chunk, x, projected)
        add = projected.flatten(0, 1) if step.adds_projection else None
        self.operator.apply(read, add, product.flatten(0, 1))
        return product.numpy(), projected.numpy()

    def set_aside(self, rows: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Take the gradients of sequences that are over out of the flows: they wait."""
        waiting = [(part, part[rows]) for part in (self.flow, self.memory_flow) if part is not None]
        for part, _ in waiting:
            part[rows] = 0
        return waiting

    def bring_back(self, rows: Any, waiting: list[tuple[Tensor, Tensor]]) -> None:
        """Put them back."""
        for part, kept in waiting:
            part[rows] = kept

    def add_linear(self, gradients: tuple[Tensor, ...]) -> None:
        """Add to the gradients of the operator's tensors."""
        if not self.linear_gradients:
            self.linear_gradients = list(gradients)
            return
        for total, part in zip(self.linear_gradients, gradients, strict=True):
            total += part
