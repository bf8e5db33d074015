"""undamped: PyTorch sequence models with long memory.

Written by `python -m undamped.lab.catalogue`; do not edit.
"""

from undamped import analysis as analysis
from undamped import extend as extend
from undamped import lab as lab
from undamped import models as models
from undamped import nn as nn
from undamped import ode as ode
from undamped.analysis import doctor as doctor
from undamped.kernels.dispatch import plain_loops as plain_loops
from undamped.lab.estimators import SequenceClassifier as SequenceClassifier
from undamped.lab.estimators import SequenceForecaster as SequenceForecaster
from undamped.lab.estimators import SequenceRegressor as SequenceRegressor
from undamped.lab.report import diagnose as diagnose
from undamped.lab.training.zoo_runs import load as load
from undamped.models.by_name import build as build
from undamped.nn.acceleration import accelerate as accelerate
from undamped.nn.acceleration import restore as restore
from undamped.ode import odeint as odeint
from undamped.ode import odeint_adjoint as odeint_adjoint
from undamped.ode import solve as solve
from undamped.ode.flows import NeuralODE as NeuralODE
from undamped.version import __version__ as __version__
