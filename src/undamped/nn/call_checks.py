"""What a call of a recurrent network is given: types, shapes, lengths and states that fit."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from undamped._base.errors import OptionError, ShapeError, explain
from undamped.kernels.dispatch import through_operator
from undamped.nn.bases.cell import Cell, State
from undamped.nn.sequence_tensors import all_full


def check_type(name: str, x: Tensor, weight: Tensor, wide: bool) -> None:
    """Refuse an input of another type than the parameters, and sixteen bits where they are few.

    Args:
        name: The name of the network.
        x: The input.
        weight: One of the parameters.
        wide: Whether sixteen bits are refused.
    """
    if x.dtype != weight.dtype:
        raise ShapeError(
            explain(
                f"{name} input",
                expected=f"{weight.dtype}, the type of the parameters",
                got=x.dtype,
                remedy="Convert the input by .to(dtype), or the network.",
            )
        )
    if wide and x.dtype in (torch.bfloat16, torch.float16):
        raise OptionError(
            explain(
                name,
                expected="float32 or float64: sixteen bits are too few to hold what it carries",
                got=x.dtype,
                remedy="Use torch.autocast around the model, which leaves this network out.",
            )
        )


def refuse_packed(name: str, x: Tensor | PackedSequence) -> None:
    """Refuse packed sequences where one sample is expected."""
    if isinstance(x, PackedSequence):
        raise ShapeError(
            explain(
                f"{name}.step",
                expected="one sample (batch, input) or (input,)",
                got="a PackedSequence",
                remedy="Call the network itself, which takes whole sequences.",
            )
        )


def refuse_lengths(name: str, lengths: Tensor | None) -> None:
    """Refuse lengths beside a PackedSequence: they might not be the same."""
    if lengths is not None:
        raise OptionError(
            explain(
                f"{name} lengths",
                expected="none with a PackedSequence, which says its lengths itself",
                got=lengths,
                remedy="Leave lengths out.",
            )
        )


def check_shape(name: str, x: Tensor, input_size: int, batch_first: bool, stream: bool) -> None:
    """Refuse an input that is not a sequence with `input_size` features, or one sample of it."""
    time_at = 1 if x.dim() == 3 and batch_first and not stream else 0
    if not (x.dim() in (2, 3) and x.shape[-1] == input_size and x.shape[time_at] > 0):
        time = "(batch, time, " if batch_first else "(time, batch, "
        lead, got = ("(batch, ", x.shape[1:]) if stream else (time, x.shape)
        raise ShapeError(
            explain(
                f"{name} input",
                expected=f"{lead}{input_size}) with at least one step",
                got=tuple(got),
                remedy="The last dimension must be input_size; see also batch_first.",
            )
        )


def check_state(
    name: str, parts: State, cell: Cell, counts: tuple[int, int], dtype: torch.dtype
) -> None:
    """Refuse a state whose parts have other shapes, or another type, than those of `cell`.

    Args:
        name: The name of the network.
        parts: The tensors of the state.
        cell: One of the cells.
        counts: How many cells there are, and how many sequences.
        dtype: The type of the input.
    """
    cells, batch = counts
    sizes = cell.state_sizes
    fits = len(parts) == len(sizes) and all(
        part.shape == (cells, batch, part.shape[-1] if size is None else size)
        for part, size in zip(parts, sizes, strict=True)
    )
    if not fits:
        expected = [
            f"{name} {(cells, batch, 'any' if size is None else size)}"
            for name, size in zip(cell.state_names, sizes, strict=True)
        ]
        raise ShapeError(
            explain(
                f"{name} state",
                expected=f"tensors of shapes {', '.join(expected)}",
                got=", ".join(str(tuple(part.shape)) for part in parts) or "nothing",
                remedy="Pass on the state that an earlier call returned, or none.",
            )
        )
    if any(part.dtype != dtype for part in parts):
        raise ShapeError(
            explain(
                f"{name} state",
                expected=f"{dtype}, the type of the input",
                got=", ".join(str(part.dtype) for part in parts),
                remedy="Convert one of the two by .to(dtype).",
            )
        )


def check_lengths(lengths: Tensor | None, x: Tensor) -> Tensor | None:
    """Return a copy of lengths that fit (time, batch, input), in 64 bits; None if all are full.

    A copy, since the backward pass reads it again: the caller's may hold the next batch's by then.
    """
    steps, batch = x.shape[:2]
    if lengths is None or not batch:
        return None
    lengths = torch.as_tensor(lengths, device=x.device)
    whole = not lengths.dtype.is_floating_point and lengths.dtype != torch.bool
    if whole:
        # Eight bits hold 255 and nothing that is computed from it.
        lengths = lengths.to(torch.int64, copy=True)
    fits = lengths.shape == (batch,) and whole
    if fits and through_operator(x):
        return lengths  # whose values nobody can look at while tracing
    if not fits or int(lengths.min()) < 1 or int(lengths.max()) > steps:
        raise ShapeError(
            explain(
                "lengths",
                expected=f"{batch} whole numbers from 1 to {steps}, one per sequence",
                got=lengths.tolist(),
                remedy="Count the true steps of each sequence; leave out empty ones.",
            )
        )
    return None if all_full(lengths, x) else lengths
