"""Fields: dy/dt of the neural-ODE family, one file per paper."""

from undamped.ode.fields.augmented import Augmentation as Augmentation
from undamped.ode.fields.augmented import Controlled as Controlled
from undamped.ode.fields.augmented import DepthNetwork as DepthNetwork
from undamped.ode.fields.augmented import WithIntegral as WithIntegral
from undamped.ode.fields.depth_variant import GalerkinField as GalerkinField
from undamped.ode.fields.depth_variant import GalerkinLinear as GalerkinLinear
from undamped.ode.fields.heavy_ball import HeavyBallField as HeavyBallField
from undamped.ode.fields.heavy_ball import InitialMomentum as InitialMomentum
from undamped.ode.fields.heavy_ball import SecondOrderField as SecondOrderField
from undamped.ode.fields.perceptron import BottleneckField as BottleneckField
from undamped.ode.fields.perceptron import ConcatSquashField as ConcatSquashField
from undamped.ode.fields.perceptron import PerceptronField as PerceptronField
