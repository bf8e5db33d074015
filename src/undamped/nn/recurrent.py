"""Networks of any cell: layers, directions, lengths, dropout, states and streams.

A network is used like `torch.nn.LSTM`. Sequences are time first unless `batch_first`. With
`lengths`, inputs beyond the end of a sequence are set to zero first, so that padding may have any
value and changes neither outputs, final states nor gradients.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import PositiveInt
from undamped._base.torch_internals import own_parameters
from undamped.kernels.shared.call_checks import fitting
from undamped.nn.bases.block import Block
from undamped.nn.bases.cell import ScanResult, State, States
from undamped.nn.cell_stack import CellStack
from undamped.nn.in_chunks import run_in_chunks, should_chunk
from undamped.nn.sequence_tensors import (
    all_full,
    check_lengths,
    check_shape,
    check_type,
    in_full_precision,
    join_features,
    map_state,
    padding_mask,
    refuse_lengths,
    reverse_time,
)

if TYPE_CHECKING:
    from undamped.kernels import OscillatorStream


class Recurrent(CellStack):
    """A cell unrolled in time, built with the arguments of `CellStack`."""

    # Calls

    if TYPE_CHECKING:  # torch declares that a call returns Any

        @overload
        def __call__(
            self,
            input: Tensor,
            state: Tensor | State | None = None,
            lengths: Tensor | None = None,
            *,
            hx: Tensor | State | None = None,
        ) -> tuple[Tensor, Tensor | State]: ...
        @overload
        def __call__(
            self,
            input: PackedSequence,
            state: Tensor | State | None = None,
            *,
            hx: Tensor | State | None = None,
        ) -> tuple[PackedSequence, Tensor | State]: ...
        def __call__(self, *arguments: Any, **keywords: Any) -> Any: ...

    @in_full_precision
    def forward(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | State | None = None,
        lengths: Tensor | None = None,
        *,
        hx: Tensor | State | None = None,
    ) -> tuple[Tensor | PackedSequence, Tensor | State]:
        """Run over a sequence; return the outputs of the last layer and the final state.

        Args:
            input: (time, batch, input), (batch, time, input) with `batch_first`, (time, input)
                without a batch, or a `PackedSequence`.
            state: The state before the first step; the initial one by default.
            lengths: (batch,) the true length of each sequence; later steps are ignored.
            hx: The state, by its name in torch.nn.LSTM.
        """
        if hx is not None:
            if state is not None:
                raise OptionError(
                    f"{type(self).__name__} got both state and hx, which are the same argument."
                )
            state = hx
        if isinstance(input, PackedSequence):
            refuse_lengths(type(self).__name__, lengths)
            return self._forward_packed(input, state)
        x, state, unbatched = self._check_input(input, state)
        run = partial(self._run, lengths=check_lengths(lengths, x))
        output, final = self._call(run, x, state, unbatched, batch_dim=1)
        return output.transpose(0, 1) if self.batch_first and not unbatched else output, final

    @in_full_precision
    def last(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | State | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | State]:
        """Return only the output at each sequence's true end (batch, features), and the state.

        With two directions it is the forward output at the end and the backward output at the
        beginning, after each direction has read the whole sequence. A `PackedSequence` contains
        its lengths.
        """
        x, state, lengths, unbatched = self._check_sequence(input, state, lengths)
        return self._call(partial(self._last, lengths=lengths), x, state, unbatched)

    def _last(self, x: Tensor, states: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        if should_chunk(self, x):
            states = run_in_chunks(self, x, states, lengths, "last")[1]
        else:
            states = self._run(x, states, lengths, every=False)[1]
        top = self._all_cells()[-self.directions :]
        ends = zip(top, states[-self.directions :], strict=True)
        return torch.cat([cell.output(state) for cell, state in ends], dim=-1), states

    @in_full_precision
    def mean(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | State | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | State]:
        """Return the mean of the outputs over each true length (batch, features), and the state.

        Where a long sequence is processed in chunks, its outputs are not materialised.
        """
        x, state, lengths, unbatched = self._check_sequence(input, state, lengths)
        return self._call(partial(self._mean, lengths=lengths), x, state, unbatched)

    def _mean(self, x: Tensor, states: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        if should_chunk(self, x):
            total, states = run_in_chunks(self, x, states, lengths, "sum")
        else:
            output, states = self._run(x, states, lengths)
            total = output.sum(0)
        return total / (len(x) if lengths is None else lengths.to(total).unsqueeze(-1)), states

    @in_full_precision
    def step(self, x: Tensor, state: Tensor | State | None = None) -> tuple[Tensor, Tensor | State]:
        """Process one sample (batch, input) or (input,) of a stream; return output and state.

        Dropout is never applied, since its mask belongs to a whole sequence.
        """
        self._refuse_two_directions("step")
        if isinstance(x, PackedSequence):
            raise ShapeError(
                f"{type(self).__name__}.step takes one sample (batch, input) or (input,), got a "
                "PackedSequence. Call the network itself, which takes whole sequences."
            )
        x, state, unbatched = self._check_input(x.unsqueeze(0), state, stream=True)
        return self._call(self._step, x, state, unbatched)

    def _step(self, x: Tensor, states: States) -> tuple[Tensor, States]:
        outputs, finals = [x[0]], []
        for layer, cell in enumerate(self._all_cells()):  # one direction, so one cell per layer
            source = join_features([outputs[i] for i in self.layer_sources(layer + 1)])
            finals.append(cell._step(source, states[layer]))
            outputs.append(cell.output(finals[-1]))
        return outputs[-1], finals

    def _call(
        self,
        run: Callable[[Tensor, States], tuple[Tensor, States]],
        x: Tensor,
        state: Tensor | State | None,
        unbatched: bool,
        batch_dim: int = 0,
    ) -> tuple[Tensor, Tensor | State]:
        """Call a function of input and states; return its output and the final state.

        Args:
            run: From (time, batch, input) and the state of every cell to an output and states.
            x: The checked input, (time, batch, input). For an empty batch, the function is called
                with a sequence of zeros, and its results are cut.
            state: The checked state before the first step, or None.
            unbatched: Whether the batch dimension of the results is removed.
            batch_dim: The batch dimension of the output.
        """
        states, empty = self._split_state(state, x), not x.shape[1]
        if empty:
            x = x.new_zeros(x.shape[0], 1, x.shape[2])
            states = self._split_state(None, x)
        output, states = run(x, states)
        final = self._join_states(states)
        if empty:
            return output.narrow(batch_dim, 0, 0), map_state(final, lambda part: part[:, :0])
        if unbatched:
            return output.squeeze(batch_dim), map_state(final, lambda part: part.squeeze(1))
        return output, final

    def stream(
        self, state: Tensor | State | None = None, *, batch: PositiveInt = 1
    ) -> Stream | OscillatorStream:
        """Return an object whose `push` processes one sample at a time, without gradients.

        It is a snapshot: later changes of the network do not affect it. It computes every constant
        once and checks nothing, so that it is faster than `step` in a loop.

        Args:
            state: The state to continue from, as a call returned it; the initial one by default.
            batch: The number of parallel streams, if no state is given.

        Example:
            >>> stream = net.stream()
            >>> outputs = [stream.push(x_t) for x_t in samples]
        """
        self._refuse_two_directions("stream")
        if state is not None and (state if isinstance(state, Tensor) else state[0]).dim() == 2:
            state = map_state(state, lambda part: part.unsqueeze(1))
        first = state if state is None or isinstance(state, Tensor) else state[0]
        size = batch if first is None else first.shape[1]
        like = next(self.parameters()).new_empty(1, size, 1)
        return self._make_stream(self._split_state(state, like))

    def _make_stream(self, states: States) -> Stream | OscillatorStream:
        return Stream(self, states)

    def _run(
        self, x: Tensor, states: States, lengths: Tensor | None, *, every: bool = True
    ) -> tuple[Tensor, States]:
        """Run all layers over (time, batch, input); return the top outputs and all states.

        Without `every` the outputs are not used: a network with a kernel may leave them out.
        """
        if should_chunk(self, x):
            return run_in_chunks(self, x, states, lengths, "every")
        if lengths is not None:
            x = x.masked_fill(padding_mask(x, lengths), 0)
        return self._run_layers(x, states, lengths, self._draw_masks(x), every)

    def _run_layers(
        self, x: Tensor, states: States, lengths: Tensor | None, masks: States, every: bool = True
    ) -> tuple[Tensor, States]:
        """Run the layers one after the other over x."""
        outputs, finals, blocks = [x], [], self.block != "none"
        for layer in range(self.num_layers):
            source = join_features([outputs[i] for i in self.layer_sources(layer + 1)])
            needed = every or layer < self.num_layers - 1
            both = []
            for direction in range(self.directions):
                at = layer * self.directions + direction
                directed = reverse_time(source, lengths) if direction else source
                mask = masks[at] if blocks else ()
                output, final = self._scan(at, directed, states[at], lengths, mask, needed)
                both.append(reverse_time(output, lengths) if direction else output)
                finals.append(final)
            output = join_features(both)
            if not blocks and masks[layer]:
                output = output * masks[layer][0]
            outputs.append(output)
        return outputs[-1], finals

    def _scan(
        self, at: int, x: Tensor, state: State, lengths: Tensor | None, masks: State, needed: bool
    ) -> ScanResult:
        """Scan x with one cell; a kernel may leave out outputs that are not needed."""
        cell = self._all_cells()[at]
        if isinstance(cell, Block):
            return cell.scan_with(x, state, lengths, masks)
        return cell.scan(x, state, lengths)

    def _draw_masks(self, x: Tensor) -> States:
        """Draw the dropout masks of a pass: of each block, or after each layer but the last."""
        if self.block != "none":
            blocks = [cell for cell in self.cells if isinstance(cell, Block)]
            return [block.draw_masks(x.shape[1], x) for block in blocks]
        masks: States = [()] * self.num_layers
        if self.dropout and self.training:
            for layer in range(self.num_layers - 1):
                width = self.directions * self.cell(layer).output_size
                masks[layer] = (self._dropout_mask(x.new_empty(1, x.shape[1], width)),)
        return masks

    def _dropout_mask(self, like: Tensor) -> Tensor:
        p = 1.0 - self.dropout
        return like.new_empty((1, *like.shape[1:])).bernoulli_(p).div_(p)

    def _forward_packed(
        self, packed: PackedSequence, state: Tensor | State | None
    ) -> tuple[PackedSequence, Tensor | State]:
        # The batch is restored to its original order, as are states, and the output is
        # packed in the order of the input, as torch.nn.LSTM does.
        x, lengths = pad_packed_sequence(packed)
        states = self._split_state(state, x)
        lengths = lengths.to(x.device)
        output, finals = self._run(x, states, None if all_full(lengths, x) else lengths)
        order = packed.sorted_indices
        if order is not None:
            output, lengths = output.index_select(1, order), lengths[order]
        data = pack_padded_sequence(output, lengths.cpu(), enforce_sorted=True).data
        result = PackedSequence(data, packed.batch_sizes, order, packed.unsorted_indices)
        return result, self._join_states(finals)

    # Checks

    def _refuse_two_directions(self, method: str) -> None:
        if self.bidirectional:
            raise OptionError(
                f"{type(self).__name__}.{method} needs a network with one direction. Build it with "
                "bidirectional=False."
            )

    def _check_sequence(
        self, input: Tensor | PackedSequence, state: Tensor | State | None, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor | State | None, Tensor | None, bool]:
        """Return the input as (time, batch, input), state, lengths, and whether it had no batch."""
        if isinstance(input, PackedSequence):
            refuse_lengths(type(self).__name__, lengths)
            input, lengths = pad_packed_sequence(input, batch_first=self.batch_first)
        x, state, unbatched = self._check_input(input, state)
        return x, state, check_lengths(lengths, x), unbatched

    def _check_input(
        self, x: Tensor, state: Tensor | State | None, stream: bool = False
    ) -> tuple[Tensor, Tensor | State | None, bool]:
        first = self.cell(0)
        weight = next(iter(own_parameters(first).values()), None)  # at once, for steps of a stream
        if weight is None:
            weight = next(first.parameters(), None)
        name = type(self).__name__
        if weight is not None:
            check_type(name, x, weight, self.cell_class.needs_full_precision)
        check_shape(name, x, self.input_size, self.batch_first, stream)
        unbatched = x.dim() == 2
        if unbatched:
            x = x.unsqueeze(1)
            state = map_state(state, lambda part: part.unsqueeze(1))
        elif self.batch_first and not stream:
            x = x.transpose(0, 1)
        return x, state, unbatched


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
            (cell, cell._stepper(), frozen.layer_sources(layer))
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
        for (cell, step, sources), state in zip(self._layers, self._states, strict=True):
            source = join_features([outputs[i] for i in sources])
            states.append(step(source, state))
            outputs.append(cell.output(states[-1]))
        self._states = states
        return outputs[-1].clone()  # since it may be the state itself

    @property
    def state(self) -> Tensor | State:
        """A copy of the state, as a call of the network returns it."""
        joined = tuple(torch.stack(parts) for parts in zip(*self._states, strict=True))
        return joined[0] if len(joined) == 1 else joined
