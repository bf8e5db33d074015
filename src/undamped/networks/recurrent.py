"""Any cell as a network: layers, directions, lengths, dropout, state in and out, streams.

The network is used like `torch.nn.LSTM`. Sequences are time first unless `batch_first`; a state
is one tensor or a tuple of tensors (layers × directions, batch, hidden). Where `lengths` are
given, what lies beyond a sequence's end is cut to zero before anything sees it, so padding can
be anything at all and changes neither outputs, final states nor gradients.
"""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from undamped.cells.bases.block import Block, BlockKind
from undamped.cells.bases.cell import Cell, State
from undamped.cells.bases.penalised import Penalised
from undamped.docstrings import documented_arguments
from undamped.errors import OptionError, ShapeError, explain
from undamped.memory import refuse_beyond_memory
from undamped.networks.call_checks import (
    check_lengths,
    check_shape,
    check_state,
    check_type,
    refuse_lengths,
    refuse_packed,
)
from undamped.networks.full_precision import in_full_precision
from undamped.networks.in_chunks import run_in_chunks, worth_it
from undamped.networks.sequence_tensors import (
    all_full,
    join_features,
    map_state,
    padding_mask,
    reverse_time,
)
from undamped.networks.stream import Stream
from undamped.options import (
    DropoutRate,
    Layers,
    NonNegativeFloat,
    Option,
    PositiveInt,
    Units,
    check,
    options_of,
)
from undamped.parametrizations.singular_band import orthogonality_penalty
from undamped.torch_internals import own_parameters

if TYPE_CHECKING:
    from undamped.kernels import OscillatorStream


class Recurrent(Penalised):
    """A cell unrolled in time.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units of each layer.
        num_layers: Number of layers.
        batch_first: Whether inputs and outputs are (batch, time, features).
        dropout: Probability of dropping a unit between layers; one mask per sequence.
        bidirectional: Whether a second set of cells reads the sequence from its end.
        orthogonality_penalty: The number λ in a penalty λ‖WᵀW − I‖² that training adds, for
            networks with free matrices W that read the state.
        block: What stands around each layer, for layers of independent units: nothing, or the
            block of the state-space literature, x + glu(gelu(layer(norm(x)))) over a linear
            encoder of the input. Layer normalisation streams; batch normalisation is the papers',
            with statistics that are fixed in evaluation. Dropout then lies inside the block.
        device: Where the parameters live.
        dtype: The floating-point type of the parameters.
        cell_options: The options of the cell.
    """

    cell_class: ClassVar[type[Cell]]
    oscillates: ClassVar[bool] = False
    """Whether the step `dt` and the pull `alpha` are those of undamped oscillators."""

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: Units,
        num_layers: Layers = 1,
        *,
        batch_first: bool = False,
        dropout: DropoutRate = 0.0,
        bidirectional: bool = False,
        orthogonality_penalty: NonNegativeFloat = 0.0,
        block: BlockKind = "none",
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        **cell_options: Any,
    ) -> None:
        super().__init__()
        given = {
            "input_size": input_size,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "batch_first": batch_first,
            "dropout": dropout,
            "bidirectional": bidirectional,
            **cell_options,
        }
        if self.cell_class.dense or orthogonality_penalty:
            given["orthogonality_penalty"] = orthogonality_penalty
        if self.cell_class.independent_units or block != "none":
            given["block"] = block
        chosen = check(type(self).__name__, type(self), given)
        self.input_size: int = chosen.pop("input_size")
        self.hidden_size: int = chosen.pop("hidden_size")
        self.num_layers: int = chosen.pop("num_layers")
        self.batch_first: bool = chosen.pop("batch_first")
        self.dropout: float = chosen.pop("dropout")
        self.bidirectional: bool = chosen.pop("bidirectional")
        self.orthogonality_penalty: float = chosen.pop("orthogonality_penalty", 0.0)
        self.block: BlockKind = chosen.pop("block", "none")
        self.cell_options: dict[str, Any] = chosen
        if self.dropout and self.num_layers == 1 and self.block == "none":
            warnings.warn(
                explain(
                    f"{type(self).__name__}.dropout",
                    expected="0 with one layer, since dropout lies between layers",
                    got=self.dropout,
                    remedy="Nothing is dropped; set num_layers to 2 or more, or dropout to 0.",
                ),
                stacklevel=2,
            )
        if dtype is not None and not dtype.is_floating_point:
            raise OptionError(
                explain(
                    f"{type(self).__name__}.dtype",
                    expected="a floating-point type",
                    got=dtype,
                    remedy="Use torch.float32 or torch.float64.",
                )
            )
        self.directions = 2 if self.bidirectional else 1
        self.cells = nn.ModuleList(self._build_cells())
        if self.orthogonality_penalty:
            self.watch()
        if device is not None or dtype is not None:
            self.to(device=device, dtype=dtype)

    def _build_cells(self) -> list[Cell]:
        widths, cells = [self.input_size], []
        for layer in range(1, self.num_layers + 1):
            options = self.cell_class.layer_options(self.cell_options, layer, self.num_layers)
            sizes = tuple(widths[source] for source in self.layer_sources(layer))
            for _ in range(self.directions):
                cells.append(self._build_cell(sizes, options, layer == 1))
            widths.append(self.directions * cells[-1].output_size)
            if layer == 2:  # the later layers are at least as large
                weights = [p for cell in cells[-self.directions :] for p in cell.parameters()]
                size = sum(p.nbytes for p in weights if p.device.type == "cpu")
                what = f"{type(self).__name__} with {self.num_layers:,} layers"
                refuse_beyond_memory(size * self.num_layers, what)
        return cells

    def _build_cell(self, sizes: tuple[int, ...], options: dict[str, Any], first: bool) -> Cell:
        """Draw one cell, on the default device.

        Where that is `meta` it is drawn on the CPU first, one cell at a time: starts such as an
        orthogonal matrix look at numbers.
        """
        device = torch.get_default_device()
        if device.type == "meta":
            with torch.device("cpu"):
                return self._build_cell(sizes, options, first).to(device)
        if self.block != "none":
            inside = self.cell_class(self.hidden_size, self.hidden_size, **options)
            return Block(inside, sum(sizes), norm=self.block, dropout=self.dropout, first=first)
        cell = self.cell_class(sum(sizes), self.hidden_size, **options)
        if len(sizes) > 1:
            cell.draw_sources(sizes)
        return cell

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return the options of the network and of its cell, as one list."""
        own = _signature_options(Recurrent)
        for name in ("cell_options", "device", "dtype"):  # which no run writes down
            own.pop(name)
        if not cls.cell_class.dense:
            own.pop("orthogonality_penalty")
        if not cls.cell_class.independent_units:
            own.pop("block")
        cell = options_of(cls.cell_class)
        return {**own, **{name: option for name, option in cell.items() if name not in own}}

    def layer_sources(self, layer: int) -> tuple[int, ...]:
        """Say which layers feed layer `layer` (1, 2, …); 0 is the input of the network."""
        return self.cell_class.sources(layer, self.cell_options)

    def cell(self, layer: int, direction: int = 0) -> Cell:
        """Return the cell of layer 0, 1, … in direction 0 (forward) or 1 (backward)."""
        found = self.cells[layer * self.directions + direction]
        assert isinstance(found, Cell)
        return found

    @property
    def output_size(self) -> int:
        """Number of features of the output at each step."""
        return self.directions * self.cell(self.num_layers - 1).output_size

    def extra_repr(self) -> str:
        """Name the sizes, and every option that is not at its default, in the printed form."""
        shown = [f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"]
        for name, option in type(self).declared_options().items():
            if name not in ("input_size", "hidden_size", "num_layers"):
                value = self.cell_options.get(name, vars(self).get(name, option.default))
                if value != option.default:
                    shown.append(f"{name}={value!r}")
        return ", ".join(shown)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Draw all parameters anew, as a new network would; they stay the same tensors."""
        for cell, fresh in zip(self.cells, self._build_cells(), strict=True):
            drawn = {**dict(fresh.named_parameters()), **dict(fresh.named_buffers())}
            for name, tensor in (*cell.named_parameters(), *cell.named_buffers()):
                tensor.copy_(drawn[name])

    def flatten_parameters(self) -> None:
        """Do nothing: parameters have no gaps here. For programs written for torch.nn.LSTM."""

    def wanted_penalty(self) -> str:
        """The number λ."""
        weight = self.orthogonality_penalty
        return f"orthogonality_penalty={weight:g}" if weight else ""

    def penalty_value(self) -> Tensor:
        """λ‖WᵀW − I‖² over all free matrices W that read the state."""
        total = next(self.parameters()).new_zeros(())
        if self.orthogonality_penalty:
            for cell in self._all_cells():
                for matrix in cell.recurrent_matrices():
                    total = total + orthogonality_penalty(matrix)
        return self.orthogonality_penalty * total

    # State: outside (layers × directions, batch, hidden), one tensor or a tuple; inside one
    # tuple per cell.

    def initial_state(self, batch: int) -> Tensor | State:
        """Return the state from which a sequence starts when none is given."""
        like = next(self.parameters())
        return self._join_states([c.initial_state(batch, like) for c in self._all_cells()])

    def restart(self, state: Tensor | State, ended: Tensor) -> Tensor | State:
        """Return a state in which some samples begin anew, as agents do after an episode.

        Args:
            state: As a call returned it.
            ended: (batch,), true for the samples that begin anew.

        Example:
            >>> state = net.restart(state, torch.tensor([False, True]))
        """
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        batch, dtype = parts[0].shape[1], parts[0].dtype
        parts = self._state_parts(state, batch, dtype)
        if ended.shape != (batch,):
            raise ShapeError(
                explain(
                    f"{type(self).__name__}.restart: ended",
                    expected=f"({batch},), one entry for every sample",
                    got=tuple(ended.shape),
                    remedy="Say for each sample whether it begins anew.",
                )
            )
        where = (ended != 0).view(1, -1, 1)
        first = self.initial_state(batch)
        begins = (first,) if isinstance(first, Tensor) else first
        fresh = tuple(
            # A part that grows has nothing in it at the beginning, and zero means empty.
            torch.where(where, begin.to(part) if begin.shape == part.shape else 0, part)
            for part, begin in zip(parts, begins, strict=True)
        )
        joined = self.cell(0).trimmed(fresh)
        return joined[0] if len(joined) == 1 else joined

    def _all_cells(self) -> list[Cell]:
        return [
            self.cell(layer, direction)
            for layer in range(self.num_layers)
            for direction in range(self.directions)
        ]

    def _join_states(self, states: list[State]) -> Tensor | State:
        joined = tuple(torch.stack(parts) for parts in zip(*states, strict=True))
        return joined[0] if len(joined) == 1 else joined

    def _split_state(self, state: Tensor | State | None, x: Tensor) -> list[State]:
        batch = x.shape[1]
        if state is None:
            return [c.initial_state(batch, x) for c in self._all_cells()]
        parts = self._state_parts(state, batch, x.dtype)
        return [tuple(part[i] for part in parts) for i in range(len(self.cells))]

    def _state_parts(self, state: Tensor | State, batch: int, dtype: torch.dtype) -> State:
        """Return each part of a state as it is, once shape and type are known to be right."""
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        check_state(type(self).__name__, parts, self.cell(0), (len(self.cells), batch), dtype)
        return parts

    # Calls

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
            state: The state before the first step; zeros if none is given.
            lengths: (batch,) the true length of each sequence; what lies beyond is ignored.
            hx: The state, by the name that torch.nn.LSTM has for it.
        """
        if hx is not None:
            if state is not None:
                raise OptionError(
                    f"{type(self).__name__}: expected state or hx, which are the same, got both. "
                    "Leave one out."
                )
            state = hx
        if isinstance(input, PackedSequence):
            refuse_lengths(type(self).__name__, lengths)
            return self._forward_packed(input, state)
        x, state, unbatched = self._check_input(input, state)
        lengths = check_lengths(lengths, x)
        if not x.shape[1]:
            return self._answer_to_nobody(self.forward, x, state)
        output, states = self._run(x, self._split_state(state, x), lengths)
        final = self._join_states(states)
        if unbatched:
            return output.squeeze(1), map_state(final, lambda part: part.squeeze(1))
        return output.transpose(0, 1) if self.batch_first else output, final

    @in_full_precision
    def last(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | State | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | State]:
        """Return only the output at each sequence's true end (batch, features), and the state.

        With two directions it holds the forward output at the end and the backward output at
        the beginning: what each direction knows after having read everything. A `PackedSequence`
        says its lengths itself.
        """
        x, state, lengths, unbatched = self._check_sequence(input, state, lengths)
        if not x.shape[1]:
            return self._answer_to_nobody(self.last, x, state)
        states = self._run_to_end(x, self._split_state(state, x), lengths)
        top = self.num_layers - 1
        ends = [
            self.cell(top, d).output(states[top * self.directions + d])
            for d in range(self.directions)
        ]
        output, final = torch.cat(ends, dim=-1), self._join_states(states)
        if unbatched:
            return output.squeeze(0), map_state(final, lambda part: part.squeeze(1))
        return output, final

    @in_full_precision
    def mean(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | State | None = None,
        lengths: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | State]:
        """Return the mean of the outputs over each true length (batch, features), and the state.

        Where a long sequence is gone through in chunks, its outputs are never there all at once.
        """
        x, state, lengths, unbatched = self._check_sequence(input, state, lengths)
        if not x.shape[1]:
            return self._answer_to_nobody(self.mean, x, state)
        states = self._split_state(state, x)
        if worth_it(self, x):
            total, states = run_in_chunks(self, x, states, lengths, "sum")
        else:
            output, states = self._run(x, states, lengths)
            total = output.sum(0)
        mean = total / (x.shape[0] if lengths is None else lengths.to(total).unsqueeze(-1))
        final = self._join_states(states)
        if unbatched:
            return mean.squeeze(0), map_state(final, lambda part: part.squeeze(1))
        return mean, final

    @in_full_precision
    def step(self, x: Tensor, state: Tensor | State | None = None) -> tuple[Tensor, Tensor | State]:
        """Take one sample (batch, input) or (input,) of a stream; return output and state.

        Dropout is never applied: its mask belongs to a whole sequence, a stream has no end.
        """
        if self.bidirectional:
            raise OptionError(
                f"{type(self).__name__}.step: expected a network with one direction, got a "
                "bidirectional one. A stream has no end to start from; build it with "
                "bidirectional=False."
            )
        refuse_packed(type(self).__name__, x)
        x, state, unbatched = self._check_input(x.unsqueeze(0), state, stream=True)
        if not x.shape[1]:
            return self._answer_to_nobody(self.step, x, state)
        states = self._split_state(state, x)
        outputs, finals = [x[0]], []
        for layer, cell in enumerate(self.cells):  # one direction, so one cell per layer
            assert isinstance(cell, Cell)
            source = join_features([outputs[i] for i in self.layer_sources(layer + 1)])
            constants = cell.steady_constants()
            final = cell.advance(cell.project(source), states[layer], constants)
            finals.append(final)
            outputs.append(cell.output(final))
        output, joined = outputs[-1], self._join_states(finals)
        if unbatched:
            return output.squeeze(0), map_state(joined, lambda part: part.squeeze(1))
        return output, joined

    def _answer_to_nobody(self, call: Any, x: Tensor, state: Tensor | State | None) -> Any:
        """Answer an empty batch (time, 0, input): as to one sequence of zeros, which is cut off."""
        if state is not None:
            self._split_state(state, x)  # which says what is wrong
        one = x.new_zeros(x.shape[0], 1, x.shape[2])
        if call == self.step:
            output, final = call(one[0])
            return output[:0], map_state(final, lambda part: part[:, :0])
        output, final = call(one.transpose(0, 1) if self.batch_first else one)
        batch_at = 0 if call in (self.last, self.mean) or self.batch_first else 1
        return output.narrow(batch_at, 0, 0), map_state(final, lambda part: part[:, :0])

    def stream(
        self, state: Tensor | State | None = None, *, batch: PositiveInt = 1
    ) -> Stream | OscillatorStream:
        """Return an object that is fed samples one at a time by `push`, without gradients.

        It is a snapshot: the network may be trained, moved or loaded afterwards, the stream goes
        on with the parameters of the moment of its creation. So it checks nothing and computes
        every constant once, and is faster than `step` in a loop.

        Args:
            state: The state to go on from, as a call returned it; the initial one if none is given.
            batch: How many streams run side by side; a given state says so itself.

        Example:
            >>> stream = net.stream()
            >>> outputs = [stream.push(x_t) for x_t in samples]
        """
        if self.bidirectional:
            raise OptionError(
                explain(
                    f"{type(self).__name__}.stream",
                    expected="a network with one direction",
                    got="bidirectional=True",
                    remedy="A stream has no end to start from; build it with bidirectional=False.",
                )
            )
        if state is not None and (state if isinstance(state, Tensor) else state[0]).dim() == 2:
            state = map_state(state, lambda part: part.unsqueeze(1))
        first = state if state is None or isinstance(state, Tensor) else state[0]
        size = batch if first is None else first.shape[1]
        like = next(self.parameters()).new_empty(1, size, 1)
        return self._make_stream(self._split_state(state, like))

    def _make_stream(self, states: list[State]) -> Stream | OscillatorStream:
        return Stream(self, states)

    def _run(
        self, x: Tensor, states: list[State], lengths: Tensor | None
    ) -> tuple[Tensor, list[State]]:
        """Run all layers over (time, batch, input); return the top outputs and all states."""
        if worth_it(self, x):
            return run_in_chunks(self, x, states, lengths, "every")
        if lengths is not None:
            x = x.masked_fill(padding_mask(x, lengths), 0)
        return self._run_layers(x, states, lengths, self._draw_masks(x))

    def _run_layers(
        self, x: Tensor, states: list[State], lengths: Tensor | None, masks: list[State]
    ) -> tuple[Tensor, list[State]]:
        """Run one layer after the other over the whole of x."""
        outputs, finals = [x], []
        for layer in range(self.num_layers):
            source = join_features([outputs[i] for i in self.layer_sources(layer + 1)])
            both = []
            for direction in range(self.directions):
                cell = self.cell(layer, direction)
                at = layer * self.directions + direction
                turned = reverse_time(source, lengths) if direction else source
                if isinstance(cell, Block):
                    output, final = cell.scan_with(turned, states[at], lengths, masks[at])
                else:
                    output, final = cell.scan(turned, states[at], lengths)
                both.append(reverse_time(output, lengths) if direction else output)
                finals.append(final)
            output = join_features(both)
            if self.block == "none" and masks[layer]:
                output = output * masks[layer][0]
            outputs.append(output)
        return outputs[-1], finals

    def _draw_masks(self, x: Tensor) -> list[State]:
        """Draw what is dropped in a pass: for each block, or behind each layer but the last."""
        if self.block != "none":
            blocks = [cell for cell in self.cells if isinstance(cell, Block)]
            return [block.draw_masks(x.shape[1], x) for block in blocks]
        masks: list[State] = [()] * self.num_layers
        if self.dropout and self.training:
            for layer in range(self.num_layers - 1):
                width = self.directions * self.cell(layer).output_size
                masks[layer] = (self._dropout_mask(x.new_empty(1, x.shape[1], width)),)
        return masks

    def _run_to_end(self, x: Tensor, states: list[State], lengths: Tensor | None) -> list[State]:
        """Run all layers and return the states only; a network with a kernel may keep less."""
        if worth_it(self, x):
            return run_in_chunks(self, x, states, lengths, "last")[1]
        return self._run(x, states, lengths)[1]

    def _dropout_mask(self, like: Tensor) -> Tensor:
        keep = 1.0 - self.dropout
        return like.new_empty((1, *like.shape[1:])).bernoulli_(keep).div_(keep)

    def _forward_packed(
        self, packed: PackedSequence, state: Tensor | State | None
    ) -> tuple[PackedSequence, Tensor | State]:
        # The batch is put in its original order, so that states are too, and the output is
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

    def _check_sequence(
        self,
        input: Tensor | PackedSequence,
        state: Tensor | State | None,
        lengths: Tensor | None,
    ) -> tuple[Tensor, Tensor | State | None, Tensor | None, bool]:
        """Return the input as (time, batch, input), state and lengths, and if there was a batch."""
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


def _signature_options(owner: type[Recurrent]) -> dict[str, Option]:
    hints = inspect.get_annotations(owner.__init__, eval_str=True)
    documented = documented_arguments(owner)
    return {
        p.name: Option(p.name, hints.get(p.name, Any), p.default, documented.get(p.name, ""))
        for p in inspect.signature(owner.__init__).parameters.values()
        if p.name != "self"
    }
