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
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import positive, reference
from undamped.nn import Recurrent
from undamped.nn.bases.block import Block


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
        if method.by_jacobian and _state_size(probe) > LARGEST:
            continue
        results.append(Measurement(promise, *method.function(probe, generator)))
    return results


def _state_size(model: Any) -> int:
    return model.example(1, torch.Generator().manual_seed(0))[0].numel()


def _probe(subject: Any) -> Any:
    probe = copy.deepcopy(subject)
    if isinstance(probe, torch.nn.Module):
        probe = probe.double().eval()
    return getattr(probe, "promising", probe)


@instruments.register("promises")
@dataclass(frozen=True)
class PromiseMeasurements(Result):
    """The promises of a model, each with its measurement.

    `measurements` holds promises, their measured values and the limits of these values.
    """

    measurements: tuple[Measurement, ...]
    name: str = ""

    question = "Does the model have the properties that its paper promises?"
    page_order = 50
    of_motion = True
    of_answers = True
    function = "measure"
    columns = ("promise", "measured", "value", "limit", "")

    @classmethod
    def measure(cls, probe: Probe) -> PromiseMeasurements:
        """Measure the cell of the first layer, or a model of continuous depth as a whole."""
        network = probe.network
        subject: Any = network
        if isinstance(network, Recurrent):
            cell = network.cell(0)
            subject = cell.cell if isinstance(cell, Block) else cell
        measurements = measure(subject, seed=probe.seed) if getattr(subject, "promises", ()) else ()
        if not measurements:
            raise InapplicableError("it has no promises that can be measured")
        return PromiseMeasurements(tuple(measurements), probe.name)

    @property
    def sentence(self) -> str:
        """How many promises hold."""
        holding = sum(measurement.holds for measurement in self.measurements)
        return f"{holding} of {len(self.measurements)} promises hold."

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Each promise with its measurement."""
        return [
            (
                measurement.promise.claim,
                measurement.meaning,
                f"{measurement.value:.3g}",
                f"{measurement.limit:.3g}",
                "✓ holds" if measurement.holds else "✗ broken",
            )
            for measurement in self.measurements
        ]

    @property
    def layout(self) -> Layout:
        """Each value relative to its limit, on a logarithmic axis."""
        last = max(1, len(self.measurements) - 1)
        return Layout(
            "Promises and measurements",
            "index of the promise",
            "measured value relative to its limit",
            "A promise below the line holds.",
            log_y=True,
            background=(reference([0, last], [1, 1], "limit"),),
        )

    def traces(self, style: Style) -> list[Trace]:
        """A point for each promise; a page of several models only has the table."""
        if not style.single:
            return []
        ratios = [m.value / m.limit if m.limit else 0.0 for m in self.measurements]
        claims = [m.promise.claim for m in self.measurements]
        return [
            style.points(
                range(len(ratios)), positive(ratios), "promises", text=claims, mode="markers+text"
            )
        ]
