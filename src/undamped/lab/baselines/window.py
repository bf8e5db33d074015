"""A perceptron over the last steps of a sequence: the baseline without memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.models.task_model import TaskModel


def check_readout(name: str, shape: TaskShape) -> None:
    """Raise an error if a task needs an answer at every step from a model that answers once."""
    if shape.readout != "last":
        raise OptionError(
            f"model '{name}' answers once, after the last step, but the task needs an answer at "
            "every step. Choose a recurrent model."
        )


def as_vectors(inputs: Tensor) -> Tensor:
    """Return inputs as floating-point numbers; the bytes of pixels are scaled to 0 … 1."""
    return inputs / 255 if inputs.dtype == torch.uint8 else inputs


@models.register("window")
class WindowPerceptron(TaskModel):
    """A perceptron that reads the last steps of a sequence and nothing else.

    Its score is what can be had without memory: whatever a task needs from earlier steps is out of
    its reach.

    Equation:
        y = W₂ relu(W₁ (x_{T−w+1}, …, x_T) + b₁) + b₂

    Symbols:
        w window, T length of the sequence; steps before the first one are zero.

    Promise:
        None: it has no state.

    Args:
        shape: Sizes of the task.
        window: The number w of steps that are read.
        hidden_size: Units of the hidden layer.

    Example:
        >>> model = undamped.build("window", shape=undamped.models.TaskShape(3, 2), window=16)
        >>> model(torch.randn(50, 4, 3)).shape
        torch.Size([4, 2])

    Reference:
        The usual baseline of a fixed window, for example of a forecast from lags.
    """

    sequential = True
    input_kinds = frozenset({"vectors", "pixels"})

    def __init__(
        self, shape: TaskShape, *, window: PositiveInt = 64, hidden_size: PositiveInt = 128
    ) -> None:
        super().__init__()
        check_readout("window", shape)
        self.window = window
        self.layers = nn.Sequential(
            nn.Linear(window * shape.input_size, hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, shape.output_size),
        )

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the answers to the last steps of every sequence."""
        x, lengths = as_vectors(batch.inputs), batch.lengths
        size = x.shape[1]
        ends = torch.full((size,), len(x)) if lengths is None else lengths
        offsets = torch.arange(-self.window, 0, device=x.device).unsqueeze(1)
        index = ends.to(x.device) + offsets
        steps = x[index.clamp_min(0), torch.arange(size, device=x.device)]
        steps = steps.masked_fill((index < 0).unsqueeze(-1), 0.0)
        return self.layers(steps.transpose(0, 1).flatten(1)), None
