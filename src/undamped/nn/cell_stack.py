"""What a recurrent network is made of: a cell for every layer and direction, options, states.

A state is, outside, one tensor or a tuple of tensors (layers × directions, batch, hidden), and
inside one tuple for every cell. How a sequence goes through the cells is `recurrent.py`.
"""

from __future__ import annotations

import inspect
import textwrap
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.docstrings import documented_arguments
from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.memory import refuse_beyond_memory
from undamped._base.options import (
    DropoutRate,
    Layers,
    NonNegativeFloat,
    Option,
    PositiveInt,
    Units,
    check,
    options_of,
)
from undamped.nn.bases.block import Block, BlockKind
from undamped.nn.bases.cell import Cell, State
from undamped.nn.bases.penalised import Penalised
from undamped.nn.call_checks import check_state
from undamped.parametrizations.singular_band import orthogonality_penalty


class CellStack(Penalised):
    """Cells in layers and directions, with options and states of their own.

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

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Give a network the signature and the documentation of its cell, with its own options."""
        super().__init_subclass__(**kwargs)
        if "cell_class" in vars(cls):
            cls.__signature__ = _signature(cls)  # type: ignore[attr-defined]
            cls.__doc__ = _documentation(cls)

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
        own = _signature_options(CellStack)
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


def _signature_options(owner: type[CellStack]) -> dict[str, Option]:
    hints = inspect.get_annotations(owner.__init__, eval_str=True)
    documented = documented_arguments(owner)
    return {
        p.name: Option(p.name, hints.get(p.name, Any), p.default, documented.get(p.name, ""))
        for p in inspect.signature(owner.__init__).parameters.values()
        if p.name != "self"
    }


def _signature(network: type[CellStack]) -> inspect.Signature:
    positional = ("input_size", "hidden_size", "num_layers")
    kinds = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [
        inspect.Parameter(
            option.name,
            kinds[option.name in positional],
            default=option.default,
            annotation=option.annotation,
        )
        for option in network.declared_options().values()
    ]
    placement = [inspect.Parameter(name, kinds[0], default=None) for name in ("device", "dtype")]
    return inspect.Signature(parameters + placement)


def _documentation(network: type[CellStack]) -> str:
    """Return the documentation of the cell with the arguments that all networks share."""
    text = inspect.getdoc(network.cell_class) or ""
    before, _, rest = text.partition("\nArgs:\n")
    after = rest[rest.find("\n\n") :] if "\n\n" in rest else ""
    shared = documented_arguments(CellStack)
    arguments = {name: option.description for name, option in network.declared_options().items()}
    arguments |= {name: shared[name] for name in ("device", "dtype")}
    lines = [
        textwrap.fill(f"{name}: {about}", 96, initial_indent="    ", subsequent_indent="        ")
        for name, about in arguments.items()
    ]
    return "\n".join((before, "Args:", *lines)) + after
