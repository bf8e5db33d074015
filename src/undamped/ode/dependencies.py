"""Which tensors a field depends on besides the state, read off the graph of its value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, explain
from undamped._base.torch_internals import sequence_number


class NeedsGraphError(OptionError):
    """A field whose gradient can only be had by keeping its graph."""


def dependencies(
    function: Callable[..., Any], given: Iterable[Tensor], value: Tensor, start: int
) -> list[Tensor]:
    """Return every tensor other than the state that a gradient has to reach.

    Args:
        function: The user's field; a module brings its parameters.
        given: Tensors the user named.
        value: f(t, y), evaluated with gradients on a state that is a leaf.
        start: Number of the first autograd node that belongs to that evaluation.
    """
    named = [tensor for tensor in given if tensor.requires_grad]
    if isinstance(function, nn.Module):
        named += [parameter for parameter in function.parameters() if parameter.requires_grad]
    extra = getattr(function, "context_tensors", None)
    if extra is not None:
        named += [tensor for tensor in extra() if tensor.requires_grad]
    met = {id(leaf): leaf for leaf in leaves_of([value], named, start)}
    known = {id(tensor): tensor for tensor in named}
    for origin in _origins(named):
        # Its gradient comes through the named tensor; here it would be counted twice.
        if id(origin) in met:
            raise _mixed()
        known.pop(id(origin), None)
    return list({**known, **met}.values())


class LateTensors:
    """Leaves met in the backward pass that the first evaluation did not show.

    A field may use a tensor only later in time, or only in some states; its gradient would be
    missing without a word. A leaf that the field makes for itself, as one that takes a gradient
    inside does, is gone with the graph it was made for; one that is still there is somebody's.

    Args:
        known: The tensors whose gradients are looked for.
    """

    def __init__(self, known: Sequence[Tensor]) -> None:
        self._known = list(known)
        self._allowed = {id(tensor) for tensor in known}
        self._met: list[ref[Tensor]] = []

    def look(self, values: Iterable[Tensor], state: Sequence[Tensor], start: int) -> None:
        """Look at what was evaluated again.

        Args:
            values: Evaluated with gradients.
            state: The leaves they were evaluated from.
            start: Number of the first autograd node that belongs to these evaluations.
        """
        if self._met:
            self._met = [leaf for leaf in self._met if leaf() is not None]
        allowed = self._allowed.union(map(id, state))
        for leaf in leaves_of(values, (*state, *self._known), start):
            if id(leaf) not in allowed:
                self._met.append(ref(leaf))

    def refuse(self) -> None:
        """Raise an error for a leaf that is still there, when all graphs are gone."""
        for leaf in (met() for met in self._met):
            if leaf is not None:
                raise _unnamed(f"a leaf of shape {tuple(leaf.shape)} only later than at the start")


def next_node() -> int:
    """Return the number that the next autograd node of this thread will have, or one before."""
    return sequence_number(_marker().view(()).grad_fn)


@lru_cache(maxsize=1)
def _marker() -> Tensor:
    return torch.ones((), requires_grad=True, device="cpu")


def leaves_of(
    values: Iterable[Tensor], named: Iterable[Tensor] = (), start: int = 0
) -> list[Tensor]:
    """Go through the graph of values down to the named tensors; return the leaves met.

    Args:
        values: Some tensors.
        named: Tensors beyond which not to go.
        start: Number of the first autograd node that may be met.
    """
    # Of what is evaluated on the way back every evaluation goes through here: few calls.
    seen: set[Any] = {None, *(tensor.grad_fn for tensor in named)}
    waiting: list[Any] = [value.grad_fn for value in values]
    leaves: list[Tensor] = []
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        earlier = node.next_functions
        leaf = None if earlier else getattr(node, "variable", None)
        if leaf is not None:
            leaves.append(leaf)
        elif sequence_number(node) < start:
            raise _unnamed("one computed earlier and not named")
        for before, _ in earlier:
            waiting.append(before)
    return leaves


def _origins(named: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves that named tensors were computed from, of several that share them once."""
    computed = {
        id(tensor.grad_fn): tensor.grad_fn for tensor in named if tensor.grad_fn is not None
    }
    found: list[Tensor] = []
    seen: set[int] = set()
    waiting = [before for node in computed.values() for before, _ in node.next_functions]
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        if id(node) in computed:
            raise _mixed()
        seen.add(id(node))
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            found.append(leaf)
        waiting.extend(before for before, _ in node.next_functions)
    return found


def _mixed() -> NeedsGraphError:
    return NeedsGraphError(
        explain(
            "parameters",
            expected="tensors that do not depend on each other",
            got="a field that uses a tensor and another one that was computed from it",
            remedy="Compute the second inside the field, or choose gradient='backprop'.",
        )
    )


def _unnamed(which: str) -> NeedsGraphError:
    return NeedsGraphError(
        f"parameters: expected every tensor the field depends on, got a field that uses {which}. "
        "Pass it in `parameters=[...]`, or choose gradient='backprop'."
    )
