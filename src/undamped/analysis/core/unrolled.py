"""A module as something that can be unrolled step by step: what the instruments read.

Our own networks and `torch.nn.RNN/LSTM/GRU` become a stack of layers, so that the state of every
layer at every step is a tensor of its own; a user's module that is called as
`(x, state) -> (y, state)` becomes one layer whose state is whatever it hands on. Everything else
has no state to look at and is read through its inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped.models.sequence_model import SequenceModel
from undamped.nn import Cell, Recurrent

State = tuple[Tensor, ...]


class Unrolled(ABC):
    """A network in one direction of time, made of layers whose states are visible."""

    layers: int
    output_is_state: bool = True
    """Whether the output of a step is a function of the states after it."""

    @abstractmethod
    def initial(self, batch: int, like: Tensor) -> list[State]:
        """Return the state of each layer before the first step."""

    @abstractmethod
    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Take (batch, input) and the states; return the output and the next states."""

    @abstractmethod
    def prepare(self) -> None:
        """Compute, without gradients, what is the same at every step."""


class UnrolledRecurrent(Unrolled):
    """One of our networks, layer by layer."""

    def __init__(self, network: Recurrent) -> None:
        self.network = network
        self.layers = network.num_layers
        self._constants: list[State] = []

    def prepare(self) -> None:
        """Compute each cell's constants once, instead of at every step."""
        with torch.no_grad():
            self._constants = [self.network.cell(layer).constants() for layer in range(self.layers)]

    def initial(self, batch: int, like: Tensor) -> list[State]:
        """Ask each cell for its first state."""
        return [self.network.cell(layer).initial_state(batch, like) for layer in range(self.layers)]

    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Advance every layer by one step."""
        network, outputs, following = self.network, [x], []
        for layer in range(self.layers):
            cell: Cell = network.cell(layer)
            below = network.cell_class.sources(layer + 1, network.cell_options)
            source = torch.cat([outputs[i] for i in below], dim=-1)
            advanced = cell.advance(cell.project(source), states[layer], self._constants[layer])
            state = separate(advanced)
            following.append(state)
            outputs.append(cell.output(state))
        return outputs[-1], following


class UnrolledTorch(Unrolled):
    """`torch.nn.RNN`, `LSTM` or `GRU` in one direction, with the library's own cells."""

    def __init__(self, network: nn.RNNBase) -> None:
        self.network = network
        self.layers = network.num_layers
        self._advance = {
            "LSTM": torch.lstm_cell,
            "GRU": torch.gru_cell,
            "RNN_TANH": torch.rnn_tanh_cell,
            "RNN_RELU": torch.rnn_relu_cell,
        }[network.mode]

    def prepare(self) -> None:
        """Nothing: the weights are used as they are."""

    def initial(self, batch: int, like: Tensor) -> list[State]:
        """Zeros, as the module itself starts."""
        net = self.network
        hidden = like.new_zeros(batch, net.proj_size or net.hidden_size)
        if net.mode != "LSTM":
            return [(hidden,)] * self.layers
        return [(hidden, like.new_zeros(batch, net.hidden_size))] * self.layers

    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Advance every layer by one step."""
        net, below, following = self.network, x, []
        for layer in range(self.layers):
            weights = [
                getattr(net, f"{kind}_l{layer}", None)
                for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            if net.mode == "LSTM":
                state = self._advance_lstm(below, states[layer], weights, layer)
            else:
                state = (self._advance(below, states[layer][0], *weights),)
            following.append(separate(state))
            below = following[-1][0]
        return below, following

    def _advance_lstm(self, x: Tensor, state: State, weights: list[Any], layer: int) -> State:
        if not self.network.proj_size:
            return self._advance(x, state, *weights)
        # The library's cell knows no projection of the hidden state.
        hidden, cell = state
        gates = nn.functional.linear(x, weights[0], weights[2])
        gates = gates + nn.functional.linear(hidden, weights[1], weights[3])
        enter, keep, new, leave = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(keep) * cell + torch.sigmoid(enter) * torch.tanh(new)
        hidden = torch.sigmoid(leave) * torch.tanh(cell)
        return hidden @ getattr(self.network, f"weight_hr_l{layer}").T, cell


class UnrolledModule(Unrolled):
    """Any module called as `(x, state) -> (y, state)`, one step at a time.

    What it does inside a step is not visible, so its state is one layer. Where its output is
    part of its state, as in most recurrent networks, the output is read from there; where it is
    not, it comes from the state before the step, and that is the state looked at.
    """

    layers = 1

    def __init__(
        self, module: nn.Module, batch_first: bool, wrapped: Any, output_part: int | None
    ) -> None:
        self.module = module
        self.axis = 1 if batch_first else 0
        self.output_is_state = output_part is not None
        self._wrapped = wrapped
        self._output_part = output_part

    def prepare(self) -> None:
        """Nothing is known about such a module."""

    def initial(self, batch: int, like: Tensor) -> list[State]:
        """Zeros in the shape of the first state the module returned."""
        return [tuple(torch.zeros_like(part) for part in _flatten(self._wrapped))]

    def step(self, x: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        """Call the module with a sequence of one step."""
        output, state = self.module(x.unsqueeze(self.axis), _restore(states[0], self._wrapped))
        parts = separate(_flatten(state))
        output = output.squeeze(self.axis)
        if self._output_part is not None:
            output = _like_output(parts[self._output_part], output)
        return output, [parts]


def separate(state: State) -> State:
    """Make the parts of a state independent of each other for automatic differentiation.

    An LSTM's h is computed from its c of the same step; the gradient of a state is the one with
    respect to both as coordinates of their own, so the path from c to h must not be counted.
    """
    return tuple(part.view_as(part) for part in state)


def unroll(module: nn.Module, x: Tensor, *, batch_first: bool = False) -> Unrolled | None:
    """Return the step-by-step form of a module, or None if it has no state to look at.

    Args:
        module: Any module.
        x: Its input, time first (time, batch, features).
        batch_first: Whether the module itself is to be called with the batch first.
    """
    if isinstance(module, Recurrent):
        return None if module.bidirectional else UnrolledRecurrent(module)
    if isinstance(module, nn.RNNBase):
        return None if module.bidirectional else UnrolledTorch(module)
    return _try_steps(module, x, batch_first)


def _try_steps(module: nn.Module, x: Tensor, batch_first: bool) -> Unrolled | None:
    """Find out by calling it whether a module hands a state from call to call."""
    first = x[:1].transpose(0, 1) if batch_first else x[:1]
    if first.is_floating_point():  # zeros would make everything look alike
        noise = torch.randn(first.shape, generator=torch.Generator().manual_seed(0))
        first = noise.to(first)
    try:
        with torch.no_grad():
            answer = module(first)
            if not _is_step(answer, first):
                return None
            again = module(first, answer[1])
    except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):
        return None
    if not _is_step(again, first):
        return None
    before, after = _flatten(answer[1]), _flatten(again[1])
    fits = [part.shape for part in before] == [part.shape for part in after]
    if not fits or not all(x.shape[1] in part.shape for part in before):
        return None
    outputs = [pair[0].squeeze(1 if batch_first else 0) for pair in (answer, again)]
    part = _output_part(outputs, [before, after])
    return UnrolledModule(module, batch_first, answer[1], part)


def _is_step(answer: Any, x: Tensor) -> bool:
    """Whether an answer is an output at every step together with a state made of tensors."""
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], Tensor)):
        return False
    return answer[0].shape[:2] == x.shape[:2] and bool(_flatten(answer[1]))


def _output_part(outputs: list[Tensor], states: list[State]) -> int | None:
    """Say which part of the state the output is, if it is one, in both of two steps."""
    for index in range(len(states[0])):
        pairs = [
            (_like_output(state[index], output), output)
            for state, output in zip(states, outputs, strict=True)
        ]
        if all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs):
            return index
    return None


def _like_output(part: Tensor, output: Tensor) -> Tensor:
    """Return a state, or its last layer if it has an axis of layers before the output's."""
    return part[-1] if part.dim() == output.dim() + 1 else part


def _flatten(state: Any) -> State:
    if isinstance(state, Tensor):
        return (state,)
    if isinstance(state, list | tuple):
        return tuple(part for item in state for part in _flatten(item))
    return ()


def _restore(parts: State, like: Any) -> Any:
    remaining = iter(parts)

    def build(item: Any) -> Any:
        if isinstance(item, Tensor):
            return next(remaining)
        return type(item)(build(part) for part in item)

    return build(like)


def network_inside(module: nn.Module, x: Tensor | Batch) -> tuple[nn.Module, Tensor]:
    """Return the recurrent network of a whole model and what it sees of the input, or of a batch.

    A module that is no model of ours sees the inputs of a batch.
    """
    if isinstance(module, SequenceModel):
        with torch.no_grad():
            return module.network, module.encode(x)
    return module, x.expanded().inputs if isinstance(x, Batch) else x


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Switch dropout and the like off for a while, and parameters to need no gradient."""
    was_training = [(part, part.training) for part in module.modules()]
    needed = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    module.eval()
    for parameter, _ in needed:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter, need in needed:
            parameter.requires_grad_(need)
        for part, training in was_training:
            part.training = training


@contextmanager
def without_fast_path() -> Iterator[None]:
    """Let a `nn.TransformerEncoder` do its work step by step, where it can be watched.

    Its fast path is one operation that neither hooks nor counters can look into.
    """
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
