"""A model that needs more than inputs, made one that instruments can call with inputs alone."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import ShapeError, explain
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import TaskModel


class WithBatch(nn.Module):
    """A model, and all of a batch but the inputs: times, lengths, what was observed.

    Args:
        model: The model.
        batch: The batch whose times and the like every call has.
    """

    batch_first = False

    def __init__(self, model: TaskModel, batch: Batch) -> None:
        super().__init__()
        self.model = model
        self.batch: Any = batch
        self.input_size = batch.inputs.shape[-1]

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the answers to other inputs of the same shape."""
        if inputs.shape != self.batch.inputs.shape:
            raise ShapeError(
                explain(
                    "inputs",
                    expected=f"{tuple(self.batch.inputs.shape)}, as the batch has times for",
                    got=tuple(inputs.shape),
                    remedy="Measure the model on data of its task.",
                )
            )
        return self.model(self.batch._replace(inputs=inputs))


def for_instruments(model: nn.Module, batch: Batch) -> tuple[nn.Module, Tensor]:
    """Return a model that is called with one tensor, and that tensor.

    A recurrent network is shown what it sees of times and missing values, which are features to
    it; any other model that uses them keeps those of the batch.

    Args:
        model: A model of a task, or any module.
        batch: A batch of the task.
    """
    batch = batch.expanded()
    x = batch.inputs
    if isinstance(model, SequenceModel) and model.reads:
        return model.on_features(), model.encode(batch).detach()
    if x.is_floating_point():
        x = x.to(next(p.dtype for p in model.parameters() if p.is_floating_point()))
    if isinstance(model, TaskModel) and any(
        part is not None for part in (batch.times, batch.observed, batch.target_times)
    ):
        if batch.observed is not None and x.is_floating_point():
            x = x.masked_fill(~batch.observed, 0)
        return WithBatch(model, batch._replace(inputs=x)), x
    return model, x
