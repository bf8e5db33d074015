"""A trained model as plain values: sizes, options and arrays, from which it is built again.

That is what a pickle of an estimator holds. A live module would drag compiled kernels, hooks and
whatever else hangs on it into the file.
"""

from __future__ import annotations

from typing import Any

import torch

from undamped._base.contract import TaskShape
from undamped.models.for_task import model_for
from undamped.models.task_model import TaskModel

Frozen = dict[str, Any]


def freeze(model: TaskModel, name: str, options: dict[str, Any], shape: dict[str, Any]) -> Frozen:
    """Return a model as plain values.

    Args:
        model: The trained model.
        name: Its registry name.
        options: The options it was built with.
        shape: The shape of its task, as plain values.
    """
    return {
        "name": name,
        "shape": shape,
        "options": options,
        # A copy: the arrays must not change when the module is trained on.
        "weights": {key: value.cpu().numpy().copy() for key, value in model.state_dict().items()},
    }


def thaw(frozen: Frozen) -> TaskModel:
    """Build a model again, ready to predict, without touching anybody's random numbers."""
    with torch.random.fork_rng(devices=[]):
        shape = TaskShape.from_dict(frozen["shape"])
        model = model_for(shape, frozen["name"], frozen["options"])
    weights = {key: torch.as_tensor(value) for key, value in frozen["weights"].items()}
    model.load_state_dict(weights)
    return model.eval()
