"""The parts of a recurrence with one linear map and an elementwise function.

    projected = P(x)                                         all steps of a chunk at once
    product = L(state)                                       one matrix product, or a structured map
    state' = f(product, projected, state)                    elementwise, one fused kernel

The elementwise function is a `Step`, the linear map an `Operator`, and a `Projection` maps the
input before the recurrence. Their reference is `advance` and `project` of the cell that uses them,
iterated by `nn.bases.cell.Cell.reference_scan`, which also runs on other devices than the CPU.

The backward pass is explicit. The forward pass saves the states only; whatever else the derivative
of f needs is recomputed, a chunk of steps at a time. Since all states are known, that is one large
product instead of a recurrence. The gradients of L and P are large products over a chunk as well.
So a pass needs the memory of its states and of one chunk, however many gates f has.

Sequences of a batch are independent: each thread runs all steps of a shard of them
(`shared.threads`), products included. With a matrix, the loop over the times of a chunk is
compiled, products included (`compiled_pass`, `loop`); structured maps are called from Python for
every time (`StructuredPass`). Complex states are pairs of real ones side by side, so a complex
matrix is a real one of twice the size and needs no special case.

Each of the three can be described by numbers and tensors and restored from them, since an operator
of `torch.library` accepts nothing else (`operator`). Their constructors only store arguments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, Self

from torch import Tensor


class Described:
    """An object that is described by numbers and by tensors without gradient."""

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Return the arguments of `restore`."""
        return [], []

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        """Build the object from the result of `describe`."""
        return cls(*numbers)


class Operator(Described, ABC):
    """A linear map of rows, and the gradients of its tensors.

    Several threads apply one operator at once, so it does not change after `bind`.
    """

    width: int = 0
    """The width of the result; 0 if it is that of the argument."""

    @abstractmethod
    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Store the tensors of the map, detached, and prepare it."""

    @abstractmethod
    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write L(rows), plus `add` unless it is None, to `out`, which is neither of the two."""

    @abstractmethod
    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of all tensors from the rows of (inputs, gradients)."""


class DenseOperator(Operator):
    """An operator inside compiled loops: a matrix product, or no operation."""

    matrix: Tensor | None = None
    """The matrix (answer, read), contiguous, after `bind`."""
    transposed: Tensor | None = None
    """Its transpose, contiguous."""


class StructuredOperator(Operator):
    """An operator that is called from Python at every time."""

    @abstractmethod
    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write Lᵀ(rows) to `out`."""


class Step(Described):
    """The elementwise part of a step. It holds constants only: several threads use it at once.

    A subclass sets `kernel_module`, and flags such as `has_memory`, by keywords of its class.
    """

    adds_projection: ClassVar[bool] = True
    """Whether the step reads only the sum of the operator's result and the projected input."""
    reads_product: ClassVar[bool] = True
    """Whether the backward pass needs product and projected input again, or only the states."""
    has_memory: ClassVar[bool] = False
    """Whether the state has a part that the operator does not read."""
    kernel_module: ClassVar[str] = ""
    """The module of `steps` that has its compiled loops, LOOPS by name (`loop`), and PASS where
    the step needs another pass than `compiled_pass`."""

    def __init_subclass__(cls, module: str = "", **flags: bool) -> None:
        super().__init_subclass__()
        cls.kernel_module = module or cls.kernel_module
        for name, value in flags.items():
            setattr(cls, name, value)

    def __init__(self, *constants: float) -> None:
        self.constants = constants  # in the order of the loops

    def describe(self) -> tuple[list[float], list[Tensor]]:
        return list(self.constants), []

    @property
    def compiled(self) -> Any:
        """The module of its loops; importing it imports Numba."""
        return import_module(f"undamped.kernels.coupled.steps.{self.kernel_module}")

    @property
    def loops(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """Compiled loops over the times of a chunk, forward and backward."""
        return self.compiled.LOOPS[type(self).__name__]


class Activation(Step):
    """A step that is a function of product + projected input, with its slope known from the result.

    It also works with structured operators, which are called at every time.
    """

    reads_product = False
    in_place: ClassVar[bool] = False
    """Whether the function works in place: `product` is `new`."""

    @property
    def kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """Compiled functions of one time, forward and backward."""
        return self.compiled.KERNELS[type(self).__name__]


class ProjectionPass(ABC):
    """A pass of the projection over time, for one shard of the batch."""

    tensor_gradients: list[Tensor]
    """Gradients of the projection's tensors, added to by `backward`."""
    state: list[Tensor]
    """The state at the current chunk; after the forward pass the final state."""
    state_gradient: list[Tensor]
    """Its gradients; after the backward pass those of the first state."""

    def start_backward(self, state_gradient: list[Tensor]) -> None:
        """Begin the backward pass with the gradients of the final state."""
        self.state_gradient = state_gradient
        for gradient in self.tensor_gradients:
            gradient.zero_()

    @abstractmethod
    def forward(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Write P(x) of a chunk (time, sequences, input) to `out`; chunks come in order."""

    @abstractmethod
    def recompute(self, chunk: int, x: Tensor, out: Tensor) -> None:
        """Do the same in the backward pass, whose chunks come in reverse order."""

    @abstractmethod
    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        """Add to the gradients, and write that of the input; `gradient` may be overwritten."""


class Projection(Described, ABC):
    """The map from the input to the projected input of the step; its first tensor is a matrix V."""

    def width(self, tensors: Sequence[Tensor]) -> int:
        """Return the width of the projected input: the number of rows of V."""
        return tensors[0].shape[0]

    @abstractmethod
    def begin(
        self,
        tensors: Sequence[Tensor],
        state: list[Tensor],
        chunks: list[tuple[int, int]],
        shard: slice,
        lengths: Tensor | None,
    ) -> ProjectionPass:
        """Begin a pass over some of the sequences.

        Args:
            tensors: The tensors of the projection.
            state: The first state of these sequences, to be overwritten.
            chunks: First and past-the-last step of each.
            shard: The slice of the batch.
            lengths: Their lengths, or None.
        """
