"""CoRelNet (Kerg and others, 2022): an answer from the similarities of the pictures alone."""

from __future__ import annotations

from typing import ClassVar, Literal, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import Units
from undamped._base.registry import models
from undamped.models.relational.base import decoder
from undamped.models.relational.comparing import (
    RELATIONS_ALONE,
    ComparingModel,
    RelationOptions,
)
from undamped.models.relational.similarity import Rows, as_numbers, entries, relation_matrix


@models.register("corelnet")
class CoRelNet(ComparingModel):
    """Compositional relational network: a perceptron that sees nothing but who resembles whom.

    Equation:
        R_ij = softmax_{j ≤ i}(z_i · z_j),  y = W₂ ReLU(W₁ vec(R) + b₁) + b₂

    Symbols:
        z_i normalised code of picture i, R similarities, vec the entries j ≤ i row by row.

    Promise:
        Answers see pictures through R alone: other pictures with the same R get the same answer.
        Not with `sensory`.

    Args:
        shape: The shape of the task.
        matrix: Rows of R that end with their own picture, as in the authors' program, or full
            rows, as printed.
        rows: Whether a row of R is the softmax of its similarities, or the similarities themselves
            (raw), for pictures of which no two are equal; then with scaling=cosine.
        hidden_size: Units of the perceptron.
        sensory: Whether the perceptron also sees the codes z themselves (cat).
        options: How pictures are seen and compared; see `SightOptions` and `SimilarityOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.CoRelNet(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        G. Kerg, S. Mittal, D. Rolnick, Y. Bengio, B. Richards, G. Lajoie. On neural architecture
        inductive biases for relational tasks. 2022.
    """

    usual_choice = True
    promises = RELATIONS_ALONE
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        matrix: Literal["causal", "full"] = "causal",
        rows: Rows = "softmax",
        hidden_size: Units = 256,
        sensory: bool = False,
        **options: Unpack[RelationOptions],
    ) -> None:
        super().__init__(shape, sensory, **options)
        assert self.length is not None
        self.causal = matrix == "causal"
        self.rows: Rows = rows
        inputs = entries(self.length, self.causal) + sensory * self.length * self.features
        self.decoder = decoder(inputs, hidden_size, shape.output_size)

    def relation_matrix(self, codes: Tensor) -> Tensor:
        """Return R of codes (time, batch, features): (batch, time, time)."""
        return relation_matrix(self.scores(codes), self.causal, self.rows)

    def relations(self, codes: Tensor) -> Tensor:
        """Return all that an answer depends on, (batch, numbers): the similarities behind R."""
        return as_numbers(self.scores(codes), self.causal)

    def answer(self, scores: Tensor, seen: Tensor | None) -> Tensor:
        """Return the answers (batch, output) to similarities (batch, time, time)."""
        matrix = relation_matrix(scores, self.causal, self.rows)
        entries = as_numbers(matrix, self.causal).to(self.dtype)
        if seen is not None:
            entries = torch.cat([entries, seen.transpose(0, 1).flatten(1)], 1)
        return self.decoder(entries)
