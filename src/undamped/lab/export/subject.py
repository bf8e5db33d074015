"""The model to export, with its preparation and the names of its classes."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import StreamingModel
from undamped.nn.recurrent import Recurrent
from undamped.nn.unitary import UnitaryCell
from undamped.version import __version__

if TYPE_CHECKING:
    from undamped.lab.data.recordings.preparation import Preparation


@dataclass(frozen=True)
class Subject:
    """A model with the preparation of its samples and the names of its classes.

    Args:
        model: The model, a `TaskModel` that reads sequences; it is not changed.
        preparation: The preparation of raw samples; without it the model takes raw samples.
        classes: The names of the classes, empty if they have no names; None for regression.
        source: Origin of the model, for the metadata of the file.
    """

    model: Any
    preparation: Preparation | None = None
    classes: tuple[str, ...] | None = None
    source: str = ""

    @property
    def is_bank(self) -> bool:
        """Whether the model is a bank, which has no recurrent network."""
        return isinstance(self.model, OscillatorBank)

    @property
    def output_size(self) -> int:
        """Number of outputs of the model at a step."""
        return self.model.shape.output_size if self.is_bank else self.model.head.out_features

    @property
    def network(self) -> Recurrent:
        """The recurrent network in the model."""
        return self.model.network

    @property
    def input_kind(self) -> str:
        """The kind of the samples."""
        return getattr(self.model, "input_kind", "vectors")

    @property
    def reads(self) -> frozenset[str]:
        """What the model uses of a sample in addition to its values."""
        return self.preparation.needs if self.preparation is not None else frozenset()

    @property
    def dtype(self) -> torch.dtype:
        """The floating-point type of the network."""
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
        if self.input_kind == "symbols":
            return ()
        return (getattr(self.model, "input_size", None) or self.model.shape.input_size,)

    @property
    def kind(self) -> str:
        """The kind of the task, as in a preparation."""
        if self.preparation is not None:
            return self.preparation.kind
        every = not self.is_bank and self.model.readout == "every"
        if self.classes is not None:
            return "steps" if every else "classification"
        return "step-regression" if every else "regression"

    def sources(self, layer: int) -> tuple[int, ...]:
        """Return the inputs of layer 0, 1, …: 0 is the input, 1 the output of layer 0."""
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
            "network": type(self.model if self.is_bank else self.network).__name__,
            "kind": self.kind,
            "input": self.input_kind,
            "readout": "last" if self.is_bank else self.model.readout,
            "channels": json.dumps(channels, ensure_ascii=False),
            "classes": json.dumps(list(self.classes or ()), ensure_ascii=False),
        }


def refuse_divergence(model: nn.Module) -> None:
    """Raise an error for a model with a weight that is not finite."""
    if not all(bool(weight.isfinite().all()) for weight in model.parameters()):
        raise OptionError(
            "The model has weights that are not finite (NaN or infinite), and no answers. Train it "
            "again, for example with a smaller train.learning_rate."
        )


def export_form(subject: Subject) -> Subject:
    """Return a copy for export: in evaluation mode, with constrained matrices computed."""
    refuse_divergence(subject.model)
    model = copy.deepcopy(subject.model).cpu().eval()
    if isinstance(model, OscillatorBank):
        return Subject(model, subject.preparation, subject.classes, subject.source)
    if not isinstance(model, SequenceModel) or model.at_times:
        reason = f"{type(model).__name__} reads whole series with code of its own"
        instead = "`undamped predict RUN`, or train the model 'bank'"
        if isinstance(model, SequenceModel):
            reason = "its outputs are at query times"
        elif isinstance(model, StreamingModel):
            reason = f"{type(model).__name__} is no recurrent network with regular steps"
        if isinstance(model, StreamingModel):
            instead = "`undamped stream RUN` or `undamped predict RUN`"
        raise OptionError(f"The model has no ONNX form: {reason}. Use {instead}.")
    if model.network.cell_class.memory_plan.state_grows:
        raise OptionError(
            f"The state of {type(model.network).__name__} grows with every step, which ONNX cannot "
            "express. Use `undamped stream RUN`."
        )
    for cell in model.network.cells:
        if isinstance(cell, UnitaryCell):
            cell.structured = False
    return Subject(model, subject.preparation, subject.classes, subject.source)
