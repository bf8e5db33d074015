"""The elementwise parts of `coupled_scan`; their kernels are named after the cells they serve."""

from undamped.kernels.coupled.steps.declared import (
    ComplexModRelu,
    CoupledOscillator,
    Euler,
    FastGate,
    GatedEuler,
    GatedOrthogonal,
    GatedRecurrent,
    Iterated,
    LeakyRelu,
    LightRecurrence,
    Lipschitz,
    LongExpressive,
    LongShort,
    ModRelu,
    Tanh,
    WeightedSum,
)

__all__ = [
    "ComplexModRelu",
    "CoupledOscillator",
    "Euler",
    "FastGate",
    "GatedEuler",
    "GatedOrthogonal",
    "GatedRecurrent",
    "Iterated",
    "LeakyRelu",
    "LightRecurrence",
    "Lipschitz",
    "LongExpressive",
    "LongShort",
    "ModRelu",
    "Tanh",
    "WeightedSum",
]
