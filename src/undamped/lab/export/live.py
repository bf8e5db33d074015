"""A trained model that is fed with samples as they come, in memory that does not grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped._base.files import read_tensors, write_tensors
from undamped.lab.export.subject import Subject
from undamped.lab.training.streaming import SampleStream
from undamped.models.sequence_model import SequenceModel

_PLAIN = "stream"  # where plain values are in the metadata of a file


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
        self.subject = subject
        self._stream = SampleStream(model, subject.preparation)

    @property
    def steps(self) -> int:
        """How many samples were taken."""
        return self._stream.steps

    def push(self, samples: Any, times: Any = None) -> None:
        """Take a raw sample, or several at once; the answer is computed when it is asked for.

        Args:
            samples: Numbers of all channels (channels,), or one symbol; NaN where one is missing.
                With one dimension more, several samples in order.
            times: When each was taken, for models that were trained with time stamps.
        """
        self._stream.push(samples, times)

    def outputs(self) -> Tensor:
        """Return what the network says after the samples so far, (1, output)."""
        return self._stream.outputs()

    def state_dict(self) -> dict[str, Any]:
        """Return what the samples so far have left: tensors, plain values and a checksum."""
        return self._stream.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called; a damaged or another model's state is refused."""
        self._stream.load_state_dict(state)

    def save_state(self, path: Path) -> None:
        """Write the state into a file, wholly or not at all."""
        state = self.state_dict()
        tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        plain = {name: value for name, value in state.items() if name not in tensors}
        write_tensors(path, tensors, {_PLAIN: json.dumps(plain)})

    def load_state(self, path: Path) -> None:
        """Go on from the state in a file that `save_state` wrote."""
        tensors, metadata = read_tensors(path)
        try:
            plain = json.loads(metadata[_PLAIN])
        except (KeyError, ValueError, RecursionError):
            plain = {}
        self.load_state_dict({**(plain if isinstance(plain, dict) else {}), **tensors})

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
