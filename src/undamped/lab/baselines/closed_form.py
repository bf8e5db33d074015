"""The base of models that are fitted in closed form, from all training data at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, get_args

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat
from undamped._base.registry import models
from undamped.models.task_model import Sample, StreamingModel, TaskModel

Batches = Iterable[Batch]
"""A split of a task's data; every iteration returns the same batches."""

_FORMER_PREFIXES = {
    "learnt.": "arrays.",
    "members.": "forecasters.",
    "listeners.damping_share": "dynamics.damping_ratio",
    "listeners.": "dynamics.",
}
"""Prefixes of weights in runs of earlier versions, and their present ones."""


class ClosedFormModel(TaskModel):
    """A model that is fitted without gradient descent.

    It is fitted to the training split, scored on the validation split, and then fitted again to
    both, with the hyperparameters (penalties, thresholds) that the training split determined.
    """

    recipe: ClassVar[dict[str, dict[str, int]]] = {"train": {"steps": 40, "batch_size": 50}}
    """Steps are the batches of an infinite data set; a finite one is used completely."""

    differentiable: ClassVar[bool] = False
    first_use_seconds: ClassVar[float] = 0.0
    """Seconds of one core for the compilation when a machine uses the model for the first time."""

    @classmethod
    def check_data(cls, batches: Batches) -> None:
        """Refuse data that the model cannot be fitted to, before anything is written.

        Args:
            batches: The training split.
        """

    def parameter_count(self) -> int:
        """Return how many numbers were fitted to the data."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    @abstractmethod
    def fit_closed_form(self, batches: Batches) -> None:
        """Fit the model and its hyperparameters.

        Args:
            batches: The training split.
        """

    @abstractmethod
    def refit(self, batches: Batches) -> None:
        """Fit the model to further data too, with unchanged hyperparameters, and release the data.

        Args:
            batches: The validation split.
        """

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for old, new in _FORMER_PREFIXES.items():
            for name in [name for name in state_dict if name.startswith(prefix + old)]:
                state_dict[prefix + new + name.removeprefix(prefix + old)] = state_dict.pop(name)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class FittedArrays(nn.Module):
    """Named buffers whose shapes depend on the training data.

    They are saved with the weights and loaded in whatever shape a file has, since the numbers of
    series and features are unknown when a model is built to load them.

    Example:
        >>> arrays = FittedArrays()
        >>> arrays.store(biases=np.zeros(84))
        >>> arrays["biases"].shape
        torch.Size([84])
    """

    def store(self, **arrays: Tensor | np.ndarray | float) -> None:
        """Add arrays, or replace those of the same names."""
        for name, array in arrays.items():
            self.register_buffer(name, torch.as_tensor(array))

    def __getitem__(self, name: str) -> Tensor:
        """Return an array."""
        return self.get_buffer(name)

    def __contains__(self, name: str) -> bool:
        """Return whether there is an array of this name."""
        return name in dict(self.named_buffers(recurse=False))

    def __len__(self) -> int:
        """Return the number of arrays."""
        return sum(1 for _ in self.named_buffers(recurse=False))

    def parameter_count(self) -> int:
        """Return the number of all floating-point values."""
        return sum(array.numel() for array in self.buffers() if array.is_floating_point())

    def numpy(self, *names: str) -> tuple[np.ndarray, ...]:
        """Return some of them as NumPy arrays."""
        return tuple(self[name].detach().cpu().numpy() for name in names)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, _ in list(self.named_buffers(recurse=False)):
            delattr(self, name)
        for name, array in state_dict.items():
            if name.startswith(prefix):
                self.store(**{name.removeprefix(prefix): array.detach().clone()})


def check_readout(name: str, shape: TaskShape) -> None:
    """Refuse a task with a target at every step.

    Args:
        name: The name of the model, which predicts once per sequence.
        shape: The shape of the task.
    """
    if shape.readout != "last":
        raise OptionError(
            f"{name} makes one prediction per sequence, but the task has a target at every step. "
            "Use a recurrent network, such as unicornn."
        )


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
