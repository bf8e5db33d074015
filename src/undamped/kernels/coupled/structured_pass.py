"""The pass with a structured operator: no matrix, so every time is a call from Python."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from undamped.kernels.coupled.contract import Activation, StructuredOperator
from undamped.kernels.coupled.loop import BUFFER_ROWS
from undamped.kernels.coupled.passes import Pass


class StructuredPass(Pass):
    """The pass of one shard through an activation, one application of the operator a step."""

    step: Activation
    operator: StructuredOperator

    def forward_chunk(self, start: int, stop: int, projected: Tensor) -> None:
        """Make the steps of a chunk."""
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
        """Go back through a chunk; return the gradient of its projected input."""
        kernel, operator, state_gradient = self.step.kernels[1], self.operator, self.state_gradient
        hidden_states, gradient = self.shard.hidden_states, self.product_gradient[: stop - start]
        states, results = hidden_states[start + 1 : stop + 1].unbind(), gradient.unbind()
        read = state_gradient[:, : output_gradient.shape[2]]
        outputs = output_gradient[start:stop].unbind()
        weights = self.weights, self.gradient_arrays, self.step.constants, self._buffer()
        for i in range(stop - start - 1, -1, -1):
            over = self._finished(start + i)
            waiting = None if over is None else state_gradient[over]
            if over is not None:
                state_gradient[over] = 0
            read += outputs[i] if over is None else outputs[i].index_fill(0, over, 0)
            kernel(states[i].numpy(), state_gradient.numpy(), results[i].numpy(), *weights)
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
        """Return which sequences are over at time t; None if all run."""
        lengths = self.shard.lengths
        if lengths is None:
            return None
        rows = (lengths <= t).nonzero().squeeze(1)
        return rows if len(rows) else None
