"""The parts of a recurrent network: a cell for every layer and direction, options and states.

Callers see a state as one tensor or a tuple of tensors (layers × directions, batch, hidden);
internally it is one tuple for every cell. `recurrent.py` runs the cells over a sequence.
"""

from __future__ import annotations

import inspect
import textwrap
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.docstrings import HEADINGS, documented_arguments, sections
from undamped._base.errors import OptionError, ShapeError
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
    signature_options,
)
from undamped._base.registry import models
from undamped.nn.bases.block import Block, BlockKind
from undamped.nn.bases.cell import Cell, State
from undamped.nn.bases.updates import Penalised
from undamped.nn.sequence_tensors import check_state
from undamped.parametrizations.spectra import orthogonality_penalty


class CellStack(Penalised):
    """Cells in layers and directions, with their options and states.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units of each layer.
        num_layers: Number of layers.
        batch_first: Whether inputs and outputs are (batch, time, features).
        dropout: Probability of dropping a unit between layers; one mask per sequence.
        bidirectional: Whether a second set of cells reads the sequence from its end.
        orthogonality_penalty: The number λ in a penalty λ‖WᵀW − I‖² that training adds, for
            networks with unconstrained matrices W that multiply the state.
        block: The block around each layer of independent units: none, or the block of the
            state-space literature, x + glu(gelu(layer(norm(x)))) after a linear encoder of the
            input. Layer normalisation allows streaming; batch normalisation is that of the papers,
            with constant statistics in evaluation. Dropout is then inside the block.
        device: The device of the parameters.
        dtype: The floating-point type of the parameters.
        cell_options: The options of the cell.
    """

    cell_class: ClassVar[type[Cell]]
    oscillates: ClassVar[bool] = False
    """Whether `dt` and `alpha` are the step and the restoring force of undamped oscillators."""

    def __init_subclass__(
        cls, *, cell: type[Cell] | None = None, name: str = "", **keywords: Any
    ) -> None:
        """Set the signature and the documentation of a network from those of its cell.

        Args:
            cell: The cell; the same as an attribute `cell_class`.
            name: The name under which the network is registered; the same as `models.register`.
            keywords: Those of other base classes.
        """
        super().__init_subclass__(**keywords)
        if cell is not None:
            cls.cell_class = cell
        if "cell_class" in vars(cls):
            cls.__signature__ = _signature(cls)  # type: ignore[attr-defined]
            cls.__doc__ = _documentation(cls)
        if name:
            models.register(name)(cls)

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
        options = {
            "input_size": input_size,
            "hidden_size": hidden_size,
            "num_layers": num_layers,
            "batch_first": batch_first,
            "dropout": dropout,
            "bidirectional": bidirectional,
            **cell_options,
        }
        if _has_free_matrices(self.cell_class) or orthogonality_penalty:
            options["orthogonality_penalty"] = orthogonality_penalty
        if self.cell_class.independent_units or block != "none":
            options["block"] = block
        checked = check(type(self).__name__, type(self), options)
        self.input_size: int = checked.pop("input_size")
        self.hidden_size: int = checked.pop("hidden_size")
        self.num_layers: int = checked.pop("num_layers")
        self.batch_first: bool = checked.pop("batch_first")
        self.dropout: float = checked.pop("dropout")
        self.bidirectional: bool = checked.pop("bidirectional")
        self.orthogonality_penalty: float = checked.pop("orthogonality_penalty", 0.0)
        self.block: BlockKind = checked.pop("block", "none")
        self.cell_options: dict[str, Any] = checked
        if self.dropout and self.num_layers == 1 and self.block == "none":
            warnings.warn(
                f"{type(self).__name__}: dropout={self.dropout:g} has no effect with one layer, "
                "since it is applied between layers. Set num_layers to 2 or more, or dropout to 0.",
                stacklevel=2,
            )
        if dtype is not None and not dtype.is_floating_point:
            raise OptionError(
                f"{type(self).__name__}.dtype must be a floating-point type, got {dtype}."
            )
        self.directions = 2 if self.bidirectional else 1
        self.cells = nn.ModuleList(self._build_cells())
        if self.orthogonality_penalty:
            self.add_update_hooks()
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
        """Build one cell on the default device.

        For the device `meta` it is built on the CPU first, since initialisations such as an
        orthogonal matrix compute with values.
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
            cell._draw_sources(sizes)
        return cell

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return the options of the network and of its cell, as one list."""
        options = signature_options(CellStack)
        for name in ("device", "dtype"):  # not part of a run's settings
            options.pop(name)
        if not _has_free_matrices(cls.cell_class):
            options.pop("orthogonality_penalty")
        if not cls.cell_class.independent_units:
            options.pop("block")
        cell = options_of(cls.cell_class)
        return {**options, **{name: option for name, option in cell.items() if name not in options}}

    def layer_sources(self, layer: int) -> tuple[int, ...]:
        """Return the layers that feed layer `layer` (1, 2, …); 0 is the input of the network."""
        return self.cell_class.sources(layer, self.cell_options)

    def cell(self, layer: int, direction: int = 0) -> Cell:
        """Return the cell of layer 0, 1, … in direction 0 (forward) or 1 (backward)."""
        module = self.cells[layer * self.directions + direction]
        assert isinstance(module, Cell)
        return module

    @property
    def output_size(self) -> int:
        """Number of features of the output at each step."""
        return self.directions * self.cell(self.num_layers - 1).output_size

    def extra_repr(self) -> str:
        """Return the sizes and every option that differs from its default, for `print`."""
        parts = [f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"]
        for name, option in type(self).declared_options().items():
            if name not in ("input_size", "hidden_size", "num_layers"):
                value = self.cell_options.get(name, vars(self).get(name, option.default))
                if value != option.default:
                    parts.append(f"{name}={value!r}")
        return ", ".join(parts)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """Initialise all parameters again, in place."""
        for cell, fresh in zip(self.cells, self._build_cells(), strict=True):
            tensors = {**dict(fresh.named_parameters()), **dict(fresh.named_buffers())}
            for name, tensor in (*cell.named_parameters(), *cell.named_buffers()):
                tensor.copy_(tensors[name])

    def flatten_parameters(self) -> None:
        """Do nothing; for compatibility with torch.nn.LSTM."""

    def penalty_option(self) -> str:
        weight = self.orthogonality_penalty
        return f"orthogonality_penalty={weight:g}" if weight else ""

    def penalty_value(self) -> Tensor:
        """Return λ‖WᵀW − I‖², summed over the matrices W that multiply the state."""
        total = next(self.parameters()).new_zeros(())
        if self.orthogonality_penalty:
            for cell in self._all_cells():
                for matrix in cell.recurrent_matrices():
                    total = total + orthogonality_penalty(matrix)
        return self.orthogonality_penalty * total

    # States

    def initial_state(self, batch: int) -> Tensor | State:
        """Return the state from which a sequence starts when none is given."""
        like = next(self.parameters())
        return self._join_states([c.initial_state(batch, like) for c in self._all_cells()])

    def restart(self, state: Tensor | State, ended: Tensor) -> Tensor | State:
        """Return a state in which some samples are reset, as for agents after an episode.

        Args:
            state: The state, as a call returned it.
            ended: (batch,), true for the samples that are reset.

        Example:
            >>> state = net.restart(state, torch.tensor([False, True]))
        """
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        batch, dtype = parts[0].shape[1], parts[0].dtype
        parts = self._state_parts(state, batch, dtype)
        if ended.shape != (batch,):
            raise ShapeError(
                f"{type(self).__name__}.restart: ended must have shape ({batch},), got "
                f"{tuple(ended.shape)}."
            )
        mask = (ended != 0).view(1, -1, 1)
        first = self.initial_state(batch)
        begins = (first,) if isinstance(first, Tensor) else first
        fresh = tuple(
            # A part that grows is empty initially, which is represented by zeros.
            torch.where(mask, begin.to(part) if begin.shape == part.shape else 0, part)
            for part, begin in zip(parts, begins, strict=True)
        )
        joined = self.cell(0)._trim_state(fresh)
        return joined[0] if len(joined) == 1 else joined

    def _all_cells(self) -> list[Cell]:
        """Return the cells, both directions of a layer one after the other."""
        return list(self.cells)  # type: ignore[arg-type]

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
        """Return the parts of a state after checking their shapes and types."""
        parts = (state,) if isinstance(state, Tensor) else tuple(state)
        check_state(type(self).__name__, parts, self.cell(0), (len(self.cells), batch), dtype)
        return parts


def _has_free_matrices(cell_class: type[Cell]) -> bool:
    """Return whether cells of a class have unconstrained matrices that multiply the state."""
    return cell_class.recurrent_matrices is not Cell.recurrent_matrices


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
    shared = documented_arguments(CellStack)
    arguments = {name: option.description for name, option in network.declared_options().items()}
    arguments |= {name: shared[name] for name in ("device", "dtype")}
    lines = [
        textwrap.fill(f"{name}: {about}", 92, subsequent_indent="    ")
        for name, about in arguments.items()
    ]
    package = "undamped.nn." if network.__module__.startswith("undamped.nn.") else ""
    example = f">>> net = {package}{network.__name__}(3, 16)\n"
    example += ">>> output, state = net(torch.randn(50, 4, 3))"
    texts = {"Example": example, **sections(network.cell_class), "Args": "\n".join(lines)}
    parts = [texts.pop("")]
    parts += [f"{h}:\n{textwrap.indent(texts[h], '    ')}" for h in HEADINGS if h in texts]
    return "\n\n".join(parts) + "\n"
