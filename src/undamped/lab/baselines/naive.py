"""The naive baseline, which ignores its inputs."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.options import PositiveFloat
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches, ClosedFormModel
from undamped.models.task_model import Sample, StreamingModel


@models.register("guess")
class NaiveBaseline(ClosedFormModel, StreamingModel):
    """Naive baseline: class frequencies, or the mean of the targets.

    Equation:
        answer = log(frequencies of the classes), or mean(targets)

    Promise:
        None.

    Every other model has to be better than this one. It is also the answer when there is no time
    for anything else.

    Args:
        shape: The shape of the task.
        prior: Sequences that are added to the count of each class, so that none is impossible.

    Example:
        >>> model = undamped.lab.baselines.NaiveBaseline(undamped.models.TaskShape(3, 2))
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
        # Sums of the targets, and their counts.
        self.register_buffer("sums", torch.zeros(2, shape.output_size, dtype=torch.float64))

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the same prediction everywhere."""
        axes = slice(1, 2) if self.shape.readout == "last" else slice(0, 2)
        return self.answer.expand(*batch.inputs.shape[axes], -1), None

    def _step(self, sample: Sample, state: Any) -> tuple[Tensor, None]:
        return self.answer.expand(len(sample.x), -1), None

    @torch.no_grad()
    def fit_closed_form(self, batches: Batches) -> None:
        """Count classes, or compute the mean of the targets."""
        self.sums.zero_()
        self.refit(batches)

    @torch.no_grad()
    def refit(self, batches: Batches) -> None:
        """Add further targets to the sums."""
        for batch in batches:
            weights = batch.weights
            if self.shape.answer == "class":
                mask = batch.targets >= 0
                classes = batch.targets[mask].flatten()
                if weights is not None:
                    weights = weights.expand_as(batch.targets)[mask].flatten()
                self.sums[0] += classes.bincount(weights, minlength=self.shape.output_size)
                self.sums[1] += len(classes) if weights is None else weights.sum()
            else:
                rows = batch.targets.double().reshape(-1, self.shape.output_size)
                weights = torch.ones(len(rows)) if weights is None else weights
                self.sums[0] += (rows * weights.double().unsqueeze(1)).nansum(0)
                self.sums[1] += (~rows.isnan() * weights.double().unsqueeze(1)).sum(0)
        if self.shape.answer == "class":
            counts = self.sums[0] + self.prior
            if self.shape.class_weights:
                counts *= torch.tensor(self.shape.class_weights, dtype=counts.dtype)
            self.answer.copy_((counts / counts.sum()).log())
        else:
            self.answer.copy_(self.sums[0] / self.sums[1].clamp_min(1))
