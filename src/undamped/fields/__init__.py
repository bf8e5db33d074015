"""Fields: the neural-ODE family, one file per paper."""

from undamped.fields.augmented import Augmentation
from undamped.fields.continuous_flow import (
    BottleneckField,
    ConcatSquashField,
    ContinuousFlow,
    FlowResult,
)
from undamped.fields.data_controlled import Controlled, DepthNetwork
from undamped.fields.depth_variant import GalerkinField, GalerkinLinear, StackedODE
from undamped.fields.heavy_ball import HeavyBallField, InitialMomentum, SecondOrderField
from undamped.fields.integral_loss import WithIntegral
from undamped.fields.neural_ode import NeuralODE
from undamped.fields.perceptron import PerceptronField
from undamped.fields.stable_residual import StableResidual

__all__ = [
    "Augmentation",
    "BottleneckField",
    "ConcatSquashField",
    "ContinuousFlow",
    "Controlled",
    "DepthNetwork",
    "FlowResult",
    "GalerkinField",
    "GalerkinLinear",
    "HeavyBallField",
    "InitialMomentum",
    "NeuralODE",
    "PerceptronField",
    "SecondOrderField",
    "StableResidual",
    "StackedODE",
    "WithIntegral",
]
