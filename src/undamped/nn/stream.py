"""A snapshot of a network that processes one sample at a time."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped.kernels.shared.sample import fitting
from undamped.nn.bases.cell import State, States
from undamped.nn.sequence_tensors import join_features

if TYPE_CHECKING:
    from undamped.nn.recurrent import Recurrent


class Stream:
    """A snapshot of a network with its constants, and a state.

    Later changes of the network do not affect the stream. It has no gradients.

    Args:
        network: The network, with one direction; copied.
        states: The state of each layer, (batch, hidden) each.
    """

    @torch.no_grad()
    def __init__(self, network: Recurrent, states: States) -> None:
        frozen = copy.deepcopy(network).eval()
        cells = [frozen.cell(layer) for layer in range(frozen.num_layers)]
        self._layers = [
            (cell, cell._projector(), cell.constants(), frozen.layer_sources(layer))
            for layer, cell in enumerate(cells, start=1)
        ]
        self._states = [tuple(part.detach().clone() for part in state) for state in states]
        self._shape = torch.Size((len(states[0][0]), network.input_size))
        self._like = states[0][0].new_empty(0)

    @torch.no_grad()
    def push(self, x: Tensor) -> Tensor:
        """Process a sample (batch, input), or (input,) of a single stream; return its output."""
        if type(x) is not Tensor or x.dtype is not self._like.dtype:
            x = fitting(x, self._shape, self._like.dtype)
        single = x.dim() == 1
        sample = x.unsqueeze(0) if single else x
        if sample.shape != self._shape:
            fitting(x, self._shape, self._like.dtype)  # raises the error
        kind = self._like.device.type
        if torch.is_autocast_enabled(kind):  # the state of a long stream is not rounded
            with torch.autocast(kind, enabled=False):
                output = self._advance(sample)
        else:
            output = self._advance(sample)
        return output.squeeze(0) if single else output

    def _advance(self, sample: Tensor) -> Tensor:
        outputs, states = [sample], []
        for (cell, project, constants, sources), state in zip(
            self._layers, self._states, strict=True
        ):
            source = join_features([outputs[i] for i in sources])
            states.append(cell.advance(project(source), state, constants))
            outputs.append(cell.output(states[-1]))
        self._states = states
        return outputs[-1].clone()  # since it may be the state itself

    @property
    def state(self) -> Tensor | State:
        """A copy of the state, as a call of the network returns it."""
        joined = tuple(torch.stack(parts) for parts in zip(*self._states, strict=True))
        return joined[0] if len(joined) == 1 else joined
