"""Measurement of the promises of models, cells and solvers.

Each kind of promise is measured in one way, on random states and inputs in double precision. A
promise holds if the measured value does not exceed its limit. Each measurement uses a copy of the
model, which it may change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from undamped._base.promises import Kind, Promise, Promising


@dataclass(frozen=True)
class Measurement:
    """A promise with its measured value and the limit that it must not exceed."""

    promise: Promise
    value: float
    limit: float
    meaning: str

    @property
    def holds(self) -> bool:
        """Whether the promise holds."""
        return self.value <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return promise and measurement for JSON."""
        numbers = {key: value for key, value in asdict(self).items() if key != "promise"}
        return {
            "kind": self.promise.kind.value,
            "claim": self.promise.claim,
            **numbers,
            "holds": self.holds,
        }


Outcome = tuple[float, float, str]
"""The measured value, the limit that it must not exceed, and what the value means."""
Measure = Callable[[Any, torch.Generator], Outcome]
LARGEST = 256
"""Jacobians of larger states are too large to measure: such promises are left out."""


@dataclass(frozen=True)
class _Method:
    """How a kind is measured: alternative lists of attributes, the function, and its cost."""

    needs: tuple[tuple[str, ...], ...]
    function: Measure
    by_jacobian: bool


_METHODS: dict[Kind, _Method] = {}


def measures(*kinds: Kind, needs: str, by_jacobian: bool = False) -> Callable[[Measure], Measure]:
    """Return a decorator for the function that measures some kinds of promises.

    Args:
        kinds: The kinds.
        needs: The attributes that a subject must have, separated by spaces; alternatives are
            separated by " or ".
        by_jacobian: Whether the function computes the Jacobian of the whole state.
    """
    alternatives = tuple(tuple(names.split()) for names in needs.split(" or "))

    def enter(function: Measure) -> Measure:
        _METHODS.update(dict.fromkeys(kinds, _Method(alternatives, function, by_jacobian)))
        return function

    return enter


def jacobian_of(function: Callable[[Tensor], Tensor], state: Tensor) -> Tensor:
    """Return the Jacobian of a function of one state as a square matrix."""
    rows: Any = torch.autograd.functional.jacobian(function, state)
    return rows.reshape(state.numel(), state.numel())


def measure(subject: Promising, *, seed: int = 0) -> list[Measurement]:
    """Measure every promise of a cell, a whole model or a solver.

    Promises that need the Jacobian of a state of more than 256 entries are left out.

    Args:
        subject: A cell, model or solver with promises; a copy in double precision is measured.
        seed: Seed of the random states and inputs.

    Example:
        >>> [measurement.holds for measurement in measure(undamped.models.HBNODE(2, 2))]
        [True, True, True]
    """
    generator = torch.Generator().manual_seed(seed)
    results = []
    for promise in subject.promises:
        method, probe = _METHODS[promise.kind], _probe(subject)
        if not any(all(hasattr(probe, name) for name in names) for names in method.needs):
            needs = " or ".join(", ".join(names) for names in method.needs)
            raise TypeError(
                f"{type(subject).__name__} promises {promise.kind.value} but lacks {needs}. "
                "Implement what is missing, or remove the promise."
            )
        fixed = torch.Generator().manual_seed(0)
        if method.by_jacobian and probe.example(1, fixed)[0].numel() > LARGEST:
            continue
        results.append(Measurement(promise, *method.function(probe, generator)))
    return results


def _probe(subject: Any) -> Any:
    probe = copy.deepcopy(subject)
    if isinstance(probe, torch.nn.Module):
        probe = probe.double().eval()
    return getattr(probe, "promising", probe)
