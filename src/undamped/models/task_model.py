"""The contract of models that training, evaluation, prediction and reports use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import Option, signature_options
from undamped._base.packages import require
from undamped._base.promises import Promise
from undamped._base.registry import models

EVALUATIONS = ("evaluations", "evaluations_backward")
"""Counters of a model with a field: evaluations of the field, forward and backward."""

Readout = Literal["last", "every", "mean"]
TaskLoss = Callable[[Tensor, Batch], Tensor]
"""The loss of a task, a function of predictions and their batch."""


class LossOutput(NamedTuple):
    """The result of one training pass.

    Args:
        total: What training minimises.
        loss: The task's loss of the prediction, comparable with the loss of any other model.
        prediction: The prediction, for the metric.
        state: The state at the end of the batch.
    """

    total: Tensor
    loss: Tensor
    prediction: Tensor
    state: Any = None


class TaskModel(nn.Module, ABC):
    """A model of a task, from a batch to predictions and a state.

    `SequenceModel` and `PointModel` build one from any network. A model that needs more of a batch
    (images, times of targets) is a `TaskModel` registered under its own name; its constructor
    takes the `TaskShape` as `shape` and then its options.

    Example:
        >>> @models.register("my-model")
        ... class MyModel(TaskModel):
        ...     uses = frozenset({"pictures"})
        ...
        ...     def __init__(self, shape: TaskShape, *, hidden_size: Units = 32) -> None: ...
        ...     def run(self, batch, state=None): ...
    """

    uses: ClassVar[frozenset[Use]] = frozenset()
    """Parts of a batch besides inputs and lengths that the model can use."""
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number"})
    """Kinds of predictions the model makes."""
    input_kinds: ClassVar[frozenset[InputKind]] = frozenset(get_args(InputKind))
    """Kinds of inputs the model reads."""
    sequential: ClassVar[bool | None] = None
    """Whether the model reads sequences (True), single points (False), or both (None)."""
    own_data: ClassVar[str] = "recordings"
    """The task that is built from the user's files for this model."""
    differentiable: ClassVar[bool] = True
    """Whether the model is trained by gradients, which some instruments need."""
    packages: ClassVar[tuple[str, ...]] = ()
    """Import names of optional packages that the model needs."""
    learns_quantiles: ClassVar[bool] = False
    """Whether the model predicts the quantiles of a forecast; otherwise it predicts one value, and
    quantiles are computed from its errors on validation data."""
    weighs_sequences: ClassVar[bool] = True
    """Whether the whole objective of the model respects weights of sequences."""
    reads_whole_past: ClassVar[bool] = False
    """Whether a forecast reads the whole past, and not the last window."""
    promises: tuple[Promise, ...] = ()
    """What the model claims about its signals and gradients."""
    carries_on: bool = False
    """Whether `run` can continue from the state that an earlier call returned."""

    @abstractmethod
    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the predictions for a batch, and the state at its end (None for no state)."""

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> LossOutput:
        """Return the quantity that training minimises, with loss and prediction.

        By default it is the task's loss. A model may override it, for example by the likelihood of
        all inputs or a bound on it. Validation and tests use the task's loss and metric.

        Args:
            batch: The training batch.
            loss: The loss of the task.
            state: The state to continue from.
        """
        prediction, state = self.run(batch, state)
        value = loss(prediction, batch)
        total = value
        for further in self.further_predictions():
            total = total + loss(further, batch)
        return LossOutput(total, value, prediction, state)

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the parameters."""
        return next(self.parameters()).dtype

    def forward(
        self, inputs: Tensor | Batch, lengths: Tensor | None = None, state: Any = None
    ) -> Tensor:
        """Return the predictions for a batch, or for inputs without further data."""
        batch = inputs if isinstance(inputs, Batch) else Batch(inputs, lengths=lengths)
        return self.run(batch, state)[0]

    @property
    def why_no_stream(self) -> str:
        """Why the model cannot predict sample by sample, as part of an error message."""
        return "one that reads single vectors" if self.sequential is False else "another model"

    def evaluations(self) -> dict[str, int]:
        """Return the evaluations of a field in the last pass; empty for a model without a field."""
        network = getattr(self, "network", self)
        return {
            name: count
            for name in EVALUATIONS
            if isinstance(count := getattr(network, name, None), int)
        }

    def further_predictions(self) -> list[Tensor]:
        """Return further predictions of the last pass, whose losses `objective` adds."""
        return []

    def findings(self) -> list[str]:
        """Return sentences about what was learned, for the user."""
        return []

    def notes(self) -> list[str]:
        """Return sentences about automatic choices, for the user."""
        return []

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a small task that the model can be built for."""
        kind = "vectors" if "vectors" in cls.input_kinds else sorted(cls.input_kinds)[0]
        sequential = cls.sequential is not False
        return TaskShape(2, 2, kind, sequential=sequential, answer=sorted(cls.answers)[0])

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Yield the name and the values of each part of a pass.

        Training looks for the first part that is not finite when a loss is not.
        """
        yield "the output of the model", self.run(batch)[0]

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return the options of the constructor, without `shape`, which the task sets."""
        return {n: option for n, option in signature_options(cls).items() if n != "shape"}


class Sample(NamedTuple):
    """One sample of a stream; see `StreamingModel.step`."""

    x: Tensor
    dt: Tensor | float | None = None
    observed: Tensor | None = None
    offsets: Tensor | None = None


class StreamingModel(TaskModel):
    """A model that can also predict sample by sample."""

    def step(
        self,
        x: Tensor,
        state: Any = None,
        dt: Tensor | float | None = None,
        *,
        observed: Tensor | None = None,
        offsets: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Take one sample of a stream; return the prediction so far and the state.

        Args:
            x: The sample, (batch, …).
            state: The state that the previous step returned.
            dt: (batch,) or a number, the time since the previous sample, for a model that uses
                times; for the first sample the time since time 0.
            observed: (batch, features) mask of the measured values, for a model that uses it.
            offsets: (outputs,) query times relative to the sample, for a model that predicts at
                given times: (outputs, batch, …) is returned then; by default that of the sample.
        """
        return self._step(Sample(x, dt, observed, offsets), state)

    @abstractmethod
    def _step(self, sample: Sample, state: Any) -> tuple[Tensor, Any]:
        """Return the prediction after a sample and the state; see `step`."""


def refuse_unfit(
    name: str, model: type[TaskModel], shape: TaskShape, answers: frozenset[Answer] | None = None
) -> None:
    """Refuse a model that does not fit a task, or whose packages are not installed.

    Args:
        name: The registry name of the model.
        model: Its class, or that of the model around it.
        shape: The shape of the task.
        answers: The kinds of predictions, where those of the network differ from the class.
    """
    require(name, *model.packages)
    kinds = model.answers if answers is None else answers
    remedy = "Choose another model or another task; 'undamped list models' shows all."
    if not _reads(model, shape):
        inputs = " or ".join(sorted(model.input_kinds))
        reason = (
            f"reads {_inputs(inputs, model.sequential)}, and this task has "
            f"{_inputs(shape.input_kind, shape.sequential)}"
        )
        of_some_kinds = [n for n in models if is_kind(n, TaskModel) and _reads(models[n], shape)]
        all_kinds = len(get_args(InputKind))
        names = [n for n in of_some_kinds if len(models[n].input_kinds) < all_kinds]
        remedy = f"Choose one of: {', '.join(names)}." if names else remedy
    elif missing := shape.needs - model.uses:
        reason = f"cannot use {_listed(missing)}, which this task needs"
    elif shape.answer not in kinds:
        predicts = " or a ".join(sorted(kinds))
        reason = f"predicts a {predicts}, and this task needs a {shape.answer}"
        able = [n for n in models if shape.answer in answers_of(models[n])]
        names = [n for n in able if _reads(models[n], shape)]
        remedy = f"Choose one of: {', '.join(names)}." if names else remedy
    elif shape.weighted and not model.weighs_sequences:
        reason = "cannot use weights of sequences (sample_weight)"
        remedy = "Leave the weights out, or choose another model, such as bank or gru."
    else:
        return
    raise OptionError(f"'{name}' {reason}. {remedy}")


def needed_target_times(batch: Batch) -> Tensor:
    """Return the target times of a batch; raise an error if it has none."""
    if batch.target_times is None:
        raise ShapeError("batch.target_times is None, but the model predicts at given times.")
    return batch.target_times


def readout_for(shape: TaskShape, options: Mapping[str, Any], at_times: bool) -> Readout:
    """Return which outputs a readout reads; for predictions at given times it is fixed."""
    readout = options.get("readout")
    if at_times and readout is not None:
        raise OptionError(
            f"model.readout='{readout}' does not apply to predictions at given times. Leave it out."
        )
    return readout or shape.readout


def is_kind(name: str, kind: type) -> bool:
    """Return whether the model called `name` is a class derived from `kind`."""
    return isinstance(models[name], type) and issubclass(models[name], kind)


def answers_of(model: Any) -> frozenset[Answer]:
    """Return the kinds of predictions that a registered class makes."""
    return getattr(model, "answers", TaskModel.answers)


def _reads(model: Any, shape: TaskShape) -> bool:
    """Return whether a model reads inputs of a shape; networks without `input_kinds` read any."""
    kinds = getattr(model, "input_kinds", None)
    if kinds is None:
        return shape.input_kind != "states"
    return shape.input_kind in kinds and model.sequential in (None, shape.sequential)


def _inputs(kinds: str, sequential: bool | None) -> str:
    return {True: f"sequences of {kinds}", False: f"single {kinds}", None: kinds}[sequential]


def _listed(uses: frozenset[Use]) -> str:
    words = {
        "times": "the times of the inputs",
        "observed": "masks of missing inputs",
        "pictures": "images",
        "target_times": "the times of the targets",
    }
    return " and ".join(words[use] for use in sorted(uses))
