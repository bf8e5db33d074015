"""Networks whose answer depends on pictures through their similarities alone."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped._base.contract import Batch, TaskShape
from undamped._base.options import options_in
from undamped._base.promises import Kind, Promise
from undamped.models.relational.base import RelationalModel, SightOptions
from undamped.models.relational.similarity import Similarity, SimilarityOptions

RELATIONS_ALONE = (
    Promise(
        Kind.RELATIONS_ALONE,
        "pictures that compare in the same way get the same answer, whatever they show",
    ),
)


class RelationOptions(SightOptions, SimilarityOptions, total=False):
    """How pictures are seen and compared."""


class ComparingModel(RelationalModel):
    """Pictures → codes → similarities s_ij → answer; with `sensory`, codes go there too.

    Where few pictures come again and again in a batch, they are normalised and compared once for
    every trial, not once for every place.

    Args:
        shape: The shape of the task.
        sensory: Whether the head also sees the codes.
        options: How pictures are seen and compared.
    """

    compares: ClassVar[bool] = True

    def __init__(self, shape: TaskShape, sensory: bool, **options: Unpack[RelationOptions]) -> None:
        chosen: Any = options  # complete and converted, as `checked` leaves it
        super().__init__(shape, **{name: chosen[name] for name in options_in(SightOptions)})
        self.similarity = Similarity(
            self.features, **{name: chosen[name] for name in options_in(SimilarityOptions)}
        )
        self.sensory = sensory
        if sensory:
            self.promises = ()

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the answers (batch, output)."""
        scores = None if self.sensory else self._scores_of_few(batch)
        if scores is None:
            return super().run(batch, state)
        return self.answer(scores, None), None

    def decide(self, codes: Tensor) -> Tensor:
        """Return the answers (batch, output) to codes (time, batch, features)."""
        seen = self.normalise(codes).to(self.dtype) if self.sensory else None
        return self.answer(self.scores(codes), seen)

    def scores(self, codes: Tensor) -> Tensor:
        """Return the similarities s_ij of codes (time, batch, features): (batch, time, time)."""
        return self.similarity(codes, self.normalise)

    @abstractmethod
    def answer(self, scores: Tensor, seen: Tensor | None) -> Tensor:
        """Return the answers (batch, output).

        Args:
            scores: (batch, time, time) similarities, perhaps in double precision.
            seen: (time, batch, features) normalised codes, with `sensory`.
        """

    def _scores_of_few(self, batch: Batch) -> Tensor | None:
        """Return the similarities of a batch with few distinct pictures; None for any other."""
        norm = self.norm
        if batch.distinct is None or norm is None or norm.segments or self.l1:
            return None
        if self.similarity.kind != "symmetric":
            return None
        self._check(batch)
        self._pending = None
        inputs, encode = self.encoder.of_pictures(batch)
        pictures, numbers = inputs.used()
        steps, count = len(numbers), len(pictures)
        if count > steps:
            return None
        codes = self._finished(encode(pictures))
        # How often each picture is in a trial says what mean and variance over its places are.
        often = F.one_hot(numbers.T, count).sum(1).to(codes.dtype)
        centred = codes - (often @ codes / steps).unsqueeze(1)
        variance = torch.einsum("bk,bkf->bf", often, centred.square()) / (steps - 1)
        z = norm.scaled(centred, variance.unsqueeze(1))
        each = self.similarity.compared(z, z)
        places = numbers.T.unsqueeze(2) * count + numbers.T.unsqueeze(1)
        return each.flatten(1).gather(1, places.flatten(1)).unflatten(1, (steps, steps))
