"""Fields that cannot be called, or not on what they are given: said in a sentence."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError, explain
from undamped.ode.flows.input_checks import type_of


def check_call(owner: str, field: nn.Module) -> None:
    """Refuse a field that does not take a time and a state.

    Args:
        owner: Whose field it is.
        field: The module.
    """
    try:
        inspect.signature(field.forward).bind(0.0, torch.empty(0))
    except TypeError:
        name = type(field).__name__
        raise OptionError(
            explain(
                f"{owner}.field",
                expected="a module called with a time and a state",
                got=f"{name}, which is called otherwise",
                remedy="Take PerceptronField of undamped.ode.fields, or a module of your own whose "
                "forward(self, t, y) returns dy/dt.",
            )
        ) from None
    except ValueError:  # there is no signature to look at
        return


def explain_failed_field(owner: str, field: Any, times: Any, state: Any, error: Exception) -> None:
    """Raise a sentence where a solve failed because the field cannot take its first state.

    Fields may be anybody's, so nothing is refused before it has failed.

    Args:
        owner: Who solves.
        field: dy/dt.
        times: When.
        state: The first state.
        error: What was raised.
    """
    tensors = [state] if isinstance(state, Tensor) else [p for p in state if isinstance(p, Tensor)]
    places = {p.device for p in [*tensors, *_parameters(field)]}
    if torch.device("meta") in places:
        raise ShapeError(
            explain(
                f"{owner} state",
                expected="numbers, since they decide how many steps are taken",
                got="tensors on 'meta', which have none",
                remedy="Put the module and its state on one device with module.to_empty(device=…) "
                "and state.to(…).",
            )
        ) from error
    if not tensors or _evaluates(field, times, state):
        return
    wanted, found = type_of(field) if isinstance(field, nn.Module) else None, tensors[0]
    shape = tuple(found.shape) if len(tensors) == 1 else [tuple(p.shape) for p in tensors]
    name = type(field).__name__
    if wanted is not None and found.dtype != wanted:
        short, own = (str(kind).removeprefix("torch.") for kind in (wanted, found.dtype))
        remedy = f"Convert it with state.to(torch.{short}), or the module with .to(torch.{own})."
        expected, got = f"{short}, the type of its field {name}", own
    else:
        size = getattr(field, "size", None)
        expected = f"what its field {name} takes" + (f", (…, {size})" if size else "")
        got, remedy = f"{shape}", f"The field said: {str(error).splitlines()[0]}."
    raise ShapeError(
        explain(f"{owner} state", expected=expected, got=got, remedy=remedy)
    ) from error


def _parameters(field: Any) -> list[Tensor]:
    return list(field.parameters()) if isinstance(field, nn.Module) else []


@torch.no_grad()
def _evaluates(field: Any, times: Any, state: Any) -> bool:
    """Say whether the field can be evaluated on the first state, whatever it answers."""
    try:
        field(torch.as_tensor(times)[0], state)
    except Exception:
        return False
    return True
