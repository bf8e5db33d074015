"""Fields: dy/dt of the neural-ODE family, one file per paper."""

from importlib import import_module
from typing import Any

from undamped.fields.augmented import Augmentation
from undamped.fields.bottleneck import BottleneckField
from undamped.fields.concat_squash import ConcatSquashField
from undamped.fields.data_controlled import Controlled, DepthNetwork
from undamped.fields.depth_variant import GalerkinField, GalerkinLinear
from undamped.fields.heavy_ball import HeavyBallField, InitialMomentum, SecondOrderField
from undamped.fields.integral_loss import WithIntegral
from undamped.fields.perceptron import PerceptronField

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
    """Find what integrates a field in `undamped.flows`, where it lives now."""
    if name in _FLOWS:
        return getattr(import_module("undamped.flows"), name)
    raise AttributeError(f"module 'undamped.fields' has no attribute '{name}'")
