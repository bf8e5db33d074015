"""The elementwise parts of `coupled_scan`, named after the cells they serve.

A name brings its module, and with it Numba, when it is first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from undamped.kernels.coupled.steps.activation import ComplexModRelu as ComplexModRelu
    from undamped.kernels.coupled.steps.activation import LeakyRelu as LeakyRelu
    from undamped.kernels.coupled.steps.activation import ModRelu as ModRelu
    from undamped.kernels.coupled.steps.activation import Tanh as Tanh
    from undamped.kernels.coupled.steps.antisymmetric import Euler as Euler
    from undamped.kernels.coupled.steps.antisymmetric import GatedEuler as GatedEuler
    from undamped.kernels.coupled.steps.cornn import CoupledOscillator as CoupledOscillator
    from undamped.kernels.coupled.steps.fastrnn import FastGate as FastGate
    from undamped.kernels.coupled.steps.fastrnn import WeightedSum as WeightedSum
    from undamped.kernels.coupled.steps.goru import GatedOrthogonal as GatedOrthogonal
    from undamped.kernels.coupled.steps.gru import GatedRecurrent as GatedRecurrent
    from undamped.kernels.coupled.steps.incremental import Iterated as Iterated
    from undamped.kernels.coupled.steps.lipschitz import Lipschitz as Lipschitz
    from undamped.kernels.coupled.steps.lstm import LongShort as LongShort
    from undamped.kernels.coupled.steps.sru import LightRecurrence as LightRecurrence

_HOMES = {
    "ComplexModRelu": "activation",
    "CoupledOscillator": "cornn",
    "Euler": "antisymmetric",
    "FastGate": "fastrnn",
    "GatedEuler": "antisymmetric",
    "GatedOrthogonal": "goru",
    "GatedRecurrent": "gru",
    "Iterated": "incremental",
    "LeakyRelu": "activation",
    "LightRecurrence": "sru",
    "Lipschitz": "lipschitz",
    "LongShort": "lstm",
    "ModRelu": "activation",
    "Tanh": "activation",
    "WeightedSum": "fastrnn",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
