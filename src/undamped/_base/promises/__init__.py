"""Promises: what a model claims about its signals and gradients.

A class declares its promises; `undamped.analysis.promises` measures them, one test does so for
the whole registry, and reports print claim and measurement side by side. This module holds
only the declarations, so that cells and fields can make them without importing an instrument,
and the protocols: what a class that makes a promise offers to whoever measures it.
"""

from undamped._base.promises.cells import (
    HasEquilibrium,
    HasFlowJacobian,
    HasFreeMatrix,
    HasGaps,
    HasMargin,
    HasMemory,
    HasMomentum,
    HasRecurrentMatrix,
    HasSpectrum,
    HasStateBound,
    HasStepGradientBound,
    HasStepInverse,
    HasSteps,
)
from undamped._base.promises.flows import (
    HasAdjointBound,
    HasBoundedPath,
    HasConserved,
    HasDampedFlow,
    HasDensity,
    HasFlow,
    HasKeptForm,
    HasLayerJacobian,
    HasLayers,
    HasMethodSteps,
    HasOrthogonalPath,
    HasResidual,
    HasSkewPath,
    HasVolumeRate,
)
from undamped._base.promises.motion import (
    HasConstraints,
    HasMass,
    HasMotion,
    HasPhaseInverse,
    HasPhaseStep,
)
from undamped._base.promises.promise import (
    Kind,
    Promise,
    Promising,
)
from undamped._base.promises.relations import (
    HasRelations,
)

__all__ = [
    "HasAdjointBound",
    "HasBoundedPath",
    "HasConserved",
    "HasConstraints",
    "HasDampedFlow",
    "HasDensity",
    "HasEquilibrium",
    "HasFlow",
    "HasFlowJacobian",
    "HasFreeMatrix",
    "HasGaps",
    "HasKeptForm",
    "HasLayerJacobian",
    "HasLayers",
    "HasMargin",
    "HasMass",
    "HasMemory",
    "HasMethodSteps",
    "HasMomentum",
    "HasMotion",
    "HasOrthogonalPath",
    "HasPhaseInverse",
    "HasPhaseStep",
    "HasRecurrentMatrix",
    "HasRelations",
    "HasResidual",
    "HasSkewPath",
    "HasSpectrum",
    "HasStateBound",
    "HasStepGradientBound",
    "HasStepInverse",
    "HasSteps",
    "HasVolumeRate",
    "Kind",
    "Promise",
    "Promising",
]
