"""A trained model that is fed one sample at a time, in memory that does not grow."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from undamped.data.recordings.prepared import PreparedSample
from undamped.errors import DataError, OptionError, explain
from undamped.export.subject import Subject
from undamped.networks.sequence_model import SequenceModel
from undamped.networks.task_model import StreamingModel
from undamped.training.streaming import push_sample, sample_tensors, whole_sequences_only


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
        model = subject.model
        if isinstance(model, SequenceModel) and model.network.bidirectional:
            raise OptionError(
                explain(
                    "stream",
                    expected="a network with one direction",
                    got="a bidirectional one",
                    remedy="A stream has no end to start from; use 'undamped predict'.",
                )
            )
        if not isinstance(model, StreamingModel):
            raise whole_sequences_only(model)
        self.subject = subject
        self._prepared = subject.preparation.stream() if subject.preparation else None
        # A recurrent network has a snapshot of its own that is faster than its step; where a
        # forecast is asked for by time, the model's step has to look ahead.
        ahead = subject.preparation is not None and subject.preparation.at_times
        self._fast = (
            model.network.stream() if isinstance(model, SequenceModel) and not ahead else None
        )
        self._state: Any = None
        self._outputs: Tensor | None = None
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
        model, prepared = self.subject.model, None
        if self._prepared is not None:
            # Rounded as the recordings were that the model was trained on.
            prepared = self._prepared.push(np.asarray(sample, dtype=np.float32), time)
        if self._fast is None:
            self._push_step(sample, prepared)
        elif prepared is not None:
            self._push_fast(model.encode_features(*sample_tensors(prepared, model.dtype)))
        else:
            dtype = torch.int64 if model.input_kind == "symbols" else model.dtype
            self._push_fast(model.encode(torch.tensor([sample], dtype=dtype)))
        self.steps += 1

    def _push_step(self, sample: Any, prepared: PreparedSample | None) -> None:
        subject = self.subject
        if prepared is not None and subject.preparation is not None:
            self._outputs, self._state = push_sample(
                subject.model, subject.preparation, prepared, self._state
            )
        else:
            x = torch.tensor([sample], dtype=subject.model.dtype)
            self._outputs, self._state = subject.model.step(x, self._state)

    def _push_fast(self, vectors: Tensor) -> None:
        assert self._fast is not None
        features = self._fast.push(vectors)
        if self.subject.model.readout == "mean":
            # In double precision: a stream may be longer than single precision can count.
            wide = features.double()
            self._total = wide if self._total is None else self._total + wide
        self._features = features

    @torch.no_grad()
    def outputs(self) -> Tensor:
        """Return what the network says after the samples so far, (1, output)."""
        if not self.steps:
            raise DataError("stream: expected at least one sample, got none. Push one first.")
        if self._outputs is not None:
            return self._outputs
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
