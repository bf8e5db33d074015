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

from undamped._base import promises
from undamped._base.promises import Kind, Promise, Promising
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.figures import positive, reference
from undamped.analysis.promises import cells, flows, models
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


LARGEST = 256
"""Jacobians of larger states are too large to measure: such promises are left out."""


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
        required, function = _MEASURES[promise.kind]
        probe = _probe(subject)
        if not isinstance(probe, required):
            raise TypeError(
                f"{type(subject).__name__} promises {promise.kind.value} but lacks methods of "
                f"{getattr(required, '__name__', required)}. Implement them, or remove the promise."
            )
        if promise.kind in _BY_JACOBIAN and flows.state_size(probe) > LARGEST:
            continue
        value, limit, meaning = function(probe, generator)
        results.append(Measurement(promise, value, limit, meaning))
    return results


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


_BY_JACOBIAN = (
    Kind.PAIRED_SPECTRUM,
    Kind.VOLUME_RATE,
    Kind.PRESERVED_FORM,
    Kind.LOG_DETERMINANT,
)
_MEASURES: dict[Kind, tuple[Any, Callable[[Any, torch.Generator], cells.Outcome]]] = {
    Kind.BOUNDED_STEP_GRADIENT: (
        promises.HasStepGradientBound,
        cells.measure_bounded_step_gradient,
    ),
    Kind.STARTS_ISOMETRIC: (promises.HasRecurrentMatrix, cells.measure_isometric_matrix),
    Kind.ISOMETRIC: (promises.HasRecurrentMatrix, cells.measure_isometric_matrix),
    Kind.INVERTIBLE: (
        promises.HasStepInverse | promises.HasLayers | promises.HasPhaseInverse,
        cells.measure_invertible,
    ),
    Kind.VOLUME_PRESERVING: (
        promises.HasSteps | promises.HasLayers,
        cells.measure_volume_preserving,
    ),
    Kind.SYMPLECTIC: (
        promises.HasSteps | promises.HasLayers | promises.HasPhaseStep,
        cells.measure_symplectic,
    ),
    Kind.BOUNDED_STATE: (promises.HasStateBound, cells.measure_bounded_state),
    Kind.FIXED_STATE: (promises.HasSteps, cells.measure_fixed_state),
    Kind.DIRECT_PATH: (promises.HasMemory, cells.measure_direct_path),
    Kind.SINGULAR_BAND: (promises.HasMargin, cells.measure_singular_band),
    Kind.SCALED_SPECTRUM: (promises.HasSpectrum, cells.measure_scaled_spectrum),
    Kind.POLYNOMIAL_GROWTH: (promises.HasFreeMatrix, cells.measure_polynomial_growth),
    Kind.STABLE_FLOW: (
        promises.HasFlowJacobian | promises.HasLayerJacobian,
        flows.measure_stable_flow,
    ),
    Kind.SLOWER_VANISHING: (promises.HasMomentum, cells.measure_slower_vanishing),
    Kind.UNIT_GRADIENT: (promises.HasEquilibrium, cells.measure_unit_gradient),
    Kind.INVERTIBLE_FLOW: (promises.HasFlow, flows.measure_invertible_flow),
    Kind.PAIRED_SPECTRUM: (promises.HasDampedFlow, flows.measure_paired_spectrum),
    Kind.VOLUME_RATE: (promises.HasVolumeRate, flows.measure_volume_rate),
    Kind.BOUNDED_VELOCITY: (promises.HasDampedFlow, flows.measure_bounded_velocity),
    Kind.CONSERVED: (promises.HasConserved, flows.measure_conserved),
    Kind.PRESERVED_FORM: (promises.HasPreservedForm, flows.measure_preserved_form),
    Kind.ISOMETRIC_FLOW: (promises.HasFlow, flows.measure_isometric_flow),
    Kind.BOUNDED_ADJOINT: (promises.HasAdjointBound, flows.measure_bounded_adjoint),
    Kind.ORTHOGONAL_PATH: (promises.HasOrthogonalPath, flows.measure_orthogonal_path),
    Kind.ISOSPECTRAL: (promises.HasSkewPath, flows.measure_isospectral),
    Kind.BOUNDED_PATH: (promises.HasBoundedPath, flows.measure_bounded_path),
    Kind.LOG_DETERMINANT: (promises.HasDensity, flows.measure_log_determinant),
    Kind.NORMALISED_DENSITY: (promises.HasDensity, flows.measure_normalised_density),
    Kind.PRESERVED_ENERGY: (promises.HasMotion, models.measure_preserved_energy),
    Kind.DIVERGENCE_FREE: (promises.HasMotion, models.measure_divergence_free),
    Kind.POWER_BALANCE: (promises.HasMotion, models.measure_power_balance),
    Kind.PASSIVE: (promises.HasMotion, models.measure_passive),
    Kind.POSITIVE_MASS: (promises.HasMass, models.measure_positive_mass),
    Kind.PRESERVED_CONSTRAINTS: (promises.HasConstraints, models.measure_preserved_constraints),
    Kind.RELATIONS_ONLY: (promises.HasRelations, models.measure_relations_only),
    Kind.ISOMETRIC_GAPS: (promises.HasGaps, models.measure_isometric_gaps),
    Kind.CONTRACTING_GAPS: (promises.HasGaps, models.measure_contracting_gaps),
    Kind.BOUNDED_GAPS: (promises.HasGaps, models.measure_bounded_gaps),
    Kind.SEMIGROUP: (promises.HasGaps, models.measure_semigroup),
    Kind.CORRECTED_ERROR: (promises.HasResidual, models.measure_corrected_error),
    Kind.A_STABLE: (promises.HasMethodSteps, models.measure_a_stable),
    Kind.L_STABLE: (promises.HasMethodSteps, models.measure_l_stable),
}
"""For each kind, the methods that its subject needs, and the function that measures it."""
