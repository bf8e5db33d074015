"""A stack of oscillators for one sample at a time, with prepared parameters and buffers.

The arithmetic is the forward pass of `stack` for a chunk of one step: the same products and the
same kernel, so that a stream has the same bits as a whole sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.kernels.shared.allocate import contiguous_copy
from undamped.kernels.shared.call_checks import fitting
from undamped.kernels.shared.columns import Columns, sequence_table
from undamped.kernels.shared.row_stable_matmul import rounded_up
from undamped.kernels.unicornn.stack import Layer


def _transposed_blocks(layer: Layer) -> list[tuple[int, Tensor]]:
    """Return each source of a layer with a copy of its part of the input matrix, (size, hidden)."""
    return [(source, contiguous_copy(block).t()) for source, block in layer.blocks()]


class PreparedStack:
    """Parameters of a stack in the layout for single steps, without state.

    Parameters are copied at creation. Several threads may use one at the same time. Args: layers:
    Parameters and connections of each layer.
    """

    def __init__(self, layers: list[Layer]) -> None:
        self._layers = [(_transposed_blocks(layer), layer.constants()) for layer in layers]

    @torch.no_grad()
    def advance(self, x: Tensor, position: Tensor, velocity: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step.

        Args:
            x: (batch, input).
            position: (layers, batch, hidden).
            velocity: (layers, batch, hidden).

        Returns:
            The new positions and velocities; the last position is the output.
        """
        batch, columns = x.shape[0], Columns()
        kernel = columns.kernels("unicornn")["forward"]
        inputs = x.detach()
        if batch != rounded_up(batch):
            inputs = x.new_zeros(rounded_up(batch), x.shape[1])
            inputs[:batch] = x
        outputs = [inputs]
        state = torch.stack([position.detach(), velocity.detach()], dim=1)
        for at, (blocks, constants) in enumerate(self._layers):
            source, block = blocks[0]
            into = torch.mm(outputs[source], block)
            for source, block in blocks[1:]:
                into.add_(torch.mm(outputs[source], block))
            columns.run(kernel, [into[:batch].unsqueeze(0)], constants, state[at])
            outputs.append(into)
        return state[:, 0].contiguous(), state[:, 1].contiguous()


class OscillatorStream:
    """The state of a stack and the buffers for one step.

    Parameters are copied at creation. A stream has no gradient. Args: layers: Parameters and
    connections of each layer. position: (layers, batch, hidden), copied. velocity: (layers, batch,
    hidden), copied.
    """

    def __init__(self, layers: list[Layer], position: Tensor, velocity: Tensor) -> None:
        count, batch, hidden = position.shape
        self._inputs = next(c.sizes[0] for c in layers if c.sources[0] == 0)
        # Outputs of the network's input and of each layer, with spare rows (`row_stable_matmul`).
        like, rows = position.detach(), rounded_up(batch)
        widths = [self._inputs, *[hidden] * count]
        self._outputs = [like.new_zeros(rows, width) for width in widths]
        self._kernel = Columns().kernels("unicornn")["forward"]
        columns = batch * hidden
        # The values of a column scan: constants, position and velocity of every layer.
        constants = [layer.constants().repeat(1, batch) for layer in layers]
        state = torch.stack([like, velocity.detach()], dim=1).view(count, 2, columns)
        self._values = torch.cat([torch.stack(constants), state], dim=1)
        self._layers: list[tuple[list[tuple[Tensor, Tensor]], Tensor, tuple[Any, ...]]] = []
        for into, layer, values in zip(self._outputs[1:], layers, self._values, strict=True):
            blocks = [(self._outputs[i], block) for i, block in _transposed_blocks(layer)]
            table = sequence_table([into[:batch].unsqueeze(0)], columns)
            arguments = (table, values.numpy(), np.ones(1, np.int64), 1, 0, columns)
            self._layers.append((blocks, into, arguments))
        self._input = self._outputs[0][:batch]
        self._output = self._outputs[-1][:batch]
        self._sample_shape, self._dtype = self._input.shape, self._input.dtype
        self._single_shape = self._input.shape[1:] if batch == 1 else None
        if batch:
            self._first_input, self._first_output = self._input[0], self._output[0]

    def push(self, x: Tensor) -> Tensor:
        """Advance by a sample (batch, input), or (input,) of a single stream; return its output."""
        # Everything is prepared in the constructor: a step takes microseconds.
        if type(x) is not Tensor or x.requires_grad or x.dtype is not self._dtype:
            x = fitting(x, self._sample_shape, self._dtype).detach()
        single = x.shape == self._single_shape
        if single:
            self._first_input.copy_(x)
        elif x.shape == self._sample_shape:
            self._input.copy_(x)
        else:
            fitting(x, self._sample_shape, self._dtype)  # raises an error that names the mismatch
        kernel = self._kernel
        for blocks, into, arguments in self._layers:
            source, block = blocks[0]
            torch.mm(source, block, out=into)
            for source, block in blocks[1:]:
                into.add_(torch.mm(source, block))
            kernel(*arguments)
        return self._first_output.clone() if single else self._output.clone()

    @property
    def state(self) -> tuple[Tensor, Tensor]:
        """A copy of position and velocity, (layers, batch, hidden) each."""
        position, velocity = (
            self._values[:, -2:].view(len(self._values), 2, *self._output.shape).unbind(1)
        )
        return position.clone(), velocity.clone()
