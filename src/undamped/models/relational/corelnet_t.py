"""CoRelNet-T (Kerg and others, 2022): a query that attends to the rows of the similarity matrix."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveInt, Range, Units
from undamped._base.registry import models
from undamped.models.relational.base import decoder
from undamped.models.relational.comparing import (
    RELATIONS_ALONE,
    ComparingModel,
    RelationOptions,
)
from undamped.models.relational.similarity import Rows, as_numbers, relation_matrix

FEED_FORWARD = 128


@models.register("corelnet-t")
class CoRelNetT(ComparingModel):
    """CoRelNet with a transformer: tokens are rows of R times learned positions, one query reads.

    Equation:
        t_i = Σ_j R_ij p_j,  a = softmax(W_q q · W_k t_i / √d),  q ← norm(q + W_o Σ_i a_i W_v t_i)
        q ← norm(q + W₂ ReLU(W₁ q)),  y = MLP(q)

    Symbols:
        R similarities as for CoRelNet, p_j learned positions, q learned query, a attention of each
        head, d size of a head.

    Promise:
        Answers see pictures through R alone: other pictures with the same R get the same answer.
        Not with `sensory`.

    Args:
        shape: The shape of the task.
        matrix: Rows of R that end with their own picture, as in the authors' program, or full
            rows, as printed.
        rows: Whether a row of R is the softmax of its similarities, or the similarities themselves
            (raw), for pictures of which no two are equal; then with scaling=cosine.
        heads: Heads of the attention.
        attention_size: Units of queries, keys and values over all heads.
        query_size: Units of the query, and of a position.
        layers: How often the query reads; all layers share their weights.
        hidden_size: Units of the perceptron at the end.
        sensory: Whether tokens also hold the codes z themselves (cat).
        options: How pictures are seen and compared; see `SightOptions` and `SimilarityOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.CoRelNetT(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        G. Kerg, S. Mittal, D. Rolnick, Y. Bengio, B. Richards, G. Lajoie. On neural architecture
        inductive biases for relational tasks. 2022.
    """

    promises = RELATIONS_ALONE
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        matrix: Literal["causal", "full"] = "causal",
        rows: Rows = "softmax",
        heads: PositiveInt = 8,
        attention_size: Units = 512,
        query_size: Units = 8,
        layers: Annotated[int, Range(low=1, high=100)] = 1,
        hidden_size: Units = 256,
        sensory: bool = False,
        **options: Unpack[RelationOptions],
    ) -> None:
        super().__init__(shape, sensory, **options)
        if attention_size % heads:
            raise OptionError(
                explain(
                    "CoRelNetT.heads",
                    expected=f"a divisor of attention_size, {attention_size}",
                    got=heads,
                    remedy="For example 8.",
                )
            )
        assert self.length is not None
        self.causal = matrix == "causal"
        self.rows: Rows = rows
        self.heads, self.layers = heads, layers
        self.positions = nn.Parameter(torch.randn(self.length, query_size))
        self.query = nn.Parameter(torch.randn(query_size))
        token = query_size + sensory * self.features
        self.to_query = nn.Linear(query_size, attention_size)
        self.to_key = nn.Linear(token, attention_size)
        self.to_value = nn.Linear(token, attention_size)
        self.to_output = nn.Linear(attention_size, query_size)
        self.feed_forward = decoder(query_size, FEED_FORWARD, query_size)
        self.norms = nn.ModuleList([nn.LayerNorm(query_size) for _ in range(2)])
        self.decoder = decoder(query_size, hidden_size, shape.output_size)

    def relation_matrix(self, codes: Tensor) -> Tensor:
        """Return R of codes (time, batch, features): (batch, time, time)."""
        return relation_matrix(self.scores(codes), self.causal, self.rows)

    def relations(self, codes: Tensor) -> Tensor:
        """Return all that an answer depends on, (batch, numbers): the similarities behind R."""
        return as_numbers(self.scores(codes), self.causal)

    def answer(self, scores: Tensor, seen: Tensor | None) -> Tensor:
        """Return the answers (batch, output) to similarities (batch, time, time)."""
        tokens = relation_matrix(scores, self.causal, self.rows).to(self.dtype) @ self.positions
        if seen is not None:
            tokens = torch.cat([tokens, seen.transpose(0, 1)], -1)
        key, value = self._by_head(self.to_key(tokens)), self._by_head(self.to_value(tokens))
        query = self.query.expand(len(tokens), 1, -1)
        for _ in range(self.layers):
            query = self._read(query, key, value)
        return self.decoder(query.squeeze(1))

    def _read(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Let the query (batch, 1, size) attend once."""
        asked = self._by_head(self.to_query(query))
        scores = asked @ key.transpose(-1, -2) / math.sqrt(asked.shape[-1])
        found = (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2)
        query = self.norms[0](query + self.to_output(found))
        return self.norms[1](query + self.feed_forward(query))

    def _by_head(self, x: Tensor) -> Tensor:
        """Return (batch, heads, time, size of a head)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
