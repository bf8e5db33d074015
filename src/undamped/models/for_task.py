"""The model of a task, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undamped._base.contract import TaskShape
from undamped._base.options import Option, check_against, options_of
from undamped._base.registry import models
from undamped.models.irregular.model import TimestampedModel
from undamped.models.irregular.network import TimestampedNetwork
from undamped.models.point_model import PointModel
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import TaskModel, is_kind, refuse_unfit
from undamped.nn.recurrent import Recurrent


def model_for(shape: TaskShape, name: str, options: Mapping[str, Any]) -> TaskModel:
    """Build the model called `name` for tasks of a shape.

    Args:
        shape: The shape of the task.
        name: A registry name: of a task model, a recurrent network or one that reads points.
        options: Its options, and for a recurrent network those of the task model around it.
    """
    model_class = models[name]
    if is_kind(name, TaskModel):
        refuse_unfit(name, model_class, shape)
        shape = shape if model_class.learns_quantiles else shape.points
        return model_class(shape=shape, **options)  # type: ignore[call-arg]
    if not shape.sequential:
        return PointModel.for_task(shape, name, options)
    if is_kind(name, TimestampedNetwork):
        return TimestampedModel.for_task(shape.points, name, options)
    return SequenceModel.for_task(shape, name, options)


def model_options(name: str) -> dict[str, Option]:
    """Return the options of the model called `name`, and of the task model around a network."""
    options = options_of(models[name])
    for network, around in ((Recurrent, SequenceModel), (TimestampedNetwork, TimestampedModel)):
        if is_kind(name, network):
            declared = options_of(around)
            options = {**options, **{option: declared[option] for option in around.settable}}
    return options


def check_options(name: str, options: Mapping[str, Any], *, text: bool = False) -> dict[str, Any]:
    """Check options of the model called `name`; return them converted, and parsed if text."""
    return check_against(name, model_options(name), options, text=text)
