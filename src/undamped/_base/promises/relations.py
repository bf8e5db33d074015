"""What a model of relations has to show, so that its promises can be measured."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class HasRelations(Protocol):
    """A model that answers from relations between the codes of its inputs."""

    features: int
    length: int | None

    def relations(self, codes: Tensor, /) -> Tensor:
        """Return all that an answer depends on, (batch, numbers)."""
        ...

    def decide(self, codes: Tensor, /) -> Tensor:
        """Return the answers (batch, output) to codes (time, batch, features)."""
        ...
