"""Fields: dy/dt of the neural-ODE family, one file per paper."""

from importlib import import_module
from typing import Any

from undamped.ode.fields.augmented import Augmentation
from undamped.ode.fields.bottleneck import BottleneckField
from undamped.ode.fields.concat_squash import ConcatSquashField
from undamped.ode.fields.data_controlled import Controlled, DepthNetwork
from undamped.ode.fields.depth_variant import GalerkinField, GalerkinLinear
from undamped.ode.fields.heavy_ball import HeavyBallField, InitialMomentum, SecondOrderField
from undamped.ode.fields.integral_loss import WithIntegral
from undamped.ode.fields.perceptron import PerceptronField

__all__ = [
    "Augmentation",
    "BottleneckField",
    "ConcatSquashField",
    "Controlled",
    "DepthNetwork",
    "GalerkinField",
    "GalerkinLinear",
    "HeavyBallField",
    "InitialMomentum",
    "PerceptronField",
    "SecondOrderField",
    "WithIntegral",
]

_FLOWS = ("ContinuousFlow", "FlowResult", "NeuralODE", "StableResidual", "StackedODE")


def __getattr__(name: str) -> Any:
    """Find what integrates a field in `undamped.ode.flows`, where it lives now."""
    if name in _FLOWS:
        return getattr(import_module("undamped.ode.flows"), name)
    raise AttributeError(f"module 'undamped.ode.fields' has no attribute '{name}'")
