"""What is exported: a model, and what is known about its samples and answers."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import StreamingModel
from undamped.nn.recurrent import Recurrent
from undamped.version import __version__

if TYPE_CHECKING:
    from undamped.lab.data.recordings.preparation import Preparation


@dataclass(frozen=True)
class Subject:
    """A model with everything an answer depends on.

    Args:
        model: The model, a `TaskModel` that reads sequences; it is not changed.
        preparation: What is done to raw samples; if none is given they go in as they are.
        classes: The names of the classes where answers are classes: all of them, or nothing in
            them if they have no names. None where answers are numbers.
        source: Where the model comes from, for the reader of the file.
    """

    model: Any
    preparation: Preparation | None = None
    classes: tuple[str, ...] | None = None
    source: str = ""

    @property
    def network(self) -> Recurrent:
        """The recurrent network in the model."""
        return self.model.network

    @property
    def input_kind(self) -> str:
        """What the samples are."""
        return getattr(self.model, "input_kind", "vectors")

    @property
    def reads(self) -> frozenset[str]:
        """What of a sample beside its values the model uses."""
        return self.preparation.needs if self.preparation is not None else frozenset()

    @property
    def dtype(self) -> torch.dtype:
        """The type the network computes in."""
        return self.model.dtype

    @property
    def sample_dtype(self) -> torch.dtype:
        """The type of raw samples."""
        return {"symbols": torch.int64, "pixels": torch.uint8}.get(self.input_kind, self.dtype)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one raw sample: channels, or nothing for a symbol."""
        if self.preparation is not None:
            return (len(self.preparation.raw_channels),)
        return () if self.input_kind == "symbols" else (self.model.input_size,)

    @property
    def kind(self) -> str:
        """What is asked, in the words of a preparation."""
        if self.preparation is not None:
            return self.preparation.kind
        every = self.model.readout == "every"
        if self.classes is not None:
            return "steps" if every else "classification"
        return "step-regression" if every else "regression"

    def sources(self, layer: int) -> tuple[int, ...]:
        """Which outputs layer 0, 1, … reads: 0 is the input, 1 the output of layer 0."""
        return self.network.layer_sources(layer + 1)

    def starts(self) -> dict[str, Tensor]:
        """The first value of each part of the state, (cells, 1, size), by its name in the file."""
        state = self.network.initial_state(1)
        parts = (state,) if isinstance(state, Tensor) else state
        names = self.network.cell(0).state_names
        return {
            name.replace(" ", "_"): part.detach() for name, part in zip(names, parts, strict=True)
        }

    def metadata(self) -> dict[str, str]:
        """What the file says about itself."""
        prepared = self.preparation
        channels = prepared.raw_channels if prepared is not None else []
        return {
            "undamped": __version__,
            "source": self.source,
            "network": type(self.network).__name__,
            "kind": self.kind,
            "input": self.model.input_kind,
            "readout": self.model.readout,
            "channels": json.dumps(channels, ensure_ascii=False),
            "classes": json.dumps(list(self.classes or ()), ensure_ascii=False),
        }


def export_form(subject: Subject) -> Subject:
    """Return a copy that can be translated: matrices formed, nothing random."""
    model = copy.deepcopy(subject.model).cpu().eval()
    if not isinstance(model, SequenceModel) or model.at_times:
        flows = isinstance(model, SequenceModel)
        instead = "`undamped stream RUN` or " if isinstance(model, StreamingModel) else ""
        raise OptionError(
            explain(
                "export",
                expected="a recurrent network and answers by the step",
                got="answers at given times" if flows else f"a {type(model).__name__}",
                remedy=f"Use {instead}`undamped predict RUN`.",
            )
        )
    if model.network.cell_class.state_grows:
        raise OptionError(
            explain(
                "export",
                expected="a network whose step can be written as ONNX nodes",
                got=f"{type(model.network).__name__}, whose state grows with every step",
                remedy="Use `undamped stream RUN`, which answers sample by sample.",
            )
        )
    for cell in model.network.cells:
        cell.structured = False  # type: ignore[union-attr]
    return Subject(model, subject.preparation, subject.classes, subject.source)
