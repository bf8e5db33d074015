"""Which tensors a field depends on besides the state, read off the graph of its value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any
from weakref import ref

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.torch_internals import sequence_number


class NeedsGraphError(OptionError):
    """A field whose gradient needs the graph of the forward pass."""


def dependencies(
    function: Callable[..., Any], parameters: Iterable[Tensor], value: Tensor, start: int
) -> list[Tensor]:
    """Return every tensor besides the state that a gradient has to reach.

    Args:
        function: The user's field; a module brings its parameters.
        parameters: Tensors passed by the user.
        value: f(t, y), evaluated with gradients on a state that is a leaf.
        start: Number of the first autograd node that belongs to that evaluation.
    """
    tensors = [tensor for tensor in parameters if tensor.requires_grad]
    if isinstance(function, nn.Module):
        tensors += [parameter for parameter in function.parameters() if parameter.requires_grad]
    extra = getattr(function, "context_tensors", None)
    if extra is not None:
        tensors += [tensor for tensor in extra() if tensor.requires_grad]
    leaves = {id(leaf): leaf for leaf in leaves_of([value], tensors, start)}
    by_id = {id(tensor): tensor for tensor in tensors}
    for origin in _origins(tensors):
        # Its gradient comes through the named tensor; here it would be counted twice.
        if id(origin) in leaves:
            raise _mixed()
        by_id.pop(id(origin), None)
    return list({**by_id, **leaves}.values())


class LateTensors:
    """Leaves in the backward pass that the first evaluation did not show.

    A field may use a tensor only later in time, or only in some states; its gradient would be
    missing silently. A leaf that the field creates, for a gradient inside it, is freed with the
    graph it was created for; a leaf that still exists belongs to the user.

    Args:
        tensors: The tensors whose gradients are computed.
    """

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = list(tensors)
        self._allowed = {id(tensor) for tensor in tensors}
        self._references: list[ref[Tensor]] = []

    def check(self, values: Iterable[Tensor], state: Sequence[Tensor], start: int) -> None:
        """Check the leaves of an evaluation in the backward pass.

        Args:
            values: Values of the field with gradients.
            state: The leaves at which they were evaluated.
            start: Number of the first autograd node that belongs to these evaluations.
        """
        if self._references:
            self._references = [leaf for leaf in self._references if leaf() is not None]
        allowed = self._allowed.union(map(id, state))
        for leaf in leaves_of(values, (*state, *self._tensors), start):
            if id(leaf) not in allowed:
                self._references.append(ref(leaf))

    def refuse(self) -> None:
        """Raise an error for a leaf that still exists when all graphs were freed."""
        for leaf in (reference() for reference in self._references):
            if leaf is not None:
                raise _unnamed(f"a leaf of shape {tuple(leaf.shape)} only later than at the start")


def next_node() -> int:
    """Return the number that the next autograd node of this thread will have, or one before."""
    return sequence_number(_marker().view(()).grad_fn)


@lru_cache(maxsize=1)
def _marker() -> Tensor:
    return torch.ones((), requires_grad=True, device="cpu")


def leaves_of(
    values: Iterable[Tensor], boundary: Iterable[Tensor] = (), start: int = 0
) -> list[Tensor]:
    """Return the leaves of the graph of some values, followed down to a boundary.

    Args:
        values: Some tensors.
        boundary: Tensors beyond which the graph is not followed.
        start: Number of the first autograd node that may be met.
    """
    # Called for every evaluation of a backward pass: few Python calls.
    visited: set[Any] = {None, *(tensor.grad_fn for tensor in boundary)}
    waiting: list[Any] = [value.grad_fn for value in values]
    leaves: list[Tensor] = []
    while waiting:
        node = waiting.pop()
        if node in visited:
            continue
        visited.add(node)
        earlier = node.next_functions
        leaf = None if earlier else getattr(node, "variable", None)
        if leaf is not None:
            leaves.append(leaf)
        elif sequence_number(node) < start:
            raise _unnamed("one computed earlier and not named")
        for before, _ in earlier:
            waiting.append(before)
    return leaves


def _origins(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return the leaves from which named tensors were computed, each once."""
    computed = {tensor.grad_fn for tensor in tensors if tensor.grad_fn is not None}
    leaves: list[Tensor] = []
    visited: set[Any] = {None}
    waiting: list[Any] = [before for node in computed for before, _ in node.next_functions]
    while waiting:
        node = waiting.pop()
        if node in visited:
            continue
        if node in computed:
            raise _mixed()
        visited.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None:
            leaves.append(leaf)
        waiting.extend(before for before, _ in node.next_functions)
    return leaves


def _mixed() -> NeedsGraphError:
    return NeedsGraphError(
        "parameters must be tensors that do not depend on each other, but the field uses a tensor "
        "and another one computed from it. Compute the second inside the field, or choose "
        "gradient='backprop'."
    )


def _unnamed(which: str) -> NeedsGraphError:
    return NeedsGraphError(
        f"parameters must name every tensor the field depends on, but the field uses {which}. "
        "Pass it in `parameters=[...]`, or choose gradient='backprop'."
    )
