"""What a recurrence with one linear map and something elementwise is made of.

    projected = P(x)                                         all steps of a chunk at once
    product = L(state)                                       one matrix product, or a structured map
    state' = f(product, projected, state)                    elementwise, one fused kernel

What is elementwise is a `Step`, what is linear an `Operator`, what comes before the recurrence a
`Projection`. The meaning of all three is the `advance` and `project` of the cell that uses them;
`cells.bases.cell.reference_scan` is the reference, and takes over off the CPU.

The gradient is written by hand. Of the forward pass only the states are kept: whatever else f's
derivative needs is computed again, a chunk of steps at a time, and since all states are known
that is one large product and no recurrence. The gradients of L and P are large products over a
chunk as well. So a pass needs the memory of its states and of one chunk, however many gates f has.

Sequences of a batch do not see each other: each thread takes a shard of them through all of time
(`shared.threads`), with products of its own. With a matrix, the loop over the times of a chunk is
compiled, products included (`compiled_pass`, `loop`); structured maps are called from Python for
every time (`StructuredPass`). Complex states are pairs of real ones side by side, so a complex
matrix is a real one of twice the size and needs nothing of its own here.

Each of the three can be described by numbers and tensors and made again from them, which is how
an operator of `torch.library` is handed one (`operator`). Their constructors only remember.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, ClassVar, Self

from torch import Tensor


class Described:
    """Something made of numbers and tensors that no gradient flows to."""

    def describe(self) -> tuple[list[float], list[Tensor]]:
        """Return what `restore` makes the same from."""
        return [], []

    @classmethod
    def restore(cls, numbers: Sequence[float], tensors: Sequence[Tensor]) -> Self:
        """Make one from what `describe` returned."""
        return cls(*numbers)


class Operator(Described, ABC):
    """A linear map of rows, and the gradients of the tensors it is made of.

    Several threads apply one operator at once: after `bind` it only reads what it holds.
    """

    width: int = 0
    """How wide an answer is; 0 where it is as wide as what is read."""

    @abstractmethod
    def bind(self, tensors: Sequence[Tensor]) -> None:
        """Take the tensors the map is made of, detached, and prepare to be applied."""

    @abstractmethod
    def apply(self, rows: Tensor, add: Tensor | None, out: Tensor) -> None:
        """Write L(rows), plus `add` where it is given, to `out`, which is neither of the two."""

    @abstractmethod
    def gradients(self, inputs: Tensor, gradients: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of all tensors from many (inputs, gradients) rows at once."""


class DenseOperator(Operator):
    """An operator that compiled loops apply: the product with a matrix, or nothing at all."""

    matrix: Tensor | None = None
    """(answer, read), without gaps, after `bind`."""
    transposed: Tensor | None = None
    """Its transpose, without gaps."""


class StructuredOperator(Operator):
    """An operator that is called for every time."""

    @abstractmethod
    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write Lᵀ(rows) to `out`."""


class Step(Described):
    """The elementwise part of a step. It holds numbers only: several threads use it at once.

    A subclass sets `kernel_module`, and flags such as `has_memory`, by keywords of its class.
    """

    adds_projection: ClassVar[bool] = True
    """Whether the operator's answer and the projected input are simply added."""
    reads_product: ClassVar[bool] = True
    """Whether the backward pass needs product and projected input again, or only the states."""
    has_memory: ClassVar[bool] = False
    """Whether part of the state is not read by the operator."""
    kernel_module: ClassVar[str] = ""
    """The module of `steps` that has its compiled loops, LOOPS by name (`loop`), and PASS where
    the step needs another pass than `compiled_pass`."""

    def __init_subclass__(cls, module: str = "", **flags: bool) -> None:
        super().__init_subclass__()
        cls.kernel_module = module or cls.kernel_module
        for name, value in flags.items():
            setattr(cls, name, value)

    def __init__(self, *constants: float) -> None:
        self.constants = constants  # numbers for its loops, which its documentation names

    def describe(self) -> tuple[list[float], list[Tensor]]:
        return list(self.constants), []

    @property
    def compiled(self) -> Any:
        """Its module, which brings Numba."""
        return import_module(f"undamped.kernels.coupled.steps.{self.kernel_module}")

    @property
    def loops(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """Compiled loops over the times of a chunk, forward and backward."""
        return self.compiled.LOOPS[type(self).__name__]


class Activation(Step):
    """A step that is one function of product + projected input, whose slope the new state shows.

    It goes with structured operators as well, time after time.
    """

    reads_product = False
    in_place: ClassVar[bool] = False
    """Whether `product` is `new`, to be changed where it stands."""

    @property
    def kernels(self) -> tuple[Callable[..., None], Callable[..., None]]:
        """Compiled functions of one time, forward and backward."""
        return self.compiled.KERNELS[type(self).__name__]


class ProjectionPass(ABC):
    """The projection on its way through time, for one shard of the batch."""

    tensor_gradients: list[Tensor]
    """Gradients of the projection's tensors, added to by `backward`."""
    state: list[Tensor]
    """What is carried from chunk to chunk; after the forward pass the final state."""
    state_gradient: list[Tensor]
    """The gradients of it; after the backward pass those of the first state."""

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
        """Do the same for the backward pass, whose chunks come last one first."""

    @abstractmethod
    def backward(
        self, chunk: int, x: Tensor, gradient: Tensor, input_gradient: Tensor | None
    ) -> None:
        """Add to the gradients, and write that of the input; `gradient` may be overwritten."""


class Projection(Described, ABC):
    """What turns the input into what the step reads; its first tensor is a matrix V."""

    def width(self, tensors: Sequence[Tensor]) -> int:
        """Return how many numbers a row of the answer holds: as many as V has rows."""
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
            tensors: What the projection is made of.
            state: The first state of these sequences, to be overwritten.
            chunks: First and past-the-last step of each.
            shard: Which sequences.
            lengths: Where they are over, or None.
        """
