"""coupled_scan: walk through time where a step is one linear map and something elementwise.

    projected = P(x)                                         all steps of a chunk at once
    product = L(carried)                                     one matrix product, or a structured map
    carried' = f(product, projected, carried)                elementwise, one fused kernel

The way back is written by hand. Of the way there only the states are kept: whatever else f's
derivative needs is computed again, a chunk of steps at a time, and since all states are known
that is one large product and no recurrence. The gradients of L and P are large products over a
chunk as well. So a pass needs the memory of its states and of one chunk, however many gates f has.

Sequences of a batch do not see each other: each thread takes its share of them through all of time
(`batch_parts`), with products of its own. With a matrix, the loop over the times of a chunk is
compiled, products included (`coupled_loop`); structured maps are called from Python for every time
(`coupled_structured`). Complex states are pairs of real ones side by side, so
a complex matrix is a real one of twice the size and needs nothing of its own here.

What is elementwise is a `Step` (`coupled_activation`, `coupled_euler`, `coupled_gated`, …), what is
linear an `Operator` (`coupled_operators`), what comes before the recurrence a `Projection`
(`coupled_projection`). The meaning of all three is the `advance` and `project` of the cell that
uses them; `cells.bases.cell.reference_scan` is the reference, and takes over off the CPU.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

if TYPE_CHECKING:
    from undamped.kernels.coupled.passes import Walk
    from undamped.kernels.coupled.projections.linear import Projection


class Operator(ABC):
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


class InLoops(Operator):
    """An operator that compiled loops apply: the product with a matrix, or nothing at all."""

    matrix: Tensor | None = None
    """(answer, read), without gaps, after `bind`."""
    turned: Tensor | None = None
    """Its transpose, without gaps."""


class Structured(Operator):
    """An operator that is called for every time."""

    @abstractmethod
    def transpose(self, rows: Tensor, out: Tensor) -> None:
        """Write Lᵀ(rows) to `out`."""


class Step:
    """The elementwise part of a step. It holds numbers only: several threads use it at once."""

    adds_projection: ClassVar[bool] = True
    """Whether the operator's answer and the projected input are simply added."""
    reads_product: ClassVar[bool] = True
    """Whether the way back needs product and projected input again, or only the states."""
    has_memory: ClassVar[bool] = False
    """Whether part of the state is not read by the operator."""
    loops: ClassVar[tuple[Callable[..., None], Callable[..., None]]]
    """Compiled loops over the times of a chunk, there and back (`coupled_loop`)."""
    numbers: tuple[float, ...] = ()
    """Numbers of the step, for its loops."""

    def walk(self, operator: Operator) -> type[Walk]:
        """Return the way through time with an operator."""
        from undamped.kernels.coupled.loop import LoopWalk

        assert isinstance(operator, InLoops), f"{type(self).__name__} goes with a matrix only"
        return LoopWalk


class Activation(Step):
    """A step that is one function of product + projected input, whose slope the new state shows.

    It goes with structured operators as well, time after time.
    """

    reads_product = False
    in_place: ClassVar[bool] = False
    """Whether `product` is `new`, to be changed where it stands."""
    kernels: ClassVar[tuple[Callable[..., None], Callable[..., None]]]
    """Compiled functions of one time, there and back (`coupled_activation`)."""

    def walk(self, operator: Operator) -> type[Walk]:
        """Return the way through time with an operator."""
        from undamped.kernels.coupled.structured_pass import StructuredWalk

        return StructuredWalk if isinstance(operator, Structured) else super().walk(operator)


def coupled_scan(
    step: Step,
    operator: Operator,
    projection: Projection,
    x: Tensor,
    state: tuple[Tensor, ...],
    *,
    input_tensors: Sequence[Tensor],
    linear: Sequence[Tensor],
    parameters: Sequence[Tensor] = (),
    filters: tuple[Tensor, ...] = (),
    lengths: Tensor | None = None,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Walk through time; return the outputs (time, batch, hidden) and the final state.

    Args:
        step: The elementwise part.
        operator: The linear part.
        projection: What turns the input into what the step reads.
        x: (time, batch, input), the input.
        state: The first state; the output is its first tensor. What the operator reads is all
            of it side by side, except a last tensor for steps that have a memory.
        input_tensors: The tensors the projection is made of.
        linear: The tensors the operator is made of.
        parameters: The tensors of the elementwise part.
        filters: The first state of the projection, where it has one; it follows in the final one.
        lengths: (batch,) where sequences are over; their states stay and outputs are zero.
    """
    from undamped.kernels.coupled.function import Plan, walk_through

    groups = (state, filters, input_tensors, linear, parameters)
    plan = Plan(step, operator, projection, tuple(len(group) for group in groups), lengths)
    return walk_through(plan, x, [tensor for group in groups for tensor in group])
