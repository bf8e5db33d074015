"""undamped: networks that carry information a long way.

Public names, nothing else. All of them, and the rooms (`undamped.analysis`, `undamped.ode`,
`undamped.lab.data`, …), are loaded when they are asked for; the models among the names are those of
the registry. `__init__.pyi` tells editors and type checkers what there is.
"""

from undamped._base.lazy import lazy_names
from undamped._base.registry import models
from undamped.version import __version__ as __version__

_NAMES = {
    "ContinuousFlow": "undamped.ode.flows",
    "Decoder": "undamped.models.encoder_decoder",
    "EncoderDecoder": "undamped.models.encoder_decoder",
    "NeuralODE": "undamped.ode.flows",
    "SequenceClassifier": "undamped.lab.estimators",
    "SequenceForecaster": "undamped.lab.estimators",
    "SequenceModel": "undamped.models.sequence_model",
    "SequenceRegressor": "undamped.lab.estimators",
    "StableResidual": "undamped.ode.flows",
    "__version__": "undamped.version",
    "build": "undamped.nn.models",
    "odeint": "undamped.ode",
    "odeint_adjoint": "undamped.ode",
    "odeint_dense": "undamped.ode",
    "odeint_event": "undamped.ode",
    "penalty": "undamped.nn.penalties",
    "plain_loops": "undamped.kernels.dispatch",
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES, models.by_class_name)
