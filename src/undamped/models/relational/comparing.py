"""Similarities of all pairs of images, and ESBN, which depends on images only through them.

Codes of an untrained encoder have inner products of dozens, so that their softmax is a table of
zeros and ones up to rounding, without a gradient. `scaling` and `temperature` can help. Both are
of little use if no two images are equal: an image is most similar to itself, so that a sharp
softmax is the identity, and a flat one hardly differs from trial to trial. `Rows` "raw" omits the
softmax.

ESBN (Webb, Sinha and Cohen, 2021) binds symbols to images in an external memory.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.options import Default, PositiveFloat, Units, select
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start, start_gates

SimilarityKind = Literal["symmetric", "asymmetric", "asymmetric-before"]
Normalise = Callable[[Tensor], Tensor]
Rows = Literal["softmax", "raw"]
"""The entries of a row of R: the softmax of its similarities, or the similarities themselves."""


class SimilarityOptions(TypedDict, total=False):
    """How images are compared."""

    similarity: Annotated[
        SimilarityKind,
        Default(
            "symmetric",
            "zᵢ·zⱼ; or W₁zᵢ · W₂zⱼ with maps behind the normalisation, as printed; or before it, "
            "as in the authors' program.",
        ),
    ]
    scaling: Annotated[
        Literal["none", "dimension", "cosine"],
        Default("none", "Divide similarities by √features, or take the cosine instead."),
    ]
    temperature: Annotated[
        PositiveFloat, Default(1.0, "Divisor of similarities before the softmax.")
    ]


class Similarity(nn.Module):
    """Similarities s_ij of normalised codes, (batch, time, time); see `SimilarityOptions`."""

    def __init__(self, features: int, **options: Unpack[SimilarityOptions]) -> None:
        super().__init__()
        self.kind = options["similarity"]  # type: ignore[typeddict-item]
        self.scaling = options["scaling"]  # type: ignore[typeddict-item]
        self.temperature = options["temperature"]  # type: ignore[typeddict-item]
        mapped = self.kind != "symmetric"
        self.query = nn.Linear(features, features) if mapped else None
        self.key = nn.Linear(features, features) if mapped else None

    def forward(self, codes: Tensor, normalise: Normalise) -> Tensor:
        """Return s_ij of codes (time, batch, features) that are not normalised yet."""
        query, key = self._sides(codes, normalise)
        return self.compare(query.transpose(0, 1), key.transpose(0, 1))

    def compare(self, query: Tensor, key: Tensor) -> Tensor:
        """Return the similarities of vectors (batch, count, features): (batch, count, count)."""
        if self.scaling == "cosine":
            query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        factor = self.temperature
        if self.scaling == "dimension":
            factor *= math.sqrt(query.shape[-1])
        scores = query @ key.transpose(1, 2)
        return scores if factor == 1 else scores / factor

    def _sides(self, codes: Tensor, normalise: Normalise) -> tuple[Tensor, Tensor]:
        if self.query is None or self.key is None:
            z = normalise(codes)
            return z, z
        dtype = self.query.weight.dtype
        if self.kind == "asymmetric":
            z = normalise(codes).to(dtype)
            return self.query(z), self.key(z)
        codes = codes.to(dtype)
        return normalise(self.query(codes)), normalise(self.key(codes))


def relation_matrix(scores: Tensor, causal: bool, rows: Rows = "softmax") -> Tensor:
    """Return R, the softmax of each row over the images up to its own, or over all.

    Args:
        scores: (batch, time, time).
        causal: Whether a row ends with its own image; the rest is zero.
        rows: Whether the softmax is applied.
    """
    if rows == "raw":
        return scores.tril() if causal else scores
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return torch.softmax(scores, -1)


def matrix_entries(relations: Tensor, causal: bool) -> Tensor:
    """Return the entries of R that may differ from zero, (batch, entries), row by row."""
    if not causal:
        return relations.flatten(1)
    row, column = torch.tril_indices(*relations.shape[-2:], device=relations.device)
    return relations[:, row, column]


def entries(length: int, causal: bool) -> int:
    """Return the number of entries that `matrix_entries` returns."""
    return length * (length + 1) // 2 if causal else length * length


RELATIONS_ONLY = (
    Promise(
        Kind.RELATIONS_ONLY,
        "images with the same similarities get the same prediction, whatever they show",
    ),
)


class RelationOptions(SightOptions, SimilarityOptions, total=False):
    """How images are encoded and compared."""


class ComparingModel(RelationalModel):
    """Images → codes → similarities s_ij → prediction; with `sensory`, also from codes.

    If a batch repeats few images, they are normalised and compared once per trial, not once per
    step.

    Args:
        options: See `SightOptions` and `SimilarityOptions`.
    """

    compares: ClassVar[bool] = True

    def __init__(self, shape: TaskShape, sensory: bool, **options: Unpack[RelationOptions]) -> None:
        super().__init__(shape, **select(options, SightOptions))
        self.similarity = Similarity(self.features, **select(options, SimilarityOptions))
        self.sensory = sensory
        if sensory:
            self.promises = ()

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        scores = None if self.sensory else self._repeated_scores(batch)
        if scores is None:
            return super().run(batch, state)
        return self.answer(scores, None), None

    def decide(self, codes: Tensor) -> Tensor:
        normalised = self.normalise(codes).to(self.dtype) if self.sensory else None
        return self.answer(self.scores(codes), normalised)

    def scores(self, codes: Tensor) -> Tensor:
        """Return the similarities s_ij of codes (time, batch, features): (batch, time, time)."""
        return self.similarity(codes, self.normalise)

    @abstractmethod
    def answer(self, scores: Tensor, codes: Tensor | None) -> Tensor:
        """Return predictions (batch, output) from similarities (batch, time, time).

        With `sensory` there are normalised codes (time, batch, features) too.
        """

    def _repeated_scores(self, batch: Batch) -> Tensor | None:
        """Return the similarities of a batch with few distinct images; None for any other."""
        norm = self.norm
        if batch.distinct is None or norm is None or norm.segments or self.l1:
            return None
        if self.similarity.kind != "symmetric":
            return None
        self._check(batch)
        self._pending = None
        inputs, encode = self.encoder.of_images(batch)
        images, indices = inputs.used()
        steps, count = len(indices), len(images)
        if count > steps:
            return None
        codes = self._finished(encode(images))
        # Mean and variance over the steps, from the number of times that each image occurs.
        counts = F.one_hot(indices.T, count).sum(1).to(codes.dtype)
        centred = codes - (counts @ codes / steps).unsqueeze(1)
        variance = torch.einsum("bk,bkf->bf", counts, centred.square()) / (steps - 1)
        z = norm.scaled(centred, variance.unsqueeze(1))
        each = self.similarity.compare(z, z)
        pairs = indices.T.unsqueeze(2) * count + indices.T.unsqueeze(1)
        return each.flatten(1).gather(1, pairs.flatten(1)).unflatten(1, (steps, steps))


@models.register("esbn")
class ESBN(ComparingModel):
    """Emergent symbol binding network: an LSTM that reads keys, and finds them by similarity.

    Equation:
        h_t = LSTM(r_{t−1}),  k_t = ReLU(W_k h_t),  g_t = σ(W_g h_t),  s_ti = z_t · z_i
        r_t = g_t Σ_{i<t} softmax_{i<t}(s_ti) [k_i, σ(γ s_ti + β)],  y = W_y h_{T+1}

    Symbols:
        z_t normalised code of image t, k_t key written with it, r_t key that is read, g gate,
        γ and β gain and bias of the confidence; r_1 is zero.

    Promise:
        Predictions depend on images only through their similarities: other images with the same
        ones have the same prediction. Not with `sensory`.

    Args:
        hidden_size: Units of the LSTM.
        key_size: Units of a key.
        sensory: Whether the LSTM also reads the codes z themselves (cat).
        options: See `SightOptions` and `SimilarityOptions`.

    Reference:
        T. W. Webb, I. Sinha, J. D. Cohen. Emergent symbols through binding in external memory.
        ICLR, 2021.
    """

    usual_choice = True
    promises = RELATIONS_ONLY
    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 512}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        hidden_size: Units = 512,
        key_size: Units = 256,
        sensory: bool = False,
        **options: Unpack[RelationOptions],
    ) -> None:
        super().__init__(shape, sensory, **options)
        self.hidden_size, self.key_size = hidden_size, key_size
        self.lstm = nn.LSTMCell(key_size + 1 + sensory * self.features, hidden_size)
        start_gates(self.lstm)
        self.key = start(nn.Linear(hidden_size, key_size), "relu")
        self.gate = start(nn.Linear(hidden_size, 1))
        self.gain = nn.Parameter(torch.ones(1))
        self.bias = nn.Parameter(torch.zeros(1))
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def relation_matrix(self, codes: Tensor) -> Tensor:
        """Return the read weights, (batch, time, time): zero but for earlier images."""
        scores = self.scores(codes)
        earlier = torch.ones_like(scores[0], dtype=torch.bool).tril(-1)
        earlier[0, 0] = True  # a softmax needs at least one entry; nothing is read there
        return torch.softmax(scores.masked_fill(~earlier, -torch.inf), -1).tril(-1)

    def relations(self, codes: Tensor) -> Tensor:
        """Return all quantities that a prediction depends on, (batch, entries)."""
        row, column = torch.tril_indices(len(codes), len(codes), -1, device=codes.device)
        return self.scores(codes)[:, row, column]

    def answer(self, scores: Tensor, codes: Tensor | None) -> Tensor:
        confidence = torch.sigmoid(self.gain * scores.to(self.dtype) + self.bias)
        batch, steps, _ = scores.shape
        retrieved = confidence.new_zeros(batch, self.lstm.input_size)
        state: Any = None
        keys: list[Tensor] = []
        for t in range(steps):
            state = self.lstm(retrieved, state)
            hidden = state[0]
            if t == 0:
                retrieved = confidence.new_zeros(batch, self.key_size + 1)
            else:
                # (batch, 1, t) weights times (batch, t, keys and confidence)
                weights = torch.softmax(scores[:, t, :t], -1).unsqueeze(1).to(self.dtype)
                memory = torch.cat([torch.stack(keys, 1), confidence[:, t, :t, None]], -1)
                retrieved = torch.sigmoid(self.gate(hidden)) * (weights @ memory).squeeze(1)
            keys.append(torch.relu(self.key(hidden)))
            if codes is not None:
                retrieved = torch.cat([retrieved, codes[t]], -1)
        return self.head(self.lstm(retrieved, state)[0])
