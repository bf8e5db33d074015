"""What tasks about motion share, whether the system is simulated or somebody's own."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import torch
from torch import Tensor

from undamped._base.contract import Answer, Batch
from undamped._base.options import Default, PositiveInt
from undamped.lab.tasks.task import ArrayTask, Chance

Form = Literal["derivative", "trajectory"]


class LearningOptions(TypedDict, total=False):
    """What is learnt of a motion."""

    form: Annotated[
        Form,
        Default(
            "derivative",
            "Whether states come with their rates, or with the readings that follow them.",
        ),
    ]
    window: Annotated[
        PositiveInt, Default(4, "Readings that follow a start, where form is trajectory.")
    ]
    error: Annotated[
        Literal["squared", "absolute"],
        Default("squared", "Whether training makes squared errors small, or absolute ones."),
    ]


class LearnsMotion(ArrayTask):
    """A task whose inputs are states: rates or later states are the answers.

    Args:
        seed: Where the order of training comes from.
        options: See `LearningOptions`; complete, as `checked` hands them on.
    """

    recipes: ClassVar = {
        "*": {
            "train": {
                "steps": 2000,
                "batch_size": 256,
                "schedule": "cosine",
            },
        }
    }
    sequential: ClassVar[bool] = False
    input_kind = "states"
    higher_is_better = False
    metric = "mse"

    def __init__(self, seed: int, options: Any) -> None:
        super().__init__(seed)
        self.form: Form = options["form"]
        self.answer: Answer = "number" if self.form == "derivative" else "trajectory"
        self.window: int = options["window"]
        self.absolute = options["error"] == "absolute"

    def loss(self, prediction: Tensor, batch: Batch) -> Tensor:
        """Mean squared or absolute error."""
        if not self.absolute:
            return super().loss(prediction, batch)
        return (prediction - batch.targets.to(prediction.dtype)).abs().mean()

    @property
    def chance(self) -> Chance:
        """The mean rate of training, or no motion at all, on the test part."""
        return self._chance

    @cached_property
    def _chance(self) -> Chance:
        nothing = torch.Generator()
        test = self.take("test", torch.arange(self.sequences("test")), nothing)
        if self.form == "derivative":
            train = self.take("train", torch.arange(self.sequences("train")), nothing)
            guess, words = train.targets.mean(0).expand_as(test.targets), "always the mean rate"
        else:
            guess = test.inputs[:, : self.output_size].expand_as(test.targets)
            words = "it stays where it is"
        error = (guess - test.targets).double()
        squared = error.square().mean().item()
        loss = error.abs().mean().item() if self.absolute else squared
        return Chance(loss=loss, metric=squared, rule=words)
