"""`undamped.build`: any model by its registry name."""

from __future__ import annotations

from typing import Any

from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.registry import models
from undamped.models.task_model import TaskModel


def build(name: str, **options: Any) -> Any:
    """Build any model by its registry name.

    Args:
        name: A name from `undamped list`.
        options: Its options; unknown names and values out of range are refused with a sentence. A
            whole model also takes the `shape` of its task.

    Example:
        >>> net = undamped.build("unicornn", input_size=6, hidden_size=32, num_layers=2)
    """
    member = models[name]
    if not (isinstance(member, type) and issubclass(member, TaskModel)):
        return models.build(name, **options)
    shape = options.pop("shape", None)
    if not isinstance(shape, TaskShape):
        raise OptionError(
            explain(
                name,
                expected="the shape of its task",
                got="none" if shape is None else type(shape).__name__,
                remedy="For example shape=undamped.lab.tasks.build('rmts').task_shape.",
            )
        )
    # Imported here, since recurrent layers do not need it.
    from undamped.models.for_task import check_options, model_for

    return model_for(shape, name, check_options(name, options))
