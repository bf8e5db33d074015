"""Measuring what a model promises.

Each kind of promise has one way of being measured, on random states and inputs in double
precision. A promise is kept when the measured value does not exceed its limit. Each way takes a
copy in double precision, which it may change.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from undamped.analysis.promises import flow, matrix, step
from undamped.analysis.promises.result import Result
from undamped.cells.bases.cell import Cell
from undamped.promises import Kind, Promise


@dataclass(frozen=True)
class Measurement:
    """A claim and what was found."""

    promise: Promise
    value: float
    limit: float
    meaning: str

    @property
    def kept(self) -> bool:
        """Whether the claim holds."""
        return self.value <= self.limit

    def to_dict(self) -> dict[str, Any]:
        """Return claim and measurement for JSON."""
        numbers = {key: value for key, value in asdict(self).items() if key != "promise"}
        return {
            "kind": self.promise.kind.value,
            "claim": self.promise.claim,
            **numbers,
            "kept": self.kept,
        }


def measure(cell: Cell, *, seed: int = 0) -> list[Measurement]:
    """Measure every promise of a cell.

    Args:
        cell: The cell; a copy in double precision is measured.
        seed: Where random states and inputs come from.
    """
    generator = torch.Generator().manual_seed(seed)
    results = []
    for promise in cell.promises:
        probe = copy.deepcopy(cell).double().eval()
        value, limit, meaning = _MEASURES[promise.kind](probe, generator)
        results.append(Measurement(promise, value, limit, meaning))
    return results


_MEASURES: dict[Kind, Callable[[Any, torch.Generator], Result]] = {
    Kind.BOUNDED_STEP_GRADIENT: step.measure_bounded_step_gradient,
    Kind.STARTS_ISOMETRIC: matrix.measure_isometric,
    Kind.ISOMETRIC: matrix.measure_isometric,
    Kind.INVERTIBLE: step.measure_invertible,
    Kind.VOLUME_PRESERVING: step.measure_volume_preserving,
    Kind.SYMPLECTIC: step.measure_symplectic,
    Kind.BOUNDED_STATE: step.measure_bounded_state,
    Kind.SINGULAR_BAND: matrix.measure_singular_band,
    Kind.SCALED_SPECTRUM: matrix.measure_scaled_spectrum,
    Kind.POLYNOMIAL_GROWTH: matrix.measure_polynomial_growth,
    Kind.STABLE_FLOW: flow.measure_stable_flow,
    Kind.SLOWER_VANISHING: step.measure_slower_vanishing,
    Kind.UNIT_GRADIENT: step.measure_unit_gradient,
}
