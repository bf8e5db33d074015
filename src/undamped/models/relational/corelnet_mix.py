"""CoRelNet-mix (Kerg, 2022): similarity and difference compete for the trial."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import PositiveFloat, Units, options_in
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, decoder
from undamped.models.relational.comparing import RelationOptions
from undamped.models.relational.corelnet_diff import differences
from undamped.models.relational.similarity import (
    Similarity,
    SimilarityOptions,
    relation_matrix,
)


@models.register("corelnet-mix")
class CoRelNetMix(RelationalModel):
    """CoRelNet that picks, trial by trial, the similarities R or the differences D.

    Equation:
        a = gumbel-softmax(q · k_r / √d),  q = W vec(z),  y = MLP(a₁ vec(R) + a₂ vec(D))

    Symbols:
        R and D as for CoRelNet and CoRelNet-diff, k_r learned signatures of the two rules, q what
        the trial asks for, d its size; a has a one and a zero.

    Promise:
        None: which rule wins depends on the pictures themselves.

    Args:
        shape: The shape of the task.
        matrix: Rows of R that end with their own picture, or full rows.
        signature_size: Units of the signature of a rule.
        choice_temperature: Of the gumbel-softmax; small ones are greedy.
        hidden_size: Units of the perceptron.
        options: How pictures are seen and compared; see `SightOptions` and `SimilarityOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("comparison")
        >>> model = undamped.models.CoRelNetMix(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, section
        7.3. Thesis, Université de Montréal, 2022. What it does not print was chosen: the query
        reads all codes, the winner takes all, and a test has no noise.
    """

    compares = True
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        matrix: Literal["causal", "full"] = "causal",
        signature_size: Units = 16,
        choice_temperature: PositiveFloat = 1.0,
        hidden_size: Units = 256,
        **options: Unpack[RelationOptions],
    ) -> None:
        chosen: Any = options  # complete and converted, as `checked` leaves it
        super().__init__(shape, **{name: chosen[name] for name in options_in(SightOptions)})
        assert self.length is not None
        self.causal, self.choice_temperature = matrix == "causal", choice_temperature
        self.similarity = Similarity(
            self.features, **{name: chosen[name] for name in options_in(SimilarityOptions)}
        )
        self.size = nn.Linear(self.features, 1, bias=False)
        self.query = nn.Linear(self.length * self.features, signature_size)
        self.signatures = nn.Parameter(torch.randn(2, signature_size))
        self.decoder = decoder(self.length**2, hidden_size, shape.output_size)

    def choice(self, codes: Tensor) -> Tensor:
        """Return which rule is taken, (batch, 2): a one for it, and zero for the other."""
        query = self.query(self.normalise(codes).to(self.dtype).transpose(0, 1).flatten(1))
        scores = query @ self.signatures.T / math.sqrt(self.signatures.shape[1])
        if self.training:
            return F.gumbel_softmax(scores, tau=self.choice_temperature, hard=True)
        return F.one_hot(scores.argmax(1), 2).to(scores.dtype)

    def rules(self, codes: Tensor) -> Tensor:
        """Return R and D, (batch, 2, time, time)."""
        alike = relation_matrix(self.similarity(codes, self.normalise), self.causal).to(self.dtype)
        apart = differences(self.size(self.normalise(codes).to(self.dtype)).squeeze(-1))
        return torch.stack([alike, apart], 1)

    def decide(self, codes: Tensor) -> Tensor:
        """Return the answers (batch, output) to codes (time, batch, features)."""
        chosen = torch.einsum("br,brij->bij", self.choice(codes), self.rules(codes))
        return self.decoder(chosen.flatten(1))
