"""Similarities of all pairs of images, and models that depend on images only through them.

Codes of an untrained encoder have inner products of dozens, so that their softmax is a table of
zeros and ones up to rounding, without a gradient. `scaling` and `temperature` can help. Both are
of little use if no two images are equal: an image is most similar to itself, so that a sharp
softmax is the identity, and a flat one hardly differs from trial to trial. `Rows` "raw" omits the
softmax.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.contract import Batch, TaskShape
from undamped._base.options import Default, PositiveFloat, select
from undamped._base.promises import Kind, Promise
from undamped.models.relational.base import RelationalModel, SightOptions

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
        sensory: Whether the head also reads the codes.
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
        """Return the predictions (batch, output)."""
        scores = None if self.sensory else self._repeated_scores(batch)
        if scores is None:
            return super().run(batch, state)
        return self.answer(scores, None), None

    def decide(self, codes: Tensor) -> Tensor:
        """Return predictions (batch, output) for codes (time, batch, features)."""
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
