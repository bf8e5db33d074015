"""The compiled loops over the times of a chunk, and functions that steps share.

`forward_loop` and `backward_loop` make the two loops of a step from its functions of one time, each
a `step_function`: `(chunk, t, weights, constants)` writes the state after time t, `(chunk, t,
weights, gradients, constants)` replaces the gradient of the state after time t by that before it.
The functions below, products and rows of a time, are shared by steps. The loops themselves add the
gradient of the outputs and do not change sequences that have ended. All arrays over time are
`strided`, so that one compiled version supports every layout.

Numba keeps a loop that closes over a `step_function` of a module in its cache: such a function
is pickled by its name, while a compiled function would be another object in every process.

Compiling takes seconds at the first call of a network. So loops for sequences of unequal length are
compiled separately, on demand (`remaining` is None otherwise), and elements of a row are addressed
by their index in it: a slice of a slice takes longer to compile than the arithmetic with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from numba import types
from numba.extending import overload, register_jitable

from undamped.kernels.shared.gemm import multiply
from undamped.kernels.shared.jit import LOOP, PART, njit
from undamped.kernels.shared.pointers import STEPS, at_step

step_function: Any = register_jitable(**PART)
"""Decorator for functions of one time, from which loops are made."""
helper: Any = njit(**LOOP, inline="always")
"""Decorator for functions that these call; they are inlined as source."""

BUFFER_ROWS = 5
"""Rows of the buffer of a step: an array that a loop allocates takes longer to compile."""


def forward_loop(step: Callable[..., None], *, has_memory: bool = False) -> Any:
    """Return the compiled loop of a step in the forward pass.

    Args:
        step: A `step_function` of a module.
        has_memory: Whether the step has a memory in addition to the state.
    """

    def loop(chunk: Any, weights: Any, constants: Any) -> None:
        for t in range(chunk.projected[STEPS]):
            step(chunk, t, weights, constants)
            freeze_finished(chunk, chunk.hidden_states, t)
            if has_memory:
                freeze_finished(chunk, chunk.memory, t)

    return compiled_loop(loop, step)


def backward_loop(step: Callable[..., None]) -> Any:
    """Return the compiled loop of a step, a `step_function` of a module, in the backward pass."""

    def loop(chunk: Any, weights: Any, gradients: Any, constants: Any) -> None:
        for t in range(chunk.output_gradient[STEPS] - 1, -1, -1):
            add_output_gradient(chunk, t)
            step(chunk, t, weights, gradients, constants)
            restore_finished(chunk, t)

    return compiled_loop(loop, step)


def compiled_loop(loop: Callable[..., None], step: Callable[..., None]) -> Any:
    """Compile a loop under the name of its step, so that each has its own file in the cache."""
    loop.__qualname__ = loop.__name__ = f"{step.__name__}_loop"
    return njit(**LOOP)(loop)


class ForwardChunk(NamedTuple):
    """The arguments of the forward loop over a chunk; (…) are `strided`."""

    blas: int
    matrix: Any
    """(read, answer)."""
    projected: Any
    """(steps, sequences, projected)."""
    hidden_states: Any
    """(steps + 1, sequences, read), the state before the chunk at 0."""
    memory: Any
    """The same for the memory, which the product does not read."""
    product: Any
    """(sequences, answer), a buffer."""
    buffer: Any
    """(BUFFER_ROWS, read), a buffer of the step for one sequence."""
    remaining: Any
    """How many of the steps each sequence has; None if all have all."""


class BackwardChunk(NamedTuple):
    """The arguments of the backward loop over a chunk."""

    blas: int
    matrix: Any
    """(answer, read)."""
    projected: Any
    product: Any
    """(steps, sequences, answer), with the projected input added if the step is `additive`."""
    hidden_states: Any
    memory: Any
    output_gradient: Any
    """(steps, sequences, hidden), the gradient of the outputs."""
    state_gradient: Any
    """(sequences, read), the gradient of the state in the backward pass."""
    memory_gradient: Any
    summed: Any
    """(sequences, read), a buffer for products."""
    gradient: Any
    """To be filled: (steps, sequences, answer), the gradient of the product."""
    projected_gradient: Any
    """To be filled: (steps, sequences, projected)."""
    buffer: Any
    """As in the forward pass; filled with zeros."""
    scratch: Any
    """(sequences, read), a buffer of the step for all sequences."""
    remaining: Any
    finished_gradient: Any
    """The gradients of sequences that have ended; None if none has."""
    finished_memory: Any


def _ragged(chunk: Any) -> bool:
    """Return whether a chunk, given as a Numba type, has sequences of unequal length."""
    return not isinstance(chunk.types[chunk.fields.index("remaining")], types.NoneType)


@helper
def copy_row(row: Any, to: Any) -> None:
    """Copy a row; an assignment of arrays takes seconds to compile, for all possible shapes."""
    for j in range(row.shape[0]):
        to[j] = row[j]


@helper
def clear_row(row: Any) -> None:
    """Set a row to zero."""
    for j in range(row.shape[0]):
        row[j] = 0


@helper
def add_sum(row: Any, to: Any) -> None:
    """Add the sum of a row to the first number of an array, which may be much larger."""
    total = row[0]
    for j in range(1, row.shape[0]):
        total += row[j]
    to[0] += total


# For loops in the forward pass


@helper
def states(chunk: Any, t: int) -> Any:
    """Return the states before and after a time."""
    return at_step(chunk.hidden_states, t, chunk.product), at_step(
        chunk.hidden_states, t + 1, chunk.product
    )


@helper
def memories(chunk: Any, t: int) -> Any:
    """Return the memories before and after a time."""
    return at_step(chunk.memory, t, chunk.product), at_step(chunk.memory, t + 1, chunk.product)


@helper
def inputs(chunk: Any, t: int) -> Any:
    """Return the projected input of a time."""
    return at_step(chunk.projected, t, chunk.product)


@helper
def rows_plus_input(chunk: Any, t: int, rows: Any, out: Any) -> None:
    """Write the product with some rows, plus the projected input of a time, to `out`."""
    add = at_step(chunk.projected, t, chunk.product)
    for b in range(out.shape[0]):
        copy_row(add[b], out[b])
    multiply(chunk.blas, rows, chunk.matrix, out, True)


@helper
def product_plus_input(chunk: Any, t: int, out: Any) -> None:
    """Write the product with the state of a time, plus projected input, to `out`."""
    rows_plus_input(chunk, t, at_step(chunk.hidden_states, t, chunk.product), out)


@helper
def apply(chunk: Any, t: int) -> None:
    """Write the product alone."""
    multiply(
        chunk.blas,
        at_step(chunk.hidden_states, t, chunk.product),
        chunk.matrix,
        chunk.product,
        False,
    )


def freeze_finished(chunk: Any, array: Any, t: int) -> None:
    """Copy the old values of sequences that have ended to the next time."""
    raise NotImplementedError  # only compiled code calls this


@overload(freeze_finished, jit_options=PART)
def _freeze_finished(chunk: Any, array: Any, t: Any) -> Any:
    def frozen(chunk: Any, array: Any, t: Any) -> None:
        old, new = at_step(array, t, chunk.product), at_step(array, t + 1, chunk.product)
        for b in range(chunk.remaining.shape[0]):
            if t >= chunk.remaining[b]:
                copy_row(old[b], new[b])

    def running(chunk: Any, array: Any, t: Any) -> None:
        pass

    return frozen if _ragged(chunk) else running


# For loops in the backward pass


@helper
def at_time(chunk: Any, array: Any, t: int) -> Any:
    """Return the rows of a time."""
    return at_step(array, t, chunk.state_gradient)


def add_output_gradient(chunk: Any, t: int) -> None:
    """Add the gradient of the outputs to that of the state, except where sequences have ended."""
    raise NotImplementedError  # only compiled code calls this


@overload(add_output_gradient, jit_options=PART)
def _add_output_gradient(chunk: Any, t: Any) -> Any:
    def ragged(chunk: Any, t: Any) -> None:
        outputs = at_step(chunk.output_gradient, t, chunk.state_gradient)
        for b in range(chunk.state_gradient.shape[0]):
            total, part = chunk.state_gradient[b], outputs[b]
            if t >= chunk.remaining[b]:
                copy_row(total, chunk.finished_gradient[b])
                clear_row(total)
                copy_row(chunk.memory_gradient[b], chunk.finished_memory[b])
                clear_row(chunk.memory_gradient[b])
            else:
                for j in range(part.shape[0]):
                    total[j] += part[j]

    def running(chunk: Any, t: Any) -> None:
        outputs = at_step(chunk.output_gradient, t, chunk.state_gradient)
        for b in range(chunk.state_gradient.shape[0]):
            total, part = chunk.state_gradient[b], outputs[b]
            for j in range(part.shape[0]):
                total[j] += part[j]

    return ragged if _ragged(chunk) else running


def restore_finished(chunk: Any, t: int) -> None:
    """Restore the gradients of sequences that have ended."""
    raise NotImplementedError  # only compiled code calls this


@overload(restore_finished, jit_options=PART)
def _restore_finished(chunk: Any, t: Any) -> Any:
    def ragged(chunk: Any, t: Any) -> None:
        for b in range(chunk.remaining.shape[0]):
            if t >= chunk.remaining[b]:
                # In this order: without a memory both are the same array.
                copy_row(chunk.finished_memory[b], chunk.memory_gradient[b])
                copy_row(chunk.finished_gradient[b], chunk.state_gradient[b])

    def running(chunk: Any, t: Any) -> None:
        pass

    return ragged if _ragged(chunk) else running


@helper
def add_product(chunk: Any, rows: Any, matrix: Any, to: Any) -> None:
    """Add a product with some rows.

    BLAS would start its sums at the old value and round every term relative to it. Over thousands
    of steps, each of which adds little, this costs a digit.
    """
    multiply(chunk.blas, rows, matrix, chunk.summed, False)
    for b in range(to.shape[0]):
        total, part = to[b], chunk.summed[b]
        for j in range(part.shape[0]):
            total[j] += part[j]


@helper
def backprop_product(chunk: Any, t: int) -> None:
    """Replace the gradient of the state by the backpropagated gradient of the product."""
    rows = at_step(chunk.gradient, t, chunk.state_gradient)
    multiply(chunk.blas, rows, chunk.matrix, chunk.state_gradient, False)


@helper
def add_backpropagated_product(chunk: Any, t: int) -> None:
    """Add the backpropagated gradient of the product to the gradient of the state."""
    rows = at_step(chunk.gradient, t, chunk.state_gradient)
    add_product(chunk, rows, chunk.matrix, chunk.state_gradient)
