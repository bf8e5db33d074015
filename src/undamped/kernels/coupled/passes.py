"""The forward and backward pass of one shard of the batch, chunk by chunk of steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.kernels.coupled.contract import Operator, ProjectionPass, Step


@dataclass
class Shard:
    """The arrays of some sequences of the batch, views of those of the whole.

    Args:
        x: (time, sequences, input).
        hidden_states: (time + 1, sequences, width), the part of the state that the operator reads,
            the first state at 0.
        memory: The part that it does not read, likewise, or None.
        weights: The tensors of the elementwise part.
        lengths: (sequences,), or None.
    """

    x: Tensor
    hidden_states: Tensor
    memory: Tensor | None
    weights: list[Tensor]
    lengths: Tensor | None


class Pass(ABC):
    """The forward and the backward pass of one shard.

    Args:
        step: The elementwise part.
        operator: The linear part, bound.
        projection: The pass of the input's projection.
        shard: The arrays.
        widths: Of the operator's answer and of the projected input.
        chunks: First and past-the-last step of each.
    """

    def __init__(
        self,
        step: Step,
        operator: Operator,
        projection: ProjectionPass,
        shard: Shard,
        widths: tuple[int, int],
        chunks: list[tuple[int, int]],
    ) -> None:
        self.step, self.operator, self.projection, self.shard = step, operator, projection, shard
        self.chunks = chunks
        self.product_width, self.projected_width = widths
        self.linear_gradients: list[Tensor] = []
        self.weight_gradients = [torch.zeros_like(part) for part in shard.weights]
        self.weights = tuple(part.contiguous().numpy() for part in shard.weights)
        self.gradient_arrays = tuple(part.numpy() for part in self.weight_gradients)

    @property
    def multiplications(self) -> int:
        """The multiplications of the product of a step, if its matrix is dense."""
        _, sequences, width = self.shard.hidden_states.shape
        return sequences * width * self.product_width

    def buffer(self, width: int, steps: int | None = None) -> Tensor:
        """Return memory for a chunk, or for the number of steps given."""
        longest = max(stop - start for start, stop in self.chunks)
        sequences = self.shard.hidden_states.shape[1]
        return self.shard.hidden_states.new_empty(steps or longest, sequences, width)

    def forward(self) -> None:
        """Fill `hidden_states` and `memory`."""
        projected = self.buffer(self.projected_width)
        self.scratch = self.buffer(self.product_width, 1)[0]
        for chunk, (start, stop) in enumerate(self.chunks):
            part = projected[: stop - start]
            self.projection.forward(chunk, self.shard.x[start:stop], part)
            self.forward_chunk(start, stop, part)

    def project(self) -> None:
        """Run the projection alone, which stores its state at every chunk."""
        projected = self.buffer(self.projected_width)
        for chunk, (start, stop) in enumerate(self.chunks):
            part = projected[: stop - start]
            self.projection.forward(chunk, self.shard.x[start:stop], part)

    @abstractmethod
    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        """Run the steps of a chunk."""

    def backward(
        self,
        output_gradient: Tensor,
        state_gradient: Tensor,
        memory_gradient: Tensor | None,
        input_gradient: Tensor | None,
    ) -> None:
        """Fill the gradients; the first two are overwritten with those of the first state.

        Args:
            output_gradient: (time, sequences, hidden).
            state_gradient: (sequences, width), the gradient of the last `hidden_states`.
            memory_gradient: The same of `memory`.
            input_gradient: (time, sequences, input), to be filled; None if not required.
        """
        self.state_gradient, self.memory_gradient = state_gradient, memory_gradient
        self.prepare_backward()
        for chunk in range(len(self.chunks) - 1, -1, -1):
            start, stop = self.chunks[chunk]
            x = self.shard.x[start:stop]
            gradient = self.backward_chunk(chunk, start, stop, x, output_gradient)
            chunk_gradient = None if input_gradient is None else input_gradient[start:stop]
            self.projection.backward(chunk, x, gradient, chunk_gradient)

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
        """Backpropagate through a chunk; return the gradient of its projected input."""

    def recompute_sums(self, chunk: int, x: Tensor, read: Tensor) -> None:
        """Recompute products and projected input of a chunk, if the step needs them."""
        step, steps = self.step, len(x)
        if not step.reads_product:
            return
        product, projected = self.product[:steps], self.projected[:steps]
        self.projection.recompute(chunk, x, projected)
        add = projected.flatten(0, 1) if step.adds_projection else None
        self.operator.apply(read, add, product.flatten(0, 1))

    def add_linear(self, gradients: tuple[Tensor, ...]) -> None:
        """Add to the gradients of the operator's tensors."""
        if not self.linear_gradients:
            self.linear_gradients = list(gradients)
            return
        for total, part in zip(self.linear_gradients, gradients, strict=True):
            total += part
