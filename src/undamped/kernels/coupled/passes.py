"""One share of the batch on its way through time, there and back, chunk after chunk of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import Operator, Step
from undamped.kernels.coupled.projections.linear import ProjectionWalk

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


def chunk_steps(steps: int, row_bytes: int) -> int:
    """Return how many steps make a chunk whose arrays take `row_bytes` a step."""
    return min(steps, max(SHORTEST, min(LONGEST, CHUNK_BYTES // max(1, row_bytes))))


class Walk(ABC):
    """The way of one share.

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
        self.parameters = tuple(part.contiguous().numpy() for part in share.parameters)
        self.gradient_arrays = tuple(part.numpy() for part in self.parameter_gradients)

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

    @abstractmethod
    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        """Make the steps of a chunk."""

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

    @abstractmethod
    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Go back through a chunk; return the gradient of its projected input."""

    def sums_again(self, chunk: int, x: Tensor, read: Tensor) -> None:
        """Find products and projected input of a chunk again, where the step needs them."""
        step, steps = self.step, len(x)
        if not step.reads_product:
            return
        product, projected = self.product[:steps], self.projected[:steps]
        self.projection.again(chunk, x, projected)
        add = projected.flatten(0, 1) if step.adds_projection else None
        self.operator.apply(read, add, product.flatten(0, 1))

    def add_linear(self, gradients: tuple[Tensor, ...]) -> None:
        """Add to the gradients of the operator's tensors."""
        if not self.linear_gradients:
            self.linear_gradients = list(gradients)
            return
        for total, part in zip(self.linear_gradients, gradients, strict=True):
            total += part
