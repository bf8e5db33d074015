"""The contract of models of image sequences: encoder, normalisation, checks, penalties."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import Default, NonNegativeFloat, Units
from undamped._base.promises import Promise
from undamped.models.relational.encoder import (
    SMALLEST,
    EncoderKind,
    ImageEncoder,
    TemporalContextNorm,
)
from undamped.models.task_model import TaskModel


class SightOptions(TypedDict, total=False):
    """How images are encoded: the encoder, its normalisation, and a sparsity penalty."""

    encoder: Annotated[
        EncoderKind,
        Default(
            "learned",
            "Trained with the rest; frozen at its initial weights (random in the thesis); or one "
            "random layer, never trained.",
        ),
    ]
    features: Annotated[Units, Default(128, "Features of an encoded image.")]
    normalisation: Annotated[
        Literal["sequence", "segments", "none"],
        Default(
            "sequence",
            "Temporal context normalisation over the whole sequence, over each of the task's "
            "segments, or none.",
        ),
    ]
    l1: Annotated[
        NonNegativeFloat,
        Default(0.0, "λ of an L1 penalty on a linear layer after the encoder; 0 for no layer."),
    ]
    l1_on: Annotated[
        Literal["weights", "representations"],
        Default(
            "weights",
            "What the penalty applies to: the layer's weights, as in the authors' program, or its "
            "output, as in the thesis (the mean over images and features).",
        ),
    ]


class RelationalModel(TaskModel):
    """Images → codes u → normalised codes z → prediction.

    Args:
        shape: The shape of the task.
        sight: See `SightOptions`.
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"pictures"})
    input_kinds: ClassVar[frozenset[InputKind]] = frozenset({"pictures"})
    sequential: ClassVar[bool | None] = True
    promises: tuple[Promise, ...] = ()
    own_data = "picture-sequences"
    compares: ClassVar[bool] = False
    """Whether images are compared in double precision.

    The gradient of a softmax of similarities is a difference: it is zero for equal images, and
    nearly zero for very different ones. In single precision it would be rounding noise, to which
    an optimizer like Adam gives full weight.
    """
    fixed_length: ClassVar[bool] = True
    """Whether the head needs a fixed number of images."""

    def __init__(self, shape: TaskShape, **sight: Unpack[SightOptions]) -> None:
        super().__init__()
        options: Any = sight  # complete, as `checked` passes them
        if shape.picture_shape is None:
            raise OptionError(
                f"{type(self).__name__} needs a task of images, with a picture_shape, such as "
                "tasks.build('rmts').task_shape."
            )
        if shape.readout != "last":
            raise OptionError(
                f"{type(self).__name__} makes one prediction for a sequence, and this task needs "
                "one at every step."
            )
        self.length = shape.length
        self._check_length(shape)
        self.picture_shape = shape.picture_shape
        self.features: int = options["features"]
        self.encoder = ImageEncoder(shape.picture_shape, self.features, options["encoder"])
        self.l1, self.l1_on = options["l1"], options["l1_on"]
        self.sparse = nn.Linear(self.features, self.features) if self.l1 else None
        self.norm = self._normalisation(options["normalisation"], shape)
        self._pending: Tensor | None = None

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a task with a pair and a triplet of small images, and two classes."""
        needs = frozenset[Use]({"pictures"})
        return TaskShape(
            3 * SMALLEST**2,
            2,
            "pictures",
            needs=needs,
            picture_shape=(3, SMALLEST, SMALLEST),
            segments=(2, 3),
        )

    def _check_length(self, shape: TaskShape) -> None:
        if self.length is None and self.fixed_length:
            raise OptionError(
                f"{type(self).__name__} needs sequences of equal length. Choose a model that reads "
                "any length, such as picture-rnn."
            )
        if self.length is not None and self.length < 2:
            raise OptionError(
                f"{type(self).__name__} needs at least two images in a sequence, got {self.length}."
            )

    def _normalisation(self, kind: str, shape: TaskShape) -> TemporalContextNorm | None:
        if kind == "none":
            return None
        if kind == "segments" and (not shape.segments or min(shape.segments) < 2):
            raise OptionError(
                f"{type(self).__name__}.normalisation='segments' needs segments of at least two "
                f"images, got {shape.segments or 'none'}. Choose normalisation=sequence."
            )
        return TemporalContextNorm(self.features, shape.segments if kind == "segments" else ())

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the predictions (batch, output)."""
        return self.decide(self.encode(batch)), None

    def encode(self, batch: Batch) -> Tensor:
        """Return the codes u of the images, (time, batch, features), before normalisation."""
        self._check(batch)
        self._pending = None
        inputs, encode = self.encoder.of_images(batch)
        codes = inputs.each_input(lambda images: self._finished(encode(images)))
        if self.sparse is not None and self.l1_on == "representations":
            self.add_penalty(self.l1 * codes.abs().mean().to(self.dtype))
        return codes

    def _finished(self, codes: Tensor) -> Tensor:
        """Return codes after the sparse layer, in the precision of the comparison."""
        codes = codes if self.sparse is None else self.sparse(codes)
        return codes.double() if self.compares and codes.dtype == torch.float32 else codes

    def normalise(self, codes: Tensor) -> Tensor:
        """Return z, the codes after temporal context normalisation, if it is used."""
        return codes if self.norm is None else self.norm(codes)

    @abstractmethod
    def decide(self, codes: Tensor) -> Tensor:
        """Return predictions (batch, output) for codes (time, batch, features)."""

    def _check(self, batch: Batch) -> None:
        steps = batch.inputs.shape[0]
        if batch.lengths is not None and bool((batch.lengths != steps).any()):
            raise ShapeError(
                "batch.lengths must all be the same, since all images are compared. Use one batch "
                "per length."
            )
        if self.fixed_length and steps != self.length:
            raise ShapeError(f"The model was built for {self.length} images, got {steps}.")
        if steps < 2:
            raise ShapeError(f"A sequence needs at least two images, got {steps}.")

    def add_penalty(self, penalty: Tensor) -> None:
        """Add a term of this pass to the penalty."""
        self._pending = penalty if self._pending is None else self._pending + penalty

    def penalty(self) -> Tensor:
        """Return the penalty of the last pass, which training adds to its loss."""
        like = next(self.parameters())
        total = like.new_zeros(()) if self._pending is None else self._pending
        if self.sparse is not None and self.l1_on == "weights":
            total = total + self.l1 * sum(p.abs().sum() for p in self.sparse.parameters())
        return total

    @property
    def why_no_stream(self) -> str:
        """Why the model needs all images at once, as part of an error message."""
        if self.norm is not None:
            return (
                "one with temporal context normalisation, which needs the mean over all images of "
                "a sequence"
            )
        return "one that compares all images of a sequence"

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Take one image of a stream; most models raise an error that says why they cannot."""
        raise OptionError(
            f"{type(self).__name__} cannot predict image by image: it is {self.why_no_stream}. Use "
            "picture-rnn with model.normalisation=none for a stream."
        )

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Yield codes, normalised codes and the prediction."""
        codes = self.encode(batch)
        yield "the codes of the encoder", codes
        yield "the normalised codes", self.normalise(codes)
        yield "the output of the model", self.decide(codes)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the pending penalty, whose graph cannot be copied."""
        return {**self.__dict__, "_pending": None}


def decoder(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return two layers with a ReLU between them, initialised as in the authors' programs.

    With the smaller default weights some seeds do not learn all new patterns of identity rules with
    four images.
    """
    first, last = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
    return nn.Sequential(start(first, "relu"), nn.ReLU(), start(last))


def start_gates(cell: nn.LSTMCell) -> None:
    """Initialise an LSTM as in the program of ESBN: Xavier, gain 5/3 for the candidate, no bias."""
    size = cell.hidden_size
    with torch.no_grad():
        for weight in (cell.weight_ih, cell.weight_hh):
            nn.init.xavier_normal_(weight[: 2 * size])
            nn.init.xavier_normal_(weight[3 * size :])
            nn.init.xavier_normal_(weight[2 * size : 3 * size], gain=5 / 3)
        for bias in (cell.bias_ih, cell.bias_hh):
            nn.init.zeros_(bias)


def start(layer: nn.Linear, gain: float | Literal["relu"] = 1.0) -> nn.Linear:
    """Initialise a layer with zero bias and Xavier or, before a ReLU, Kaiming normal weights."""
    if gain == "relu":
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    else:
        nn.init.xavier_normal_(layer.weight, gain=gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
