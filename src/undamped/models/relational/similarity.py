"""Similarities of all pairs of pictures, as a softmax over those that came before or over all.

Codes of an untrained encoder have inner products of dozens, so that their softmax is a table of
zeros and ones to the last bit, and no gradient comes through it. `scaling` and `temperature` are
what can be done about that. Both only move the trouble where no two pictures are equal: a picture
is most like itself, so that a sharp softmax has the identity, and a flat one hardly differs from
trial to trial. `Rows` "raw" leaves the softmax out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import Default, PositiveFloat

SimilarityKind = Literal["symmetric", "asymmetric", "asymmetric-before"]
Normalise = Callable[[Tensor], Tensor]
Rows = Literal["softmax", "raw"]
"""What a row of R holds: the softmax of its similarities, or the similarities themselves."""


class SimilarityOptions(TypedDict, total=False):
    """How pictures are compared."""

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
        PositiveFloat, Default(1.0, "What similarities are divided by before the softmax.")
    ]


class Similarity(nn.Module):
    """Similarities s_ij of normalised codes, (batch, time, time).

    Args:
        features: Features of a code.
        options: How they are compared; see `SimilarityOptions`.
    """

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
        return self.compared(query.transpose(0, 1), key.transpose(0, 1))

    def compared(self, query: Tensor, key: Tensor) -> Tensor:
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
    """Return R, the softmax of each row over the pictures up to its own, or over all.

    Args:
        scores: (batch, time, time).
        causal: Whether a row ends with its own picture; the rest is zero.
        rows: Whether the softmax is taken, or the similarities are left as they are.
    """
    if rows == "raw":
        return scores.tril() if causal else scores
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return torch.softmax(scores, -1)


def as_numbers(relations: Tensor, causal: bool) -> Tensor:
    """Return the entries of R that may differ from zero, (batch, entries), row by row."""
    if not causal:
        return relations.flatten(1)
    row, column = torch.tril_indices(*relations.shape[-2:], device=relations.device)
    return relations[:, row, column]


def entries(length: int, causal: bool) -> int:
    """Return how many numbers `as_numbers` gives."""
    return length * (length + 1) // 2 if causal else length * length
