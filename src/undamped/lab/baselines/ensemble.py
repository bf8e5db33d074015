"""The weighted mean of the predictions of several models that are fitted in closed form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, get_args

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError
from undamped._base.registry import models
from undamped.lab.baselines.closed_form import Batches, ClosedFormModel, check_readout
from undamped.models.for_task import model_for


@models.register("ensemble")
class Ensemble(ClosedFormModel):
    """Ensemble: the weighted mean of the probabilities, or numbers, of several models.

    Equation:
        answer = log Σ_i w_i softmax(answer_i) for classes, Σ_i w_i answer_i for numbers

    Symbols:
        answer_i the answer of model i with its default options; w_i weights, which are divided by
        their sum. `auto` sets them to the fourth power of the accuracy on validation data.

    Promise:
        None.

    Where validation data cannot tell which of several models is best, their mean is seldom worse
    than the best and often better, because different errors cancel. Each model is fitted
    separately, and refuses what it refuses alone. The ensemble cannot follow a stream.

    Args:
        shape: The shape of the task.
        of: The names of the models, which are fitted in closed form.
        weights: Their weights; equal by default.

    Example:
        >>> model = undamped.lab.baselines.Ensemble(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        J. Large, J. Lines, A. Bagnall. A probabilistic classifier ensemble weighting scheme based
        on cross-validated accuracy estimates. Data Mining and Knowledge Discovery, 2019.
    """

    uses: ClassVar[frozenset[Use]] = frozenset(get_args(Use)) - {"target_times"}
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number"})
    input_kinds = frozenset[InputKind]({"vectors", "pixels"})
    sequential = True

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        of: Sequence[str] = ("bank", "boosting"),
        weights: Sequence[float] = (),
    ) -> None:
        super().__init__()
        check_readout("ensemble", shape)
        if len(set(of)) != len(of) or len(of) < 2:
            raise OptionError(
                "ensemble.of must name two or more different models, got "
                f"{', '.join(of) or 'none'}. For example bank,boosting."
            )
        values = torch.tensor(list(weights) or [1.0] * len(of), dtype=torch.float64)
        if len(values) != len(of) or not (values > 0).all() or not values.isfinite().all():
            raise OptionError(
                f"ensemble.weights must be a positive number for each of the {len(of)} models, got "
                f"{', '.join(f'{w:g}' for w in weights)}. Leave it out for equal weights."
            )
        self.shape = shape
        self.weights: list[float] = (values / values.sum()).tolist()
        self.names = tuple(of)
        self.models = nn.ModuleList(_build(shape, name) for name in of)

    @property
    def why_no_stream(self) -> str:
        return "one that needs a whole series before it answers"

    def _models(self) -> list[ClosedFormModel]:
        return [model for model in self.models if isinstance(model, ClosedFormModel)]

    def parameter_count(self) -> int:
        return sum(model.parameter_count() for model in self._models())

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the weighted mean of the predictions."""
        outputs = [model.run(batch)[0] for model in self._models()]
        return mean_prediction(self.shape, outputs, torch.tensor(self.weights)), None

    def fit_closed_form(self, batches: Batches) -> None:
        for model in self._models():
            model.fit_closed_form(batches)

    def refit(self, batches: Batches) -> None:
        for model in self._models():
            model.refit(batches)

    def findings(self) -> list[str]:
        weighted = zip(self.names, self.weights, strict=True)
        return [
            f"The mean of {', '.join(f'{name} ({weight:.0%})' for name, weight in weighted)}.",
            *(
                f"{name}: {sentence}"
                for name, model in zip(self.names, self._models(), strict=True)
                for sentence in model.findings()
            ),
        ]


def mean_prediction(shape: TaskShape, outputs: Sequence[Tensor], weights: Tensor) -> Tensor:
    """Return the weighted mean of predictions (batch, outputs): of probabilities for classes.

    Args:
        shape: The shape of the task.
        outputs: The predictions of each model, logits for classes.
        weights: (models,), their sum is 1.
    """
    stacked = torch.stack([output.to(outputs[0]) for output in outputs])
    weights = weights.to(stacked).view(-1, 1, 1)
    if shape.answer != "class":
        return (weights * stacked).sum(0)
    return (weights.log() + stacked.log_softmax(-1)).logsumexp(0)


def _build(shape: TaskShape, name: str) -> ClosedFormModel:
    model_class = models[name]
    able = isinstance(model_class, type) and issubclass(model_class, ClosedFormModel)
    if not able or model_class is Ensemble or model_class.reads_whole_past:
        raise OptionError(
            "ensemble.of must name models that are fitted in closed form to a window of the data, "
            f"got {name}. For example bank,boosting,quant."
        )
    model = model_for(shape, name, {})
    assert isinstance(model, ClosedFormModel)
    return model
