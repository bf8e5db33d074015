"""Gradient boosting on summaries of series, by scikit-learn."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape, Use
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.ridge import row_weights
from undamped.lab.baselines.summaries import summary
from undamped.lab.baselines.trees import NAMES, tree_arrays, tree_values
from undamped.lab.baselines.whole_series import Collected, WholeSeriesModel

_NEVER = -10.0  # the logit of a class that no training series had


@models.register("boosting")
class SummaryBoosting(WholeSeriesModel):
    """Boosted trees on summaries: levels, changes, echoes, spectrum and quarters of each channel.

    Equation:
        answer = F_0 + η Σ_m tree_m(φ),  tree_m fitted to what F_{m−1} left over

    Symbols:
        φ summaries of a series, a few dozen numbers for each channel; η the rate; F_0 the guess.

    Promise:
        None.

    Learnt by scikit-learn; what a run keeps are the trees as arrays, and its answers do not need
    scikit-learn any more. Lengths may differ and values may be missing; a stream cannot be
    answered.

    Args:
        shape: The shape of the task.
        rounds: Trees for every answer.
        rate: How much of each tree is added.
        depth: How many questions a tree asks one after the other.

    Example:
        >>> model = undamped.lab.baselines.SummaryBoosting(undamped.models.TaskShape(3, 2))
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        J. H. Friedman. Stochastic gradient boosting. Computational Statistics & Data Analysis,
        2002.
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"observed"})
    packages = ("sklearn",)

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        rounds: PositiveInt = 100,
        rate: PositiveFloat = 0.1,
        depth: PositiveInt = 3,
    ) -> None:
        super().__init__(shape)
        self.rounds, self.rate, self.depth = rounds, rate, depth

    def _learn_from(self, collected: Collected, *, choose: bool) -> None:
        if choose:
            self.learnt.keep(seed=torch.randint(1 << 31, ()))
        x = _summaries(collected.series, collected.observed)
        self.offset.zero_()
        weights = row_weights(self.shape, collected.answers, collected.weights)
        each = None if weights is None else weights.numpy()
        if self.shape.answer == "class":
            ensembles = self._learn_classes(x, collected.answers.argmax(1).numpy(), each)
        else:
            ensembles = self._learn_numbers(x, collected.answers.numpy(), each)
        if not ensembles:
            return
        trees = [tree.tree_ for one in ensembles for tree in one.estimators_.ravel()]
        self.learnt.keep(**tree_arrays(trees, self.rate))
        start = np.concatenate([_start(one, x[:1], self.rate) for one in ensembles])
        self.offset[self.learnt["outputs"]] = torch.from_numpy(start).to(self.offset.dtype)

    def _learn_classes(
        self, x: np.ndarray, classes: np.ndarray, weights: np.ndarray | None
    ) -> list[Any]:
        from sklearn.ensemble import GradientBoostingClassifier

        met = np.unique(classes)
        self.offset.fill_(_NEVER)
        # Of two classes the second has all trees, and the first an answer of 0.
        self.offset[torch.from_numpy(met)] = 0.0
        if len(met) == 1:
            self.learnt.keep(outputs=torch.zeros(0, dtype=torch.int64))
            return []
        self.learnt.keep(outputs=torch.from_numpy(met if len(met) > 2 else met[1:]))
        return [GradientBoostingClassifier(**self._settings()).fit(x, classes, weights)]

    def _learn_numbers(
        self, x: np.ndarray, answers: np.ndarray, weights: np.ndarray | None
    ) -> list[Any]:
        from sklearn.ensemble import GradientBoostingRegressor

        self.learnt.keep(outputs=torch.arange(answers.shape[1]))
        return [
            GradientBoostingRegressor(**self._settings()).fit(x, one, weights) for one in answers.T
        ]

    def _settings(self) -> dict[str, Any]:
        return {
            "n_estimators": self.rounds,
            "learning_rate": self.rate,
            "max_depth": self.depth,
            "max_features": "sqrt",
            "subsample": 0.8,
            "random_state": int(self.learnt["seed"]),
        }

    def _answers(self, series: list[np.ndarray], observed: list[np.ndarray]) -> Tensor:
        outputs = self.learnt["outputs"]
        answers = torch.zeros(len(series), self.shape.output_size, dtype=torch.float64)
        if not len(outputs):
            return answers
        x = torch.from_numpy(_summaries(series, observed))
        said = tree_values(x, *(self.learnt[name] for name in NAMES))
        if self.shape.answer == "class":  # round by round, a tree for every class
            answers[:, outputs] = said.unflatten(1, (-1, len(outputs))).sum(1)
        else:  # answer by answer, all of its rounds
            answers[:, outputs] = said.unflatten(1, (len(outputs), -1)).sum(2)
        return answers

    def findings(self) -> list[str]:
        """Say how many trees there are."""
        if "roots" not in dict(self.learnt.named_buffers()):
            return []
        return [f"{len(self.learnt['roots']):,} trees."]


def _summaries(series: list[np.ndarray], observed: list[np.ndarray]) -> np.ndarray:
    return np.stack([summary(one, seen) for one, seen in zip(series, observed, strict=True)])


def _start(ensemble: Any, x: np.ndarray, rate: float) -> np.ndarray:
    """Return what an ensemble answers before its first tree."""
    decide = getattr(ensemble, "decision_function", ensemble.predict)
    trees = ensemble.estimators_
    said = [[rate * tree.predict(x)[0] for tree in one] for one in np.atleast_2d(trees)]
    return np.ravel(decide(x)) - np.sum(said, axis=0)
