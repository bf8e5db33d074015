"""The base of models that are fitted in closed form, from all training data at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError
from undamped.models.task_model import TaskModel

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
