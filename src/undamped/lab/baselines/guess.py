"""A guess that never looks at its inputs."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.options import PositiveFloat
from undamped._base.registry import models
from undamped.lab.baselines.learns_at_once import ClosedFormModel, Part
from undamped.models.model_stream import Sample
from undamped.models.task_model import StreamingModel


@models.register("guess")
class Guess(ClosedFormModel, StreamingModel):
    """Guess: how often each class occurs, or the mean of the answers.

    Equation:
        answer = log(shares of the classes), or mean(answers)

    Promise:
        None.

    What every other model has to beat, and what is left when there is no time for anything else.

    Args:
        shape: The shape of the task.
        prior: How many sequences of each class are thought in addition, so that none is impossible.

    Example:
        >>> model = undamped.lab.baselines.Guess(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        P.-S. Laplace. Mémoire sur la probabilité des causes par les événements, 1774.
    """

    uses: ClassVar[frozenset[Use]] = frozenset(get_args(Use)) - {"target_times"}
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number"})
    input_kinds = frozenset[InputKind]({"vectors", "pixels", "symbols"})
    sequential = True

    sums: Tensor

    @checked
    def __init__(self, shape: TaskShape, *, prior: PositiveFloat = 1.0) -> None:
        super().__init__()
        self.shape, self.prior = shape, prior
        self.answer = nn.Parameter(torch.zeros(shape.output_size))
        # Sums of the answers, and how many of each there were.
        self.register_buffer("sums", torch.zeros(2, shape.output_size, dtype=torch.float64))

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the same answer everywhere."""
        places = batch.inputs.shape[1:2] if self.shape.readout == "last" else batch.inputs.shape[:2]
        return self.answer.expand(*places, -1), None

    def _step(self, sample: Sample, state: Any) -> tuple[Tensor, None]:
        return self.answer.expand(len(sample.x), -1), None

    @torch.no_grad()
    def learn(self, part: Part) -> None:
        """Count classes, or take the mean of the answers."""
        self.sums.zero_()
        self.refit(part)

    @torch.no_grad()
    def refit(self, part: Part) -> None:
        """Go on counting."""
        for batch in part:
            each = batch.weights
            if self.shape.answer == "class":
                known = batch.targets >= 0
                seen = batch.targets[known].flatten()
                own = None if each is None else each.expand_as(batch.targets)[known].flatten()
                self.sums[0] += seen.bincount(own, minlength=self.shape.output_size)
                self.sums[1] += len(seen) if own is None else own.sum()
            else:
                rows = batch.targets.double().reshape(-1, self.shape.output_size)
                own = torch.ones(len(rows)) if each is None else each
                self.sums[0] += (rows * own.double().unsqueeze(1)).nansum(0)
                self.sums[1] += (~rows.isnan() * own.double().unsqueeze(1)).sum(0)
        if self.shape.answer == "class":
            met = self.sums[0] + self.prior
            if self.shape.class_weights:
                met *= torch.tensor(self.shape.class_weights, dtype=met.dtype)
            self.answer.copy_((met / met.sum()).log())
        else:
            self.answer.copy_(self.sums[0] / self.sums[1].clamp_min(1))
