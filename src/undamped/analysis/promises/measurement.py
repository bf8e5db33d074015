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

from undamped._base import promises
from undamped._base.errors import explain
from undamped._base.promises import Kind, Promise, Promising
from undamped.analysis.promises import (
    density,
    flow,
    gaps,
    matrix,
    memory,
    motion,
    norms,
    relations,
    solver,
    step,
)
from undamped.analysis.promises.result import Result


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


LARGEST = 256
"""States beyond this have Jacobians too large to measure: such promises are left out."""


def measure(subject: Promising, *, seed: int = 0) -> list[Measurement]:
    """Measure every promise of a cell, a whole model or a method of solution.

    Promises that take the Jacobian of a state of more than 256 numbers are left out.

    Args:
        subject: What makes the promises; a copy in double precision is measured.
        seed: Where random states and inputs come from.

    Example:
        >>> [found.kept for found in measure(undamped.models.HBNODE(2, 2))]
        [True, True, True]
    """
    generator = torch.Generator().manual_seed(seed)
    results = []
    for promise in subject.promises:
        needs, way = _MEASURES[promise.kind]
        probe = _probe(subject)
        if not isinstance(probe, needs):
            raise TypeError(
                explain(
                    f"{type(subject).__name__}, which promises {promise.kind.value}",
                    expected=f"the methods of {getattr(needs, '__name__', needs)}",
                    got="something less",
                    remedy="Write its methods, or take back the promise.",
                )
            )
        if promise.kind in _BY_JACOBIAN and flow.largest_state(probe) > LARGEST:
            continue
        value, limit, meaning = way(probe, generator)
        results.append(Measurement(promise, value, limit, meaning))
    return results


def _probe(subject: Any) -> Any:
    probe = copy.deepcopy(subject)
    if isinstance(probe, torch.nn.Module):
        probe = probe.double().eval()
    return getattr(probe, "promising", probe)


_BY_JACOBIAN = (
    Kind.PAIRED_SPECTRUM,
    Kind.VOLUME_RATE,
    Kind.KEPT_FORM,
    Kind.LOG_DETERMINANT,
)
_MEASURES: dict[Kind, tuple[Any, Callable[[Any, torch.Generator], Result]]] = {
    Kind.BOUNDED_STEP_GRADIENT: (
        promises.HasStepGradientBound,
        step.measure_bounded_step_gradient,
    ),
    Kind.STARTS_ISOMETRIC: (promises.HasRecurrentMatrix, matrix.measure_isometric),
    Kind.ISOMETRIC: (promises.HasRecurrentMatrix, matrix.measure_isometric),
    Kind.INVERTIBLE: (
        promises.HasStepInverse | promises.HasLayers | promises.HasPhaseInverse,
        step.measure_invertible,
    ),
    Kind.VOLUME_PRESERVING: (
        promises.HasSteps | promises.HasLayers,
        step.measure_volume_preserving,
    ),
    Kind.SYMPLECTIC: (
        promises.HasSteps | promises.HasLayers | promises.HasPhaseStep,
        step.measure_symplectic,
    ),
    Kind.BOUNDED_STATE: (promises.HasStateBound, step.measure_bounded_state),
    Kind.FIXED_STATE: (promises.HasSteps, memory.measure_fixed_state),
    Kind.DIRECT_PATH: (promises.HasMemory, memory.measure_direct_path),
    Kind.SINGULAR_BAND: (promises.HasMargin, matrix.measure_singular_band),
    Kind.SCALED_SPECTRUM: (promises.HasSpectrum, matrix.measure_scaled_spectrum),
    Kind.POLYNOMIAL_GROWTH: (promises.HasFreeMatrix, matrix.measure_polynomial_growth),
    Kind.STABLE_FLOW: (
        promises.HasFlowJacobian | promises.HasLayerJacobian,
        flow.measure_stable_flow,
    ),
    Kind.SLOWER_VANISHING: (promises.HasMomentum, step.measure_slower_vanishing),
    Kind.UNIT_GRADIENT: (promises.HasEquilibrium, step.measure_unit_gradient),
    Kind.INVERTIBLE_FLOW: (promises.HasFlow, flow.measure_invertible_flow),
    Kind.PAIRED_SPECTRUM: (promises.HasDampedFlow, flow.measure_paired_spectrum),
    Kind.VOLUME_RATE: (promises.HasVolumeRate, flow.measure_volume_rate),
    Kind.BOUNDED_VELOCITY: (promises.HasDampedFlow, flow.measure_bounded_velocity),
    Kind.CONSERVED: (promises.HasConserved, norms.measure_conserved),
    Kind.KEPT_FORM: (promises.HasKeptForm, norms.measure_kept_form),
    Kind.ISOMETRIC_FLOW: (promises.HasFlow, norms.measure_isometric_flow),
    Kind.BOUNDED_ADJOINT: (promises.HasAdjointBound, norms.measure_bounded_adjoint),
    Kind.ORTHOGONAL_PATH: (promises.HasOrthogonalPath, norms.measure_orthogonal_path),
    Kind.ISOSPECTRAL: (promises.HasSkewPath, norms.measure_isospectral),
    Kind.BOUNDED_PATH: (promises.HasBoundedPath, norms.measure_bounded_path),
    Kind.LOG_DETERMINANT: (promises.HasDensity, density.measure_log_determinant),
    Kind.NORMALISED_DENSITY: (promises.HasDensity, density.measure_normalised_density),
    Kind.KEPT_ENERGY: (promises.HasMotion, motion.measure_kept_energy),
    Kind.DIVERGENCE_FREE: (promises.HasMotion, motion.measure_divergence_free),
    Kind.POWER_BALANCE: (promises.HasMotion, motion.measure_power_balance),
    Kind.PASSIVE: (promises.HasMotion, motion.measure_passive),
    Kind.POSITIVE_MASS: (promises.HasMass, motion.measure_positive_mass),
    Kind.KEPT_CONSTRAINTS: (promises.HasConstraints, motion.measure_kept_constraints),
    Kind.RELATIONS_ALONE: (promises.HasRelations, relations.measure_relations_alone),
    Kind.ISOMETRIC_GAPS: (promises.HasGaps, gaps.measure_isometric),
    Kind.CONTRACTING_GAPS: (promises.HasGaps, gaps.measure_contracting),
    Kind.BOUNDED_GAPS: (promises.HasGaps, gaps.measure_bounded),
    Kind.SEMIGROUP: (promises.HasGaps, gaps.measure_semigroup),
    Kind.CORRECTED_ERROR: (promises.HasResidual, solver.measure_corrected_error),
    Kind.A_STABLE: (promises.HasMethodSteps, solver.measure_a_stable),
    Kind.L_STABLE: (promises.HasMethodSteps, solver.measure_l_stable),
}
"""Each kind: what it asks of its subject, and how it is measured."""
