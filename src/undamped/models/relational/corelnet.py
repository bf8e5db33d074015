"""CoRelNet (Kerg and others, 2022): predictions from the relations of images only.

The relations are similarities, read by a perceptron (corelnet) or a transformer (corelnet-t),
differences of a learned size (corelnet-diff), or one of the two, selected for each trial
(corelnet-mix).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import Default, PositiveFloat, PositiveInt, Range, Units, select
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, decoder
from undamped.models.relational.comparing import (
    RELATIONS_ONLY,
    ComparingModel,
    RelationOptions,
    Rows,
    Similarity,
    SimilarityOptions,
    entries,
    matrix_entries,
    relation_matrix,
)

FEED_FORWARD = 128
Matrix = Literal["causal", "full"]


class MatrixOptions(RelationOptions, total=False):
    """The matrix R of similarities, and the perceptron at the end."""

    matrix: Annotated[
        Matrix,
        Default(
            "causal",
            "Whether rows of R end with their own image, as in the authors' program, or are full, "
            "as printed.",
        ),
    ]
    rows: Annotated[
        Rows,
        Default(
            "softmax",
            "Whether a row of R is the softmax of its similarities, or the similarities themselves "
            "(raw), for images of which no two are equal; then with scaling=cosine.",
        ),
    ]
    hidden_size: Annotated[Units, Default(256, "Units of the perceptron.")]
    sensory: Annotated[
        bool, Default(False, "Whether the codes z themselves are also an input (cat).")
    ]


class MatrixModel(ComparingModel):
    """A model of the matrix R of similarities.

    Promise:
        Predictions depend on images only through R: other images with the same R have the same
        prediction. Not with `sensory`.

    Args:
        options: See `MatrixOptions`, `SightOptions` and `SimilarityOptions`.

    Reference:
        G. Kerg, S. Mittal, D. Rolnick, Y. Bengio, B. Richards, G. Lajoie. On neural architecture
        inductive biases for relational tasks. 2022.
    """

    promises = RELATIONS_ONLY
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    def __init__(self, shape: TaskShape, **options: Unpack[MatrixOptions]) -> None:
        values: Any = options  # complete, as `checked` passes them
        super().__init__(shape, values["sensory"], **select(options, RelationOptions))
        self.causal: bool = values["matrix"] == "causal"
        self.rows: Rows = values["rows"]
        self.hidden_size: int = values["hidden_size"]

    def relation_matrix(self, codes: Tensor) -> Tensor:
        """Return R of codes (time, batch, features): (batch, time, time)."""
        return relation_matrix(self.scores(codes), self.causal, self.rows)

    def relations(self, codes: Tensor) -> Tensor:
        """Return all quantities that a prediction depends on, (batch, entries)."""
        return matrix_entries(self.scores(codes), self.causal)


@models.register("corelnet")
class CoRelNet(MatrixModel):
    """Compositional relational network: a perceptron of the similarities of the images.

    Equation:
        R_ij = softmax_{j ≤ i}(z_i · z_j),  y = W₂ ReLU(W₁ vec(R) + b₁) + b₂

    Symbols:
        z_i normalised code of image i, R similarities, vec the entries j ≤ i row by row.
    """

    usual_choice = True

    @checked
    def __init__(self, shape: TaskShape, **options: Unpack[MatrixOptions]) -> None:
        super().__init__(shape, **options)
        assert self.length is not None
        inputs = entries(self.length, self.causal) + self.sensory * self.length * self.features
        self.decoder = decoder(inputs, self.hidden_size, shape.output_size)

    def answer(self, scores: Tensor, codes: Tensor | None) -> Tensor:
        matrix = relation_matrix(scores, self.causal, self.rows)
        inputs = matrix_entries(matrix, self.causal).to(self.dtype)
        if codes is not None:
            inputs = torch.cat([inputs, codes.transpose(0, 1).flatten(1)], 1)
        return self.decoder(inputs)


@models.register("corelnet-t")
class CoRelNetT(MatrixModel):
    """CoRelNet with a transformer: a query attends to rows of R times learned positions.

    Equation:
        t_i = Σ_j R_ij p_j,  a = softmax(W_q q · W_k t_i / √d),  q ← norm(q + W_o Σ_i a_i W_v t_i)
        q ← norm(q + W₂ ReLU(W₁ q)),  y = MLP(q)

    Symbols:
        R similarities as for CoRelNet, p_j learned positions, q learned query, a attention of each
        head, d size of a head.

    Args:
        heads: Heads of the attention.
        attention_size: Units of queries, keys and values over all heads.
        query_size: Units of the query, and of a position.
        layers: Number of attention layers, which share their weights.
    """

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        heads: PositiveInt = 8,
        attention_size: Units = 512,
        query_size: Units = 8,
        layers: Annotated[int, Range(low=1, high=100)] = 1,
        **options: Unpack[MatrixOptions],
    ) -> None:
        super().__init__(shape, **options)
        if attention_size % heads:
            raise OptionError(
                f"CoRelNetT.heads must divide attention_size={attention_size}, got {heads}."
            )
        assert self.length is not None
        self.heads, self.layers = heads, layers
        self.positions = nn.Parameter(torch.randn(self.length, query_size))
        self.query = nn.Parameter(torch.randn(query_size))
        token = query_size + self.sensory * self.features
        self.to_query = nn.Linear(query_size, attention_size)
        self.to_key = nn.Linear(token, attention_size)
        self.to_value = nn.Linear(token, attention_size)
        self.to_output = nn.Linear(attention_size, query_size)
        self.feed_forward = decoder(query_size, FEED_FORWARD, query_size)
        self.norms = nn.ModuleList([nn.LayerNorm(query_size) for _ in range(2)])
        self.decoder = decoder(query_size, self.hidden_size, shape.output_size)

    def answer(self, scores: Tensor, codes: Tensor | None) -> Tensor:
        tokens = relation_matrix(scores, self.causal, self.rows).to(self.dtype) @ self.positions
        if codes is not None:
            tokens = torch.cat([tokens, codes.transpose(0, 1)], -1)
        key, value = self._by_head(self.to_key(tokens)), self._by_head(self.to_value(tokens))
        query = self.query.expand(len(tokens), 1, -1)
        for _ in range(self.layers):
            query = self._attend(query, key, value)
        return self.decoder(query.squeeze(1))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the query (batch, 1, size) after one attention layer."""
        by_head = self._by_head(self.to_query(query))
        scores = by_head @ key.transpose(-1, -2) / math.sqrt(by_head.shape[-1])
        attended = (torch.softmax(scores, -1) @ value).transpose(1, 2).flatten(2)
        query = self.norms[0](query + self.to_output(attended))
        return self.norms[1](query + self.feed_forward(query))

    def _by_head(self, x: Tensor) -> Tensor:
        """Return (batch, heads, time, size of a head)."""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def differences(sizes: Tensor) -> Tensor:
    """Return D_ij = s_i − s_j of numbers (time, batch): (batch, time, time)."""
    sizes = sizes.T
    return sizes.unsqueeze(2) - sizes.unsqueeze(1)


@models.register("corelnet-diff")
class CoRelNetDiff(RelationalModel):
    """CoRelNet for relations that are not symmetric: a perceptron of differences.

    Equation:
        s_i = w · z_i,  D_ij = s_i − s_j,  y = W₂ ReLU(W₁ vec(D) + b₁) + b₂

    Symbols:
        z_i normalised code of image i, w learned direction, s size along it, D differences.

    Promise:
        Predictions depend on images only through D: other images with the same D have the same
        prediction.

    Args:
        hidden_size: Units of the perceptron.
        sight: See `SightOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("comparison", transitive=True)
        >>> model = undamped.models.CoRelNetDiff(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, section
        7.2. Thesis, Université de Montréal, 2022.
    """

    promises = (
        Promise(
            Kind.RELATIONS_ONLY,
            "images that differ in the same way get the same prediction, whatever they show",
        ),
    )
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self, shape: TaskShape, *, hidden_size: Units = 256, **sight: Unpack[SightOptions]
    ) -> None:
        super().__init__(shape, **sight)
        assert self.length is not None
        self.size = nn.Linear(self.features, 1, bias=False)
        self.decoder = decoder(self.length**2, hidden_size, shape.output_size)

    def relation_matrix(self, codes: Tensor) -> Tensor:
        """Return D of codes (time, batch, features): (batch, time, time)."""
        return differences(self.size(self.normalise(codes)).squeeze(-1))

    def relations(self, codes: Tensor) -> Tensor:
        """Return all quantities that a prediction depends on, (batch, entries)."""
        return self.relation_matrix(codes).flatten(1)

    def decide(self, codes: Tensor) -> Tensor:
        return self.decoder(self.relations(codes))


@models.register("corelnet-mix")
class CoRelNetMix(RelationalModel):
    """CoRelNet that selects the similarities R or the differences D for each trial.

    Equation:
        a = gumbel-softmax(q · k_r / √d),  q = W vec(z),  y = MLP(a₁ vec(R) + a₂ vec(D))

    Symbols:
        R and D as for CoRelNet and CoRelNet-diff, k_r learned signatures of the two rules, q the
        query of a trial, d its size; a is one-hot.

    Promise:
        None: the selection depends on the images themselves.

    Args:
        matrix: Whether rows of R end with their own image, or are full.
        signature_size: Units of the signature of a rule.
        choice_temperature: Temperature of the gumbel-softmax; small ones are greedy.
        hidden_size: Units of the perceptron.
        options: See `SightOptions` and `SimilarityOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("comparison")
        >>> model = undamped.models.CoRelNetMix(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, section
        7.3. Thesis, Université de Montréal, 2022. Details that it does not specify: here the query
        reads all codes, the selection is hard, and evaluation has no noise.
    """

    compares = True
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        matrix: Matrix = "causal",
        signature_size: Units = 16,
        choice_temperature: PositiveFloat = 1.0,
        hidden_size: Units = 256,
        **options: Unpack[RelationOptions],
    ) -> None:
        super().__init__(shape, **select(options, SightOptions))
        assert self.length is not None
        self.causal, self.choice_temperature = matrix == "causal", choice_temperature
        self.similarity = Similarity(self.features, **select(options, SimilarityOptions))
        self.size = nn.Linear(self.features, 1, bias=False)
        self.query = nn.Linear(self.length * self.features, signature_size)
        self.signatures = nn.Parameter(torch.randn(2, signature_size))
        self.decoder = decoder(self.length**2, hidden_size, shape.output_size)

    def choice(self, codes: Tensor) -> Tensor:
        """Return the selected rule, one-hot, (batch, 2)."""
        query = self.query(self.normalise(codes).to(self.dtype).transpose(0, 1).flatten(1))
        scores = query @ self.signatures.T / math.sqrt(self.signatures.shape[1])
        if self.training:
            return F.gumbel_softmax(scores, tau=self.choice_temperature, hard=True)
        return F.one_hot(scores.argmax(1), 2).to(scores.dtype)

    def rules(self, codes: Tensor) -> Tensor:
        """Return R and D, (batch, 2, time, time)."""
        similarities = self.similarity(codes, self.normalise)
        matrix = relation_matrix(similarities, self.causal).to(self.dtype)
        difference = differences(self.size(self.normalise(codes).to(self.dtype)).squeeze(-1))
        return torch.stack([matrix, difference], 1)

    def decide(self, codes: Tensor) -> Tensor:
        relations = torch.einsum("br,brij->bij", self.choice(codes), self.rules(codes))
        return self.decoder(relations.flatten(1))
