"""Fields: dy/dt of the neural-ODE family, one file per paper."""

from undamped.ode.fields.augmented import Augmentation, Controlled, DepthNetwork, WithIntegral
from undamped.ode.fields.depth_variant import GalerkinField, GalerkinLinear
from undamped.ode.fields.heavy_ball import HeavyBallField, InitialMomentum, SecondOrderField
from undamped.ode.fields.perceptron import BottleneckField, ConcatSquashField, PerceptronField

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
