"""What `coupled_scan` does to the input before the recurrence: a chunk of steps at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor


class ProjectionWalk(ABC):
    """The projection on its way through time, for one share of the batch."""

    tensor_gradients: list[Tensor]
    """Gradients of the projection's tensors, added to by `backward`."""
    state: list[Tensor]
    """What is carried from chunk to chunk; after the way there the final state."""
    state_flow: list[Tensor]
    """The gradients of it; after the way back those of the first state."""

    def turn(self, state_flow: list[Tensor]) -> None:
        """Begin the way back with the gradients of the final state."""
        self.state_flow = state_flow
        for gradient in self.tensor_gradients:
            gradient.zero_()

    @abstractmethod
    def forward(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Write P(x) of a chunk (time, sequences, input) to `out`; chunks come in order."""

    @abstractmethod
    def again(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Do the same for the way back, whose chunks come last one first."""

    @abstractmethod
    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        """Add to the gradients, and write that of the input; `gradient` may be overwritten."""


class Projection(ABC):
    """Makes the walks."""

    @abstractmethod
    def width(self, tensors: Sequence[Tensor]) -> int:
        """Return how many numbers a row of the answer holds."""

    @abstractmethod
    def walk(
        self,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        share: slice,
        lengths: Tensor | None,
    ) -> ProjectionWalk:
        """Begin a walk over some of the sequences.

        Args:
            tensors: What the projection is made of.
            state: The first state of these sequences, to be overwritten.
            chunks: First and past-the-last step of each.
            share: Which sequences.
            lengths: Where they are over, or None.
        """


class Linear(Projection):
    """x → V x + b; tensors: V (answer, input) and, where there is one, b (answer,)."""

    def width(self, tensors: Sequence[Tensor]) -> int:
        """The rows of V."""
        return tensors[0].shape[0]

    def walk(
        self,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        share: slice,
        lengths: Tensor | None,
    ) -> ProjectionWalk:
        """Begin."""
        return LinearWalk(tensors)


class LinearWalk(ProjectionWalk):
    """One product a chunk, there and back."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self.weight = tensors[0].contiguous()
        self.turned = self.weight.t()
        self.bias = tensors[1] if len(tensors) > 1 else None
        self.tensor_gradients = [torch.zeros_like(tensor) for tensor in tensors]
        self.state, self.state_flow = [], []

    def forward(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """V x + b."""
        rows, answer = x.flatten(0, 1), out.flatten(0, 1)
        if self.bias is None:
            torch.mm(rows, self.turned, out=answer)
        else:
            torch.addmm(self.bias, rows, self.turned, out=answer)

    def again(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Nothing is carried, so the same."""
        self.forward(chunk, x, out)

    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        """Two products and a sum."""
        rows = gradient.flatten(0, 1)
        self.tensor_gradients[0].addmm_(rows.t(), x.flatten(0, 1))
        if self.bias is not None:
            self.tensor_gradients[1] += rows.sum(0)
        if input_gradient is not None:
            input_gradient.copy_((rows @ self.weight).view(input_gradient.shape))
