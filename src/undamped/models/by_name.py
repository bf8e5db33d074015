"""`undamped.build`: any model by its registry name."""

from __future__ import annotations

from typing import Any

from torch import nn

from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.models.task_model import TaskModel, is_kind


def build(name: str, **options: Any) -> nn.Module:
    """Build any model by its registry name.

    Args:
        name: A name from `undamped list`.
        options: Its options; unknown names and values out of range raise an error. A task model
            also takes the `shape` of its task.

    Example:
        >>> net = undamped.build("unicornn", input_size=6, hidden_size=32, num_layers=2)
    """
    if not is_kind(name, TaskModel):
        return models.build(name, **options)
    # Imported here, since recurrent layers do not need it.
    from undamped.models.for_task import check_options, model_for

    shape = options.pop("shape", None)
    options = check_options(name, options)
    if not isinstance(shape, TaskShape):
        raise OptionError(
            f"'{name}' needs the shape of its task, such as "
            "shape=undamped.lab.tasks.build('rmts').task_shape, got "
            f"{'none' if shape is None else type(shape).__name__}."
        )
    return model_for(shape, name, options)
