"""A recurrent network and its readout, fed with the samples of one stream."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from undamped.models.model_stream import Leaf, ModelStream, check_leaves, grows

if TYPE_CHECKING:
    from undamped.models.sequence_model import SequenceModel


class NetworkStream(ModelStream):
    """A recurrent network as it was when the stream began; faster than the model's `step`.

    Args:
        model: The model around it.
    """

    def __init__(self, model: SequenceModel) -> None:
        self._model, self._head = model, copy.deepcopy(model.head)
        self._stream = model.network.stream()
        self._last: Tensor | None = None
        self._total: Tensor | None = None
        self._count = 0

    @torch.no_grad()
    def push(self, x: Tensor, dt: Tensor | None = None, observed: Tensor | None = None) -> None:
        """Take samples; arguments are those of `ModelStream.push`."""
        vectors = self._model.encode_features(x, dt, observed)
        for vector in vectors.split(1):
            self._last = self._stream.push(vector)
            self._count += 1
            if self._model.readout == "mean":
                # In double precision: a stream may be longer than single precision can count.
                wide = self._last.double()
                self._total = wide if self._total is None else self._total + wide

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Return what the model says after the samples so far, (1, outputs)."""
        assert self._last is not None
        if self._total is None:
            return self._head(self._last)
        return self._head((self._total / self._count).to(self._last.dtype))

    def leaves(self) -> dict[str, Leaf]:
        """Return tensors and numbers that the state is made of, by name."""
        assert self._last is not None
        state = self._stream.state
        parts = (state,) if isinstance(state, Tensor) else state
        leaves: dict[str, Leaf] = {str(at): part for at, part in enumerate(parts)}
        leaves |= {"count": self._count, "last": self._last.clone()}
        return leaves if self._total is None else {**leaves, "total": self._total.clone()}

    def restore(self, leaves: dict[str, Leaf], sample: dict[str, Tensor | None]) -> None:
        """Go on from what `leaves` returned; arguments are those of `ModelStream.restore`."""
        like = NetworkStream(self._model)
        like.push(**sample)  # type: ignore[arg-type]
        check_leaves(leaves, like.leaves(), grows=grows(self._model))
        own = {name: torch.as_tensor(part).clone() for name, part in leaves.items()}
        self._count, self._last = int(own.pop("count")), own.pop("last")
        self._total = own.pop("total", None)
        parts = tuple(own[str(at)] for at in range(len(own)))
        self._stream = self._model.network.stream(parts[0] if len(parts) == 1 else parts)
