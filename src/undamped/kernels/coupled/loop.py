"""The walk whose loop over time is compiled: dense products between elementwise parts.

A step brings two loops, there and back, each of which goes through a chunk: product, elementwise
part, next time. They are written with the functions below, which do what belongs to all of them:
products, adding output gradients to the flow, leaving sequences alone that are over. All arrays
of time come as `pages`, so that one compiled form serves every layout; what differs from step to
step, its parameters and numbers, comes apart from them, so that the functions below are compiled
once for all steps. The loops themselves are written out one by one, alike as they are: of a loop
that is given its step as a function, Numba would not keep the compiled form from one process to the
next.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from torch import Tensor

from undamped.kernels.coupled.contract import InLoops
from undamped.kernels.coupled.passes import Walk
from undamped.kernels.shared.gemm import multiply, product_address
from undamped.kernels.shared.pointers import page, pages, without_gaps

LOOP: dict[str, Any] = {"nogil": True, "cache": True, "error_model": "numpy"}
PART: dict[str, Any] = LOOP | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
"""For what only loops call: a way in from Python takes longer to compile than the thing itself."""


class There(NamedTuple):
    """What the loop of a chunk is given on the way there; (…) are pages."""

    blas: int
    matrix: Any
    """(read, answer)."""
    projected: Any
    """(steps, sequences, projected)."""
    carried: Any
    """(steps + 1, sequences, read), the state before the chunk at 0."""
    memory: Any
    """The same for what the product does not read."""
    product: Any
    """(sequences, answer), an array to work in."""
    alive: Any
    """How many of the steps each sequence lives; empty where all live on."""


class Back(NamedTuple):
    """What the loop of a chunk is given on the way back."""

    blas: int
    matrix: Any
    """(answer, read)."""
    projected: Any
    product: Any
    """(steps, sequences, answer), with the projected input added where the step says so."""
    carried: Any
    memory: Any
    given: Any
    """(steps, sequences, hidden), the gradient of the outputs."""
    flow: Any
    """(sequences, read), the gradient of the state on its way."""
    memory_flow: Any
    gradient: Any
    """To be filled: (steps, sequences, answer), the gradient of the product."""
    projected_gradient: Any
    """To be filled: (steps, sequences, projected)."""
    alive: Any
    waiting: Any
    """Room for the flow of sequences that are over."""
    memory_waiting: Any


@njit(**PART)
def move(row: Any, to: Any) -> None:
    """Copy a row; an assignment of arrays takes seconds to compile, for shapes it might meet."""
    for j in range(row.shape[0]):
        to[j] = row[j]


@njit(**PART)
def clear(row: Any) -> None:
    """Set a row to zero."""
    for j in range(row.shape[0]):
        row[j] = 0


# For loops on the way there


@njit(**PART)
def states(way: Any, t: int) -> Any:
    """Return the states before and after a time."""
    return page(way.carried, t, way.product), page(way.carried, t + 1, way.product)


@njit(**PART)
def memories(way: Any, t: int) -> Any:
    """Return the memories before and after a time."""
    return page(way.memory, t, way.product), page(way.memory, t + 1, way.product)


@njit(**PART)
def inputs(way: Any, t: int) -> Any:
    """Return the projected input of a time."""
    return page(way.projected, t, way.product)


@njit(**PART)
def sum_of(way: Any, t: int, rows: Any, out: Any) -> None:
    """Write the product with some rows, plus the projected input of a time, to `out`."""
    add = page(way.projected, t, way.product)
    for b in range(out.shape[0]):
        move(add[b], out[b])
    multiply(way.blas, rows, way.matrix, out, True)


@njit(**PART)
def sum_up(way: Any, t: int, out: Any) -> None:
    """Write the product with the state of a time, plus projected input, to `out`."""
    sum_of(way, t, page(way.carried, t, way.product), out)


@njit(**PART)
def apply(way: Any, t: int) -> None:
    """Write the product alone."""
    multiply(way.blas, page(way.carried, t, way.product), way.matrix, way.product, False)


@njit(**PART)
def hold(way: Any, pages: Any, t: int) -> None:
    """Leave what `pages` hold of sequences that are over where it was."""
    if way.alive.shape[0]:
        old, new = page(pages, t, way.product), page(pages, t + 1, way.product)
        for b in range(way.alive.shape[0]):
            if t >= way.alive[b]:
                move(old[b], new[b])


# For loops on the way back


@njit(**PART)
def at_time(way: Any, pages: Any, t: int) -> Any:
    """Return what `pages` hold of a time."""
    return page(pages, t, way.flow)


@njit(**PART)
def receive(way: Any, t: int) -> None:
    """Add the gradient of the outputs to the flow; flows of sequences that are over wait."""
    given, alive = page(way.given, t, way.flow), way.alive
    for b in range(way.flow.shape[0]):
        if alive.shape[0] and t >= alive[b]:
            move(way.flow[b], way.waiting[b])
            clear(way.flow[b])
            move(way.memory_flow[b], way.memory_waiting[b])
            clear(way.memory_flow[b])
        else:
            total, part = way.flow[b], given[b]
            for j in range(part.shape[0]):
                total[j] += part[j]


@njit(**PART)
def bring_back(way: Any, t: int) -> None:
    """Put the flow of sequences that are over back."""
    for b in range(way.alive.shape[0]):
        if t >= way.alive[b]:
            # In this order: without a memory both are the same array, and the flow waits here.
            move(way.memory_waiting[b], way.memory_flow[b])
            move(way.waiting[b], way.flow[b])


@njit(**PART)
def pull_back(way: Any, t: int, keep: bool) -> None:
    """Bring the gradient of the product to the flow, added to what is there if `keep`."""
    multiply(way.blas, page(way.gradient, t, way.flow), way.matrix, way.flow, keep)
    bring_back(way, t)


class LoopWalk(Walk):
    """The way of one share of the batch, a compiled loop for every chunk."""

    operator: InLoops

    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        """Make the steps of a chunk."""
        carried, memory = self.states_of(start, stop)
        scratch = self.scratch.numpy()
        self.step.loops[0](
            There(
                product_address(carried.dtype),
                scratch if self.operator.turned is None else self.operator.turned.numpy(),
                pages(projected),
                pages(carried),
                pages(memory),
                scratch,
                self._alive(start, stop),
            ),
            self.parameters,
            self.step.numbers,
        )

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        """Go back through a chunk; return the gradient of its projected input."""
        steps = stop - start
        read = self.states_of(start, stop)[0][:-1].flatten(0, 1)
        self.sums_again(chunk, x, read)
        gradient = self.product_gradient[:steps]
        projected_gradient = self.projected_gradient[:steps]
        reads = self.step.reads_product
        self.loop_back(
            start,
            stop,
            output_gradient,
            projected=self.projected[:steps] if reads else gradient,  # which nobody reads
            product=self.product[:steps] if reads else gradient,
            gradient=gradient,
            projected_gradient=projected_gradient,
        )
        self.add_linear(self.operator.gradients(read, gradient.flatten(0, 1)))
        return projected_gradient

    def loop_back(
        self,
        start: int,
        stop: int,
        output_gradient: Tensor,
        *,
        projected: Tensor,
        product: Tensor,
        gradient: Tensor,
        projected_gradient: Tensor,
    ) -> None:
        """Run the loop on the way back over a chunk."""
        carried, memory = self.states_of(start, stop)
        given = without_gaps(output_gradient[start:stop])
        flow, alive = self.flow.numpy(), self._alive(start, stop)
        memory_flow = flow if self.memory_flow is None else self.memory_flow.numpy()
        self.step.loops[1](
            Back(
                product_address(carried.dtype),
                flow if self.operator.matrix is None else self.operator.matrix.numpy(),
                pages(projected),
                pages(product),
                pages(carried),
                pages(memory),
                pages(given),
                flow,
                memory_flow,
                pages(gradient),
                pages(projected_gradient),
                alive,
                np.empty((len(alive), flow.shape[1]), flow.dtype),
                np.empty((len(alive), memory_flow.shape[1]), flow.dtype),
            ),
            self.parameters,
            self.gradient_arrays,
            self.step.numbers,
        )

    def states_of(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return carried and memory of a chunk; carried twice where there is no memory."""
        share = self.share
        carried = share.carried[start : stop + 1]
        return carried, carried if share.memory is None else share.memory[start : stop + 1]

    def _alive(self, start: int, stop: int) -> Any:
        """Return how many steps of a chunk each sequence lives; nothing where all live on."""
        lengths = self.share.lengths
        if lengths is None or int(lengths.min()) >= stop:
            return np.empty(0, np.int64)
        return (lengths - start).clamp(0, stop - start).long().numpy()
