"""The registry of models by what they are: networks of cells, models of vectors, whole models."""

import torch

from undamped._base.registry import models
from undamped.models import TaskModel
from undamped.models.for_task import model_for
from undamped.models.irregular.network import TimestampedNetwork
from undamped.models.physics.state_model import StateModel
from undamped.nn import Recurrent

CELLS = [name for name in models if issubclass(models[name], Recurrent)]
WHOLE = [name for name in models if issubclass(models[name], TaskModel)]
"""Models whose constructor takes the shape of a task."""
MOVING = [name for name in WHOLE if issubclass(models[name], StateModel)]
"""Models of systems that move."""
STAMPED = [name for name in models if issubclass(models[name], TimestampedNetwork)]
"""Networks that know when their samples came."""
OF_VECTORS = [name for name in models if name not in (*CELLS, *WHOLE, *STAMPED)]


def small_whole(name, **options):
    """Build a whole model for a small task that it can answer."""
    torch.manual_seed(0)
    return model_for(models[name].example_shape(), name, options)
