"""The passes of compiled steps: with a dense product, and with a structured operator."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from undamped.kernels.coupled.contract import Activation, DenseOperator, StructuredOperator
from undamped.kernels.coupled.loop import BUFFER_ROWS, BackwardChunk, ForwardChunk
from undamped.kernels.coupled.passes import Pass
from undamped.kernels.shared.chunks import remaining_steps
from undamped.kernels.shared.gemm import product_address
from undamped.kernels.shared.pointers import contiguous_rows, strided


class CompiledPass(Pass):
    """The pass of one shard of the batch, a compiled loop for every chunk, products included."""

    operator: DenseOperator

    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        hidden_states, memory = self.states_of(start, stop)
        scratch = self.scratch.numpy()
        self.step.loops[0](
            ForwardChunk(
                product_address(hidden_states.dtype),
                scratch if self.operator.transposed is None else self.operator.transposed.numpy(),
                strided(projected),
                strided(hidden_states),
                strided(memory),
                scratch,
                np.empty((BUFFER_ROWS, hidden_states.shape[2]), scratch.dtype),
                remaining_steps(self.shard.lengths, start, stop),
            ),
            self.weights,
            self.step.constants,
        )

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        steps = stop - start
        read = self.states_of(start, stop)[0][:-1].flatten(0, 1)
        self.recompute_sums(chunk, x, read)
        gradient = self.product_gradient[:steps]
        projected_gradient = self.projected_gradient[:steps]
        reads = self.step.reads_product
        self.run_backward_loop(
            start,
            stop,
            output_gradient,
            projected=self.projected[:steps] if reads else gradient,  # a placeholder, not read
            product=self.product[:steps] if reads else gradient,
            gradient=gradient,
            projected_gradient=projected_gradient,
        )
        self.add_linear(self.operator.gradients(read, gradient.flatten(0, 1)))
        return projected_gradient

    def run_backward_loop(
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
        """Run the loop in the backward pass over a chunk."""
        hidden_states, memory = self.states_of(start, stop)
        outputs = contiguous_rows(output_gradient[start:stop])
        state_gradient = self.state_gradient.numpy()
        remaining = remaining_steps(self.shard.lengths, start, stop)
        memory_gradient = (
            state_gradient if self.memory_gradient is None else self.memory_gradient.numpy()
        )
        self.step.loops[1](
            BackwardChunk(
                product_address(hidden_states.dtype),
                state_gradient if self.operator.matrix is None else self.operator.matrix.numpy(),
                strided(projected),
                strided(product),
                strided(hidden_states),
                strided(memory),
                strided(outputs),
                state_gradient,
                memory_gradient,
                np.empty_like(state_gradient),
                strided(gradient),
                strided(projected_gradient),
                np.zeros((BUFFER_ROWS, hidden_states.shape[2]), state_gradient.dtype),
                np.empty_like(state_gradient),
                remaining,
                None if remaining is None else np.empty_like(state_gradient),
                None if remaining is None else np.empty_like(memory_gradient),
            ),
            self.weights,
            self.gradient_arrays,
            self.step.constants,
        )

    def states_of(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Return states and memory of a chunk; the states twice where there is no memory."""
        shard = self.shard
        hidden_states = shard.hidden_states[start : stop + 1]
        return hidden_states, hidden_states if shard.memory is None else shard.memory[
            start : stop + 1
        ]


class StructuredPass(Pass):
    """The pass of one shard through an activation; every time is a call from Python."""

    step: Activation
    operator: StructuredOperator

    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        step, operator, product = self.step, self.operator, self.scratch
        kernel, buffer = step.kernels[0], self._buffer()
        states = self.shard.hidden_states[start : stop + 1].unbind()
        for i, inputs in enumerate(projected.unbind()):
            new = states[i + 1]
            if step.in_place:
                product = new
            operator.apply(states[i], inputs, product)
            kernel(product.numpy(), new.numpy(), self.weights, step.constants, buffer)
            over = self._finished(start + i)
            if over is not None:
                new[over] = states[i][over]

    def backward_chunk(
        self, chunk: int, start: int, stop: int, x: Tensor, output_gradient: Tensor
    ) -> Tensor:
        kernel, operator, state_gradient = self.step.kernels[1], self.operator, self.state_gradient
        hidden_states, gradient = self.shard.hidden_states, self.product_gradient[: stop - start]
        states, results = hidden_states[start + 1 : stop + 1].unbind(), gradient.unbind()
        read = state_gradient[:, : output_gradient.shape[2]]
        outputs = output_gradient[start:stop].unbind()
        parts = self.weights, self.gradient_arrays, self.step.constants, self._buffer()
        for i in range(stop - start - 1, -1, -1):
            over = self._finished(start + i)
            waiting = None if over is None else state_gradient[over]
            if over is not None:
                state_gradient[over] = 0
            read += outputs[i] if over is None else outputs[i].index_fill(0, over, 0)
            kernel(states[i].numpy(), state_gradient.numpy(), results[i].numpy(), parts)
            operator.transpose(results[i], state_gradient)
            if waiting is not None:
                state_gradient[over] = waiting
        rows = gradient.flatten(0, 1)
        self.add_linear(operator.gradients(hidden_states[start:stop].flatten(0, 1), rows))
        return gradient

    def _buffer(self) -> Any:
        """Return rows that a kernel may write to."""
        hidden_states = self.shard.hidden_states
        return hidden_states.new_empty(BUFFER_ROWS, hidden_states.shape[2]).numpy()

    def _finished(self, t: int) -> Tensor | None:
        """Return which sequences have ended at time t; None if none has."""
        lengths = self.shard.lengths
        if lengths is None:
            return None
        rows = (lengths <= t).nonzero().squeeze(1)
        return rows if len(rows) else None
