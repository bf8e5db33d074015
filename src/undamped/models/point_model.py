"""A task model of single vectors, as `SequenceModel` is one of sequences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from undamped._base.contract import Batch, InputKind, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.task_model import TaskModel, answers_of, is_kind, refuse_unfit
from undamped.nn.recurrent import Recurrent


class PointModel(TaskModel):
    """A registered model that reads vectors, with the interface of a task model.

    Args:
        network: The registry name of the model.
        input_size: Features of the input.
        output_size: Features of the prediction: classes, or regression targets; 0 for the
            log-density of the input, which needs a flow.
        network_options: Options of the model.

    Example:
        >>> model = PointModel("hbnode", input_size=2, output_size=2, hidden_size=16)
        >>> model(torch.randn(8, 2)).shape
        torch.Size([8, 2])
    """

    input_kinds = frozenset[InputKind]({"vectors", "pixels", "states"})
    sequential = False

    def __init__(
        self,
        network: str,
        input_size: PositiveInt,
        output_size: NonNegativeInt,
        **network_options: Any,
    ) -> None:
        super().__init__()
        refuse_recurrent(network)
        answer = "number" if output_size else "density"
        shape = TaskShape(input_size, output_size, sequential=False, answer=answer)
        refuse_unfit(network, PointModel, shape, answers_of(models[network]))
        refuse_condition(network, network_options)
        sizes = {"input_size": input_size} | ({"output_size": output_size} if output_size else {})
        self.network: nn.Module = models.build(network, **sizes, **network_options)

    @classmethod
    def for_task(cls, shape: TaskShape, name: str, options: Mapping[str, Any]) -> PointModel:
        """Build the model for tasks of a shape with the network called `name`."""
        refuse_recurrent(name)
        refuse_unfit(name, cls, shape, answers_of(models[name]))
        outputs = 0 if shape.answer == "density" else shape.output_size
        return cls(name, shape.input_size, outputs, **options)

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return predictions (batch, output), or log-densities (batch,), of points."""
        inputs = batch.expanded().inputs
        if "density" in answers_of(self.network):
            return self.network.log_prob(inputs), None  # type: ignore[operator]
        return self.network(inputs), None

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        yield "the output of network", self.run(batch)[0]


def refuse_recurrent(network: str) -> None:
    """Refuse the network called `network` if it reads sequences."""
    if is_kind(network, Recurrent):
        raise OptionError(
            f"'{network}' is recurrent, and this task has single vectors. Choose another model; "
            "'undamped list models' shows all."
        )


def refuse_condition(network: str, options: Mapping[str, Any]) -> None:
    """Refuse options of a conditional flow, since points have no condition."""
    if options.get("context_size"):
        raise OptionError(
            f"{network}.context_size must be 0 for a task without a condition, got "
            f"{options['context_size']}. A condition can be passed from Python: "
            "flow.log_prob(x, context)."
        )
