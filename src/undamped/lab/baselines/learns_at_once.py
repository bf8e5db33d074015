"""The contract of a model that is learnt in closed form, from all of the data at once."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.promises import Promise
from undamped.models.task_model import TaskModel

Part = Iterable[Batch]
"""A part of a task's data: batches, the same ones however often one goes through them."""


class ClosedFormModel(TaskModel):
    """A model without steps of training.

    It learns from the training part; is scored on the validation part, which it has not seen; and
    then learns from both, with what it chose on the first alone (penalties, thresholds).
    """

    recipe: ClassVar[dict[str, dict[str, int]]] = {"train": {"steps": 40, "batch_size": 50}}
    """Steps are batches where data has no end; where it has one, all of it is learnt from."""

    differentiable: ClassVar[bool] = False
    promises: ClassVar[tuple[Promise, ...]] = ()

    @classmethod
    def check_data(cls, part: Part) -> None:
        """Refuse data that the model cannot learn from, before anything is written; often none.

        Args:
            part: The training data.
        """

    def learnt_numbers(self) -> int:
        """Return how many numbers were learnt from the data."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    @abstractmethod
    def learn(self, part: Part) -> None:
        """Learn from a part, and choose on it whatever has to be chosen.

        Args:
            part: The training data.
        """

    @abstractmethod
    def refit(self, part: Part) -> None:
        """Learn from another part too, without choosing anew, and let go of the data.

        Args:
            part: The validation data.
        """


def check_one_answer(name: str, shape: TaskShape) -> None:
    """Refuse a task that asks at every step.

    Args:
        name: Who answers once a sequence.
        shape: The shape of the task.
    """
    if shape.readout != "last":
        raise OptionError(
            explain(
                name,
                expected="a task with one answer for a sequence",
                got="one that asks at every step",
                remedy="Choose a recurrent network, such as unicornn.",
            )
        )
