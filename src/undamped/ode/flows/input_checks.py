"""Checks of the inputs and fields of a model, so that errors name what is wrong."""

from __future__ import annotations

import inspect
import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError
from undamped.ode.state.packing import type_name


def type_of(module: nn.Module) -> torch.dtype | None:
    """Return the type of a module, that of its first parameter; None without any."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), None)


def fitting(
    x: Tensor, size: int | None, dtype: torch.dtype | None, what: str, *, rows: bool = False
) -> Tensor:
    """Return the vectors x for a model, or raise an error that says what it expects.

    Args:
        x: The input.
        size: Features of the model; None for any number.
        dtype: Type in which the model computes; None for any floating-point type.
        what: Name of the input in messages, such as "HNN states".
        rows: Whether x has to be (batch, features), instead of (…, features).
    """
    x = _fitting_type(x, dtype, what)
    shaped = x.dim() == 2 if rows else x.dim() > 0
    if shaped and (size is None or x.shape[-1] == size):
        return x
    remedy = "The last dimension holds the features."
    if x.dim() > 2 and math.prod(x.shape[1:]) == size:
        remedy = "Flatten each sample with x.flatten(1)."
    elif x.dim() == 1:
        remedy = "Make single numbers a column with x.unsqueeze(1), one sample a row with x[None]."
    elif shaped:
        remedy = f"Give {size} features a sample, or build the model for {x.shape[-1]}."
    raise ShapeError(
        f"{what} must have shape (batch, {'features' if size is None else size}), got "
        f"{tuple(x.shape)}. {remedy}"
    )


def fitting_images(
    x: Tensor, image: tuple[int, int, int], dtype: torch.dtype | None, what: str
) -> Tensor:
    """Return the images x for a model: rows of pixels, channel after channel.

    Args:
        x: The input.
        image: Channels, rows and columns.
        dtype: Type in which the model computes; None for any floating-point type.
        what: Name of the input in messages.
    """
    x = _fitting_type(x, dtype, what)
    channels, rows, columns = image
    size = math.prod(image)
    if x.dim() == 2 and x.shape[1] == size:
        return x
    remedy = "Set input_size and colours of the model to those of the images."
    if x.dim() == 4 and x.shape[1:] == (rows, columns, channels) and channels != rows:
        remedy = "Put channels first and flatten with x.permute(0, 3, 1, 2).flatten(1)."
    elif x.dim() > 2 and math.prod(x.shape[1:]) == size:
        remedy = "Flatten each image with x.flatten(1)."
    elif x.numel() == size:
        remedy = "Make a single image a batch with x.reshape(1, -1)."
    raise ShapeError(
        f"{what} must have shape (batch, {size}), the {channels} × {rows} × {columns} pixels of an "
        f"image in a row, channels first, got {tuple(x.shape)}. {remedy}"
    )


def check_context(
    context: Tensor | None, x: Tensor, size: int | None, dtype: torch.dtype | None
) -> None:
    """Raise an error unless there is a condition for every sample, as the field expects it.

    Args:
        context: The condition, if there is one.
        x: The samples.
        size: Features of the condition for which the field was built; None if unspecified.
        dtype: Type in which the field computes; None for any.
    """
    if context is None and not size:
        return
    what, remedy = "context", "Give one row per sample."
    if size == 0:
        expected, remedy = "none", "Build the field with context_size to condition it."
    else:
        expected = f"({len(x)}, {'features' if size is None else size})"
    if context is None:
        got = "none"
    elif context.dim() != 2 or len(context) != len(x) or size not in (None, context.shape[1]):
        got = tuple(context.shape)
        if len(context) == 1 and context.dim() == 2:
            remedy = (
                f"Give one row per sample; for one that all share context.expand({len(x)}, -1)."
            )
    elif dtype is not None and torch.promote_types(x.dtype, context.dtype) != x.dtype:
        # Beside the state, a wider type would widen what the field sees.
        expected, got = type_name(x.dtype), type_name(context.dtype)
        remedy = f"Convert it with context.to(torch.{type_name(x.dtype)})."
    else:
        return
    raise ShapeError(f"{what} must be {expected}, got {got}. {remedy}")


def _fitting_type(x: Tensor, dtype: torch.dtype | None, what: str) -> Tensor:
    """Return x, in the type of the model where mixed precision chose a shorter one."""
    if not isinstance(x, Tensor):
        raise ShapeError(
            f"{what} must be a tensor, got {type(x).__name__}. Convert it with torch.as_tensor(x, "
            "dtype=torch.float32)."
        )
    if x.dtype == dtype or (dtype is None and x.is_floating_point()):
        return x
    short = x.dtype in (torch.float16, torch.bfloat16)
    if dtype is not None and short and torch.is_autocast_enabled(x.device.type):
        return x.to(dtype)
    name = "float32" if dtype is None else type_name(dtype)
    convert = "x.float()" if name == "float32" else f"x.to(torch.{name})"
    remedy = f"Convert it with {convert}."
    if dtype is not None and x.is_floating_point():
        remedy = (
            f"Convert it with {convert}, or the model with model.to(torch.{type_name(x.dtype)})."
        )
    kind = "floating-point" if dtype is None else f"{name}, the model's type"
    raise ShapeError(f"{what} must be {kind}, got {type_name(x.dtype)}. {remedy}")


def check_call(owner: str, field: nn.Module) -> None:
    """Refuse a field that does not take a time and a state; `owner` is the class that solves it."""
    try:
        inspect.signature(field.forward).bind(0.0, torch.empty(0))
    except TypeError:
        raise OptionError(
            f"{owner}.field must be a module called with a time and a state, got "
            f"{type(field).__name__}. Use PerceptronField of undamped.ode.fields, or a module "
            "whose forward(self, t, y) returns dy/dt."
        ) from None
    except ValueError:  # there is no signature
        return


def explain_failed_field(owner: str, field: Any, times: Any, state: Any, error: Exception) -> None:
    """Raise a clear error where a solve failed because the field cannot take its first state.

    Fields may be user code, so nothing is refused before it has failed.

    Args:
        owner: Class that solves.
        field: dy/dt.
        times: Output times.
        state: The first state.
        error: The error of the field.
    """
    tensors = [state] if isinstance(state, Tensor) else [p for p in state if isinstance(p, Tensor)]
    parameters = list(field.parameters()) if isinstance(field, nn.Module) else []
    devices = {p.device for p in [*tensors, *parameters]}
    if torch.device("meta") in devices:
        raise ShapeError(
            f"{owner} state is on 'meta', but its values decide how many steps are taken. Put the "
            "module and its state on one device with module.to_empty(device=…) and state.to(…)."
        ) from error
    if not tensors or _evaluates(field, times, state):
        return
    dtype, first = type_of(field) if isinstance(field, nn.Module) else None, tensors[0]
    shape = tuple(first.shape) if len(tensors) == 1 else [tuple(p.shape) for p in tensors]
    name = type(field).__name__
    if dtype is not None and first.dtype != dtype:
        kind, got = type_name(dtype), type_name(first.dtype)
        remedy = f"Convert it with state.to(torch.{kind}), or the module with .to(torch.{got})."
        expected = f"{kind}, the type of its field {name}"
    else:
        size = getattr(field, "size", None)
        expected = f"what its field {name} takes" + (f", (…, {size})" if size else "")
        got, remedy = f"{shape}", f"The field raised: {str(error).splitlines()[0]}."
    raise ShapeError(f"{owner} state must be {expected}, got {got}. {remedy}") from error


@torch.no_grad()
def _evaluates(field: Any, times: Any, state: Any) -> bool:
    """Whether the field can be evaluated on the first state."""
    try:
        field(torch.as_tensor(times)[0], state)
    except Exception:
        return False
    return True
