"""The TaskModel contract: what training, evaluation, prediction and reports call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple, get_args

import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, explain
from undamped._base.options import Option, signature_options
from undamped._base.packages import require
from undamped._base.registry import models
from undamped.models.model_stream import ModelStream, StepStream

EVALUATIONS = ("evaluations", "evaluations_backward")
"""What a model with a field counts in a pass: calls of the field, forward and backward."""


TaskLoss = Callable[[Tensor, Batch], Tensor]
"""The loss of a task: predictions and their batch in, one number out."""


class Aim(NamedTuple):
    """What one pass of training came to.

    Args:
        total: What training makes small.
        loss: The task's loss of the prediction, comparable with the loss of any other model.
        prediction: The answers, for the metric.
        state: The state at the end of the batch.
    """

    total: Tensor
    loss: Tensor
    prediction: Tensor
    state: Any = None


class TaskModel(nn.Module, ABC):
    """A whole model that answers a task: a batch goes in, predictions and a state come out.

    `SequenceModel` and `PointModel` make one of any network. A model that needs more of a batch
    than they hand on (pictures, times of targets) is a `TaskModel` of its own, registered under
    its own name; its constructor takes the `TaskShape` as `shape` and then its options.

    Example:
        >>> @models.register("my-model")
        ... class MyModel(TaskModel):
        ...     uses = frozenset({"pictures"})
        ...
        ...     def __init__(self, shape: TaskShape, *, hidden_size: Units = 32) -> None: ...
        ...     def run(self, batch, state=None): ...
    """

    uses: ClassVar[frozenset[Use]] = frozenset()
    """What of a batch beyond inputs and lengths the model can use."""
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number"})
    """What kinds of answers the model gives."""
    input_kinds: ClassVar[frozenset[InputKind]] = frozenset(get_args(InputKind))
    """What kinds of inputs the model reads."""
    sequential: ClassVar[bool | None] = None
    """Whether it reads sequences (True), single points (False), or both (None)."""
    own_data: ClassVar[str] = "recordings"
    """The task that files of one's own become for this model."""
    differentiable: ClassVar[bool] = True
    """Whether it is trained by gradients; instruments that follow them ask."""
    packages: ClassVar[tuple[str, ...]] = ()
    """What has to be installed beyond the core, as it is imported."""
    learns_quantiles: ClassVar[bool] = False
    """Whether it answers with the quantiles a forecast asks for; otherwise it is asked for one
    value, and its quantiles come from its errors on validation data alone."""
    weighs_sequences: ClassVar[bool] = True
    """Whether sequences that count differently in the task's loss do so in all that is learnt."""
    reads_whole_past: ClassVar[bool] = False
    """Whether a forecast reads all that was before it, and not the last window."""
    carries_on: bool = False
    """Whether `run` can go on from the state that an earlier one returned."""

    @abstractmethod
    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the predictions for a batch, and the state at its end (None if there is none)."""

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> Aim:
        """Return what training makes small, and what it may report beside it.

        The task's loss, unless a model has a better one: a likelihood of all it saw, a bound on
        it from several draws, a weight that grows while it learns. Such an objective needs parts
        of the model that no prediction shows, so it is the model's and not the task's; and since
        every model has this method, training calls it and never asks what kind of model it has.
        Validation and tests compare predictions with the task's own loss and metric.

        Args:
            batch: What to learn from.
            loss: The loss of the task.
            state: Where to go on from.
        """
        prediction, state = self.run(batch, state)
        value = loss(prediction, batch)
        total = value
        for further in self.further_predictions():
            total = total + loss(further, batch)
        return Aim(total, value, prediction, state)

    @property
    def dtype(self) -> torch.dtype:
        """The type the model computes in."""
        return next(self.parameters()).dtype

    def forward(
        self, inputs: Tensor | Batch, lengths: Tensor | None = None, state: Any = None
    ) -> Tensor:
        """Return the predictions for a batch, or for inputs alone."""
        batch = inputs if isinstance(inputs, Batch) else Batch(inputs, lengths=lengths)
        return self.run(batch, state)[0]

    @property
    def why_no_stream(self) -> str:
        """What keeps the model from answering samples one by one, as a message says what came."""
        return "one that reads single vectors" if self.sequential is False else "another model"

    def evaluations(self) -> dict[str, int]:
        """Return how often the last pass called a field, forward and backward; often nothing."""
        counted = getattr(self, "network", self)
        return {
            name: count
            for name in EVALUATIONS
            if isinstance(count := getattr(counted, name, None), int)
        }

    def further_predictions(self) -> list[Tensor]:
        """Return predictions of the last pass that are to be as good as the one it returned.

        `objective` adds the task's loss of each; usually there are none.
        """
        return []

    def found(self) -> list[str]:
        """Return sentences about what the weights say, for the person who trained them."""
        return []

    def notes(self) -> list[str]:
        """Return sentences about what was chosen, for the person who trains."""
        return []

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a small task that the model can answer, to try it on."""
        kind, sequential = sorted(cls.input_kinds)[0], cls.sequential is not False
        return TaskShape(2, 2, kind, sequential=sequential, answer=sorted(cls.answers)[0])

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Go through a pass part by part: what each is called, and its values.

        Training looks for the first part that is not finite when a loss is not.
        """
        yield "the output of the model", self.run(batch)[0]

    def start_embedding(self, vectors: Tensor) -> None:
        """Let the embedding of symbols start from vectors (symbols, size) that are known."""
        embedding = getattr(self, "embedding", None)
        if not isinstance(embedding, nn.Embedding) or embedding.weight.shape != vectors.shape:
            raise OptionError(
                explain(
                    "model.embedding_size",
                    expected=f"{vectors.shape[1]}, the size of the task's vectors",
                    got=embedding.weight.shape[1] if isinstance(embedding, nn.Embedding) else 0,
                    remedy="Leave it out.",
                )
            )
        with torch.no_grad():
            embedding.weight.copy_(vectors)

    @classmethod
    def declared_options(cls) -> dict[str, Option]:
        """Return the options of the constructor; `shape` is the task's, not the user's."""
        return {n: option for n, option in signature_options(cls).items() if n != "shape"}


class StreamingModel(TaskModel):
    """A model that can also be fed one sample after the other."""

    @abstractmethod
    def step(
        self,
        x: Tensor,
        state: Any = None,
        dt: Tensor | float | None = None,
        *,
        observed: Tensor | None = None,
        ahead: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Take one sample of a stream; return the answer so far and the state.

        Args:
            x: The sample, (batch, …).
            state: What the step before returned.
            dt: (batch,) the time since the sample before, for a model that uses times; 0 for the
                first.
            observed: (batch, features) what was measured, for a model that uses that.
            ahead: (outputs,) how long after the sample answers are asked for, of a model that
                answers at given times: (outputs, batch, …) is returned then.
        """

    def stream(self, ahead: Tensor | None = None) -> ModelStream:
        """Return an object that is fed with the samples of one stream, and answers when asked.

        Args:
            ahead: (outputs,) how long after a sample answers are asked for, of a model that
                answers at given times; None for any other.
        """
        return StepStream(self, ahead)


def refuse_unfit(
    name: str,
    model: type[TaskModel],
    shape: TaskShape,
    answers: frozenset[Answer] | None = None,
) -> None:
    """Refuse a model that cannot use what a task needs, or does not answer what it asks.

    One whose packages are not installed is refused too.

    Args:
        name: The registry name of the model.
        model: Its class, or that of the model around it.
        shape: The shape of the task.
        answers: The kinds of answers it gives, where the network inside knows better.
    """
    require(name, *model.packages)
    able = model.answers if answers is None else answers
    remedy = "Choose another model or another task; 'undamped list' shows all."
    if shape.input_kind not in model.input_kinds or model.sequential not in (
        None,
        shape.sequential,
    ):
        expected = f"a model that reads {_inputs(shape.input_kind, shape.sequential)}"
        kinds = " or ".join(sorted(model.input_kinds))
        got = f"one that reads {_inputs(kinds, model.sequential)}"
        found = [n for n in models if _made_for(models[n], shape)]
        remedy = f"Choose one of: {', '.join(found)}." if found else remedy
    elif missing := shape.needs - model.uses:
        expected = f"a model that can use {_listed(shape.needs)}, as this task needs it"
        got = f"one that cannot use {_listed(missing)}"
    elif shape.answer not in able:
        expected = f"a model whose answer is a {shape.answer}, as this task asks for"
        got = f"one whose answer is a {' or a '.join(sorted(able))}"
        found = [n for n in models if shape.answer in answers_of(models[n]) and _reads(n, shape)]
        remedy = f"Choose one of: {', '.join(found)}." if found else remedy
    elif shape.weighted and not model.weighs_sequences:
        expected = "a model that can let sequences count differently (sample_weight)"
        got = "one whose objective has no place for their weights"
        remedy = "Leave the weights out, or choose another model, such as bank or gru."
    else:
        return
    raise OptionError(explain(name, expected=expected, got=got, remedy=remedy))


def answers_of(member: Any) -> frozenset[Answer]:
    """Return the kinds of answers a member of the registry gives."""
    return getattr(member, "answers", TaskModel.answers)


def _made_for(member: Any, shape: TaskShape) -> bool:
    """Whether a member is a whole model of this kind of inputs, and of few others."""
    return (
        isinstance(member, type)
        and issubclass(member, TaskModel)
        and shape.input_kind in member.input_kinds
        and member.sequential in (None, shape.sequential)
        and len(member.input_kinds) < len(get_args(InputKind))
    )


def _reads(name: str, shape: TaskShape) -> bool:
    """Whether a member reads inputs of a shape; of networks without a word about it, any."""
    member = models[name]
    kinds = getattr(member, "input_kinds", None)
    if kinds is None:
        return shape.input_kind != "states"
    return shape.input_kind in kinds and member.sequential in (None, shape.sequential)


def _inputs(kinds: str, sequential: bool | None) -> str:
    return {True: f"sequences of {kinds}", False: f"single {kinds}", None: kinds}[sequential]


def _listed(uses: frozenset[Use]) -> str:
    words = {
        "times": "the times of the inputs",
        "observed": "which inputs were observed",
        "pictures": "pictures",
        "target_times": "the times of the answers",
    }
    return " and ".join(words[use] for use in sorted(uses))
