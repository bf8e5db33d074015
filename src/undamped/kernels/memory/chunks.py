"""What every pass of a network with memory does: a share of the batch, in chunks of time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from undamped.kernels.shared.gemm import product_address

CHUNK_BYTES = 1 << 20


class BatchShare(ABC):
    """The samples that one thread takes through time.

    Args:
        plan: What is not a tensor; it has `lengths`.
        part: Which samples.
        x: (time, batch, input), the input of all samples.
        marks: What the memory knows besides states; `of(part)` gives that of some samples.
        tensors: By the names in `names`; among them input (product, input), bias and key.
    """

    names: ClassVar[tuple[str, ...]]
    """The tensors of a pass, in order; (0,) where there is none."""
    finals: ClassVar[dict[str, int]]
    """What is known after the last step, and which of its dimensions is the batch."""
    carried: ClassVar[int]
    """How many of those, the first ones, have a gradient."""
    batched: ClassVar[dict[str, int]]
    """The tensors that belong to samples, with the dimension of the batch."""

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
        """How many the product of a step makes, query included."""
        return self.batch * self.hidden * (self.width + self.hidden)

    def empty(self, *shape: int) -> Tensor:
        """Return a new tensor."""
        return self.x.new_empty(shape)

    def projected(self, begin: int) -> Tensor:
        """Return what the recurrence makes of the inputs of a chunk, (steps, samples, product)."""
        inputs = self.x[begin : begin + self.chunk]
        bias = self.tensors["bias"]
        flat, weight = inputs.reshape(-1, inputs.shape[2]), self.tensors["input"].t()
        result = torch.addmm(bias, flat, weight) if bias.numel() else flat @ weight
        return result.view(inputs.shape[0], self.batch, self.width)

    def add_input_gradients(self, found: dict[str, Tensor], begin: int, drive: Tensor) -> None:
        """Add what the gradient of `projected`, (rows, product), means for x, matrix and bias."""
        inputs = self.x[begin : begin + self.chunk]
        found["input"].addmm_(drive.t(), inputs.reshape(-1, inputs.shape[2]))
        if self.tensors["bias"].numel():
            found["bias"] += drive.sum(0)
        found["x"][begin : begin + self.chunk] = (drive @ self.tensors["input"]).view_as(inputs)

    @property
    @abstractmethod
    def output(self) -> Tensor:
        """(time, samples, features), what the pass shows."""

    @property
    @abstractmethod
    def guarded(self) -> Tensor:
        """What must not be changed before the backward pass."""

    @abstractmethod
    def forward(self) -> None:
        """Run; what is needed later stays in this object."""

    @abstractmethod
    def final(self) -> tuple[Tensor, ...]:
        """Return what `finals` names, of these samples."""

    @abstractmethod
    def backward(self, output: Tensor, *carried: Tensor) -> dict[str, Tensor]:
        """Return the gradients of the tensors, and of x under "x".

        Args:
            output: The gradient of the output, of all samples.
            carried: The gradients of the first parts of `finals`, of all samples.
        """
