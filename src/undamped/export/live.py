"""A trained model that is fed one sample at a time, in memory that does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.errors import DataError, OptionError, explain
from undamped.export.subject import Subject


class LiveModel:
    """A model, its preparation and its state.

    The network is as it was when this object was made; later training does not reach it.

    Args:
        subject: The model and what is known about it.

    Example:
        >>> live = LiveModel(subject_of(Run.open("runs/recordings-unicornn-1")))
        >>> live.push([0.3, 1.2])
        >>> live.answer()
        {'label': 'walking', 'probabilities': {...}}
    """

    def __init__(self, subject: Subject) -> None:
        network = subject.network
        if network.bidirectional:
            raise OptionError(
                explain(
                    "stream",
                    expected="a network with one direction",
                    got="a bidirectional one",
                    remedy="A stream has no end to start from; use 'undamped predict'.",
                )
            )
        self.subject = subject
        self._prepared = subject.preparation.stream() if subject.preparation else None
        self._stream = network.stream()
        self._features: Tensor | None = None
        self._mean = subject.model.readout == "mean"
        self._total: Tensor | None = None
        self.steps = 0
        """How many samples were taken."""

    @torch.no_grad()
    def push(self, sample: Any, time: float | None = None) -> None:
        """Take a raw sample: numbers of all channels, or one symbol; NaN where one is missing.

        Args:
            sample: The sample.
            time: When it was taken, for models that were trained with time stamps.
        """
        model = self.subject.model
        if self._prepared is not None:
            # Rounded as the recordings were that the model was trained on.
            raw = np.asarray(sample, dtype=np.float32)
            vectors = torch.from_numpy(self._prepared.push(raw, time)).unsqueeze(0)
        else:
            dtype = torch.int64 if model.input_kind == "symbols" else self.subject.dtype
            vectors = model.encode(torch.tensor([sample], dtype=dtype))
        features = self._stream.push(vectors)
        self.steps += 1
        if self._mean:
            # In double precision: a stream may be longer than single precision can count.
            wide = features.double()
            self._total = wide if self._total is None else self._total + wide
        self._features = features

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Return what the network says after the samples so far, (1, output)."""
        if self._features is None:
            raise DataError("stream: expected at least one sample, got none. Push one first.")
        features = self._features
        if self._total is not None:
            features = (self._total / self.steps).to(features.dtype)
        return self.subject.model.head(features)

    def answer(self) -> dict[str, Any]:
        """Return the answer after the samples so far, in original labels and units.

        Classes without a preparation have "answer" and "probabilities", by name where they have
        names; numbers have "answer" alone.
        """
        outputs, classes = self.outputs(), self.subject.classes
        if self.subject.preparation is not None:
            return self.subject.preparation.answer(outputs.numpy())[0]
        if classes is None:
            values = outputs[0].tolist()
            return {"answer": values[0] if len(values) == 1 else values}
        best = int(outputs.argmax())
        chances = torch.softmax(outputs[0], -1).tolist()
        if not classes:
            return {"answer": best, "probabilities": chances}
        named = dict(zip(classes, chances, strict=True))
        return {"answer": classes[best], "probabilities": named}
