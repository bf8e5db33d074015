"""undamped: PyTorch sequence models with long memory.

Layers are in `undamped.nn`, solvers of differential equations in `undamped.ode`, other models in
`undamped.models`, measurements on any `nn.Module` in `undamped.analysis`, and the workbench in
`undamped.lab` (`pip install 'undamped[lab]'`). Everything is imported on first access.
"""

from undamped._base.lazy import lazy_names
from undamped.version import __version__ as __version__

_NAMES = {
    "NeuralODE": "undamped.ode.flows",
    "SequenceClassifier": "undamped.lab.estimators",
    "SequenceForecaster": "undamped.lab.estimators",
    "SequenceRegressor": "undamped.lab.estimators",
    "__version__": "undamped.version",
    "accelerate": "undamped.nn.acceleration",
    "build": "undamped.models.by_name",
    "diagnose": "undamped.lab.report",
    "doctor": "undamped.analysis",
    "load": "undamped.lab.training.zoo_runs",
    "odeint": "undamped.ode",
    "odeint_adjoint": "undamped.ode",
    "plain_loops": "undamped.kernels.dispatch",
    "restore": "undamped.nn.acceleration",
    "solve": "undamped.ode",
}

_PACKAGES = ("analysis", "extend", "lab", "models", "nn", "ode")

__getattr__, __dir__ = lazy_names(__name__, _NAMES, _PACKAGES)
