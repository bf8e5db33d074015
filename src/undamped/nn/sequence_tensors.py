"""Operations on sequences and states, and checks of the arguments of a recurrent network."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from undamped._base.errors import OptionError, ShapeError, shortened
from undamped.kernels.dispatch import runs_as_operator
from undamped.nn.bases.cell import Cell, State

P = ParamSpec("P")
R = TypeVar("R")


def padding_mask(x: Tensor, lengths: Tensor) -> Tensor:
    """Return (time, batch, 1), true where a sequence is over."""
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    return (steps >= lengths).unsqueeze(-1)


def all_full(lengths: Tensor, x: Tensor) -> bool:
    """Return whether no sequence ends before the last step."""
    return bool((lengths == x.shape[0]).all())


def join_features(parts: list[Tensor]) -> Tensor:
    """Concatenate features."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


def map_state(state: Any, function: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to every tensor of a state, which is a tensor, a tuple of them, or None."""
    if state is None:
        return None
    return function(state) if isinstance(state, Tensor) else tuple(map(function, state))


def reverse_time(x: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse each sequence within its length; padding stays at the end."""
    if lengths is None:
        return x.flip(0)
    steps = torch.arange(x.shape[0], device=x.device).unsqueeze(1)
    index = torch.where(steps < lengths, lengths - 1 - steps, steps)
    return x.gather(0, index.unsqueeze(-1).expand(x.shape))


def mask_and_last(output: Tensor, first: Tensor, lengths: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return outputs that are zero beyond the lengths, and the last output of each sequence.

    Args:
        output: (time, batch, features).
        first: (batch, features), the result for sequences of length 0.
        lengths: (batch,), from 0 on; None if all sequences have the full length.
    """
    if lengths is None:
        return output, output[-1].clone()
    output = output.masked_fill(padding_mask(output, lengths), 0)
    last = output[(lengths - 1).clamp(min=0), torch.arange(len(lengths), device=output.device)]
    return output, torch.where((lengths > 0).unsqueeze(-1), last, first)


def check_type(name: str, x: Tensor, weight: Tensor, full_precision: bool) -> None:
    """Refuse an input whose type is not that of a parameter, and half precision if required."""
    if x.dtype != weight.dtype:
        raise ShapeError(
            f"{name} input must be {weight.dtype}, as the parameters are, got {x.dtype}. "
            "Convert one of the two by .to(dtype)."
        )
    if full_precision and x.dtype in (torch.bfloat16, torch.float16):
        raise OptionError(
            f"{name} needs float32 or float64, got {x.dtype}. For mixed precision use "
            "torch.autocast around the model, which leaves this network in full precision."
        )


def refuse_lengths(name: str, lengths: Tensor | None) -> None:
    """Refuse lengths in addition to a PackedSequence, whose lengths might differ."""
    if lengths is not None:
        raise OptionError(f"{name}: leave out lengths with a PackedSequence, which contains them.")


def check_shape(name: str, x: Tensor, input_size: int, batch_first: bool, stream: bool) -> None:
    """Refuse an input that is not a sequence with `input_size` features, or one sample of it."""
    time_at = 1 if x.dim() == 3 and batch_first and not stream else 0
    if not (x.dim() in (2, 3) and x.shape[-1] == input_size and x.shape[time_at] > 0):
        layout = "(batch, time, " if batch_first else "(time, batch, "
        layout, shape = ("(batch, ", x.shape[1:]) if stream else (layout, x.shape)
        raise ShapeError(
            f"{name} input must have shape {layout}{input_size}) with at least one step, got "
            f"{tuple(shape)}. The last dimension is input_size; see also batch_first."
        )


def check_state(
    name: str, parts: State, cell: Cell, counts: tuple[int, int], dtype: torch.dtype
) -> None:
    """Refuse a state whose parts have other shapes, or another type, than those of `cell`.

    Args:
        name: The name of the network.
        parts: The tensors of the state.
        cell: One of the cells.
        counts: The number of cells, and of sequences.
        dtype: The type of the input.
    """
    cells, batch = counts
    sizes = cell.state_sizes
    fits = len(parts) == len(sizes) and all(
        part.shape == (cells, batch, part.shape[-1] if size is None else size)
        for part, size in zip(parts, sizes, strict=True)
    )
    if not fits:
        expected = ", ".join(
            f"{part} {(cells, batch, 'any' if size is None else size)}"
            for part, size in zip(cell.state_names, sizes, strict=True)
        )
        shapes = ", ".join(str(tuple(part.shape)) for part in parts) or "none"
        raise ShapeError(
            f"{name} state must be tensors of shapes {expected}, got {shapes}. Pass the state "
            "that an earlier call returned, or none."
        )
    if any(part.dtype != dtype for part in parts):
        types = ", ".join(str(part.dtype) for part in parts)
        raise ShapeError(
            f"{name} state must be {dtype}, as the input is, got {types}. Convert one of the two "
            "by .to(dtype)."
        )


def check_lengths(lengths: Tensor | None, x: Tensor) -> Tensor | None:
    """Return a copy of lengths that fit (time, batch, input), in 64 bits; None if all are full.

    It is a copy because the backward pass reads it again, when the caller may have overwritten it.
    """
    steps, batch = x.shape[:2]
    if lengths is None or not batch:
        return None
    lengths = torch.as_tensor(lengths, device=x.device)
    integers = not lengths.dtype.is_floating_point and lengths.dtype != torch.bool
    if integers:
        # In eight bits, sums with lengths would overflow.
        lengths = lengths.to(torch.int64, copy=True)
    fits = lengths.shape == (batch,) and integers
    if fits and runs_as_operator(x):
        return lengths  # values cannot be read while tracing
    if not fits or int(lengths.min()) < 1 or int(lengths.max()) > steps:
        raise ShapeError(
            f"lengths must be {batch} integers from 1 to {steps}, one per sequence, got "
            f"{shortened(lengths.tolist())}."
        )
    return None if all_full(lengths, x) else lengths


def in_full_precision(method: Callable[P, R]) -> Callable[P, R]:
    """Run a method of a network in full precision, also inside `torch.autocast`.

    A state that is carried over thousands of steps would be lost in the eight bits of a bfloat16.
    So layers around the network may be rounded, but not the recurrence.
    """
    call: Any = method

    @functools.wraps(method)
    def run(self: nn.Module, input: Any, *arguments: Any, **keywords: Any) -> Any:
        tensor = input.data if isinstance(input, PackedSequence) else input
        if not isinstance(tensor, Tensor):
            kind = f"{type(input).__module__}.{type(input).__name__}"
            raise ShapeError(
                f"{type(self).__name__} input must be a tensor or a PackedSequence, got {kind}. "
                "Convert it, for example by torch.as_tensor(x, dtype=torch.float32)."
            )
        device = tensor.device.type
        if device == "meta" or not torch.is_autocast_enabled(device):
            return call(self, input, *arguments, **keywords)
        with torch.autocast(device, enabled=False):
            unrounded = input.to(next(self.parameters()).dtype)
            return call(self, unrounded, *arguments, **keywords)

    wrapped: Any = run
    return wrapped
