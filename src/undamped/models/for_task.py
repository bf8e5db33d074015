"""The model that answers a task, by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from undamped._base.contract import TaskShape
from undamped._base.options import Option, check_against, options_of
from undamped._base.registry import models
from undamped.models.irregular.model import StampedModel
from undamped.models.irregular.network import StampedNetwork
from undamped.models.point_model import PointModel
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import TaskModel, refuse_unfit
from undamped.nn.recurrent import Recurrent


def model_for(shape: TaskShape, name: str, options: Mapping[str, Any]) -> TaskModel:
    """Build the model called `name` for tasks of a shape.

    Args:
        shape: The shape of the task.
        name: A registry name: a whole model, a recurrent network or one that reads points.
        options: Its options, and for a recurrent network those of the model around it.
    """
    member = models[name]
    if isinstance(member, type) and issubclass(member, TaskModel):
        refuse_unfit(name, member, shape)
        asked = shape if member.learns_quantiles else shape.points
        return member(shape=asked, **options)  # type: ignore[call-arg]
    if shape.sequential and isinstance(member, type) and issubclass(member, StampedNetwork):
        return StampedModel.for_task(shape.points, name, options)
    if shape.sequential:
        return SequenceModel.for_task(shape, name, options)
    return PointModel.for_task(shape, name, options)


def refuse_misfit(shape: TaskShape, name: str) -> None:
    """Refuse a model that cannot answer tasks of a shape, without building it.

    Args:
        shape: The shape of the task.
        name: The registry name of the model.
    """
    member = models[name]
    if isinstance(member, type) and issubclass(member, TaskModel):
        refuse_unfit(name, member, shape)


def model_options(name: str) -> dict[str, Option]:
    """Return what can be set of the model called `name`, and of the model around its network."""
    member = models[name]
    own = options_of(member)
    for network, whole in ((Recurrent, SequenceModel), (StampedNetwork, StampedModel)):
        if isinstance(member, type) and issubclass(member, network):
            around = options_of(whole)
            own = {**own, **{option: around[option] for option in whole.settable}}
    return own


def check_options(name: str, options: Mapping[str, Any], *, text: bool = False) -> dict[str, Any]:
    """Check options of the model called `name`, and return them converted.

    Args:
        name: The registry name of the model.
        options: Names and values.
        text: Whether strings are to be parsed, as they come from a command line.
    """
    return check_against(name, model_options(name), options, text=text)
