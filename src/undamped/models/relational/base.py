"""What all networks of pictures in sequence share: encoder, normalisation, checks, penalties."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.options import Default, NonNegativeFloat, Units
from undamped._base.promises import Promise
from undamped.models.relational.encoder import SMALLEST, EncoderKind, PictureEncoder
from undamped.models.relational.normalisation import TemporalContextNorm
from undamped.models.task_model import TaskModel


class SightOptions(TypedDict, total=False):
    """How pictures are seen: the encoder, its normalisation, and a penalty that makes it sparse."""

    encoder: Annotated[
        EncoderKind,
        Default(
            "learned",
            "Learned with the rest; frozen as it was drawn, which the thesis calls random; or one "
            "random layer, never trained.",
        ),
    ]
    features: Annotated[Units, Default(128, "Features of an encoded picture.")]
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
        Default(0.0, "λ of an L1 penalty on a linear layer behind the encoder; 0 for no layer."),
    ]
    l1_on: Annotated[
        Literal["weights", "representations"],
        Default(
            "weights",
            "What is penalised: the layer's weights, as the authors' program has it, or what it "
            "gives, as the thesis prints it (the mean over pictures and features).",
        ),
    ]


class RelationalModel(TaskModel):
    """Pictures → codes u → normalised codes z → answer; a head says how.

    Args:
        shape: The shape of the task.
        sight: How pictures are seen; see `SightOptions`.
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"pictures"})
    input_kinds: ClassVar[frozenset[InputKind]] = frozenset({"pictures"})
    sequential: ClassVar[bool | None] = True
    promises: tuple[Promise, ...] = ()
    own_data = "picture-sequences"
    compares: ClassVar[bool] = False
    """Whether pictures are compared in double precision.

    The gradient of a softmax of similarities is a difference: it is zero for pictures that are
    equal, and nearly so for those that differ much. In single precision rounding would be left of
    it, and an optimiser like Adam makes steps of rounding, as large as any others.
    """
    fixed_length: ClassVar[bool] = True
    """Whether the head is made for one number of pictures."""

    def __init__(self, shape: TaskShape, **sight: Unpack[SightOptions]) -> None:
        super().__init__()
        chosen: Any = sight  # complete and converted, as `checked` leaves it
        if shape.picture_shape is None:
            raise OptionError(
                explain(
                    f"{type(self).__name__}.shape",
                    expected="that of a task of pictures",
                    got="one without a picture_shape",
                    remedy="For example tasks.build('rmts').task_shape.",
                )
            )
        if shape.readout != "last":
            raise OptionError(
                explain(
                    type(self).__name__,
                    expected="a task with one answer for a sequence",
                    got="one with an answer at every step",
                    remedy="Choose another task.",
                )
            )
        self.length = shape.length
        self._check_length(shape)
        self.picture_shape = shape.picture_shape
        self.features: int = chosen["features"]
        self.encoder = PictureEncoder(shape.picture_shape, self.features, chosen["encoder"])
        self.l1, self.l1_on = chosen["l1"], chosen["l1_on"]
        self.sparse = nn.Linear(self.features, self.features) if self.l1 else None
        self.norm = self._normalisation(chosen["normalisation"], shape)
        self._pending: Tensor | None = None

    @classmethod
    def example_shape(cls) -> TaskShape:
        """A pair and a triplet of small pictures, and two classes."""
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
                explain(
                    type(self).__name__,
                    expected="sequences that all have one number of pictures",
                    got="a task whose lengths differ",
                    remedy="Choose a model that reads any number, such as picture-rnn.",
                )
            )
        if self.length is not None and self.length < 2:
            raise OptionError(
                explain(
                    type(self).__name__,
                    expected="at least two pictures in a sequence, since one has no relation",
                    got=self.length,
                    remedy="Give longer sequences.",
                )
            )

    def _normalisation(self, kind: str, shape: TaskShape) -> TemporalContextNorm | None:
        if kind == "none":
            return None
        if kind == "segments" and (not shape.segments or min(shape.segments) < 2):
            raise OptionError(
                explain(
                    f"{type(self).__name__}.normalisation",
                    expected="segments of at least two pictures",
                    got=str(shape.segments or "a task without segments"),
                    remedy="Choose normalisation=sequence.",
                )
            )
        return TemporalContextNorm(self.features, shape.segments if kind == "segments" else ())

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the answers (batch, output)."""
        return self.decide(self.encode(batch)), None

    def encode(self, batch: Batch) -> Tensor:
        """Return the codes u of the pictures, (time, batch, features), before normalisation."""
        self._check(batch)
        self._pending = None
        inputs, encode = self.encoder.of_pictures(batch)
        codes = inputs.each_input(lambda pictures: self._finished(encode(pictures)))
        if self.sparse is not None and self.l1_on == "representations":
            self.ask_for(self.l1 * codes.abs().mean().to(self.dtype))
        return codes

    def _finished(self, codes: Tensor) -> Tensor:
        """Return the code of a picture as all of its places see it."""
        codes = codes if self.sparse is None else self.sparse(codes)
        return codes.double() if self.compares and codes.dtype == torch.float32 else codes

    def normalise(self, codes: Tensor) -> Tensor:
        """Return z, the codes after temporal context normalisation, if there is any."""
        return codes if self.norm is None else self.norm(codes)

    @abstractmethod
    def decide(self, codes: Tensor) -> Tensor:
        """Return the answers (batch, output) to codes (time, batch, features)."""

    def _check(self, batch: Batch) -> None:
        steps = batch.inputs.shape[0]
        if batch.lengths is not None and bool((batch.lengths != steps).any()):
            raise ShapeError(
                explain(
                    "batch.lengths",
                    expected="sequences of one length, since all pictures are compared",
                    got="some that are shorter",
                    remedy="Give each length its own batch.",
                )
            )
        if self.fixed_length and steps != self.length:
            raise ShapeError(
                explain(
                    "inputs",
                    expected=f"{self.length} pictures in a sequence, as the task has them",
                    got=steps,
                    remedy="The model was built for that number.",
                )
            )
        if steps < 2:
            raise ShapeError(
                explain(
                    "inputs",
                    expected="at least two pictures in a sequence, since one has no relation",
                    got=steps,
                    remedy="Give longer sequences.",
                )
            )

    def ask_for(self, penalty: Tensor) -> None:
        """Let training make something small that was computed in this pass."""
        self._pending = penalty if self._pending is None else self._pending + penalty

    def penalty(self) -> Tensor:
        """Return what training makes small besides the loss, of the pass before."""
        like = next(self.parameters())
        total = like.new_zeros(()) if self._pending is None else self._pending
        if self.sparse is not None and self.l1_on == "weights":
            total = total + self.l1 * sum(p.abs().sum() for p in self.sparse.parameters())
        return total

    @property
    def why_no_stream(self) -> str:
        """Normalisation, or a head, that needs all pictures."""
        if self.norm is not None:
            return (
                "one with temporal context normalisation, which takes the mean over all pictures "
                "of a sequence, also those to come"
            )
        return "one that compares all pictures of a sequence"

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Take one picture of a stream, where the head can; most say why not."""
        raise OptionError(
            explain(
                type(self).__name__,
                expected="a model that answers picture by picture",
                got=self.why_no_stream,
                remedy="Use picture-rnn with model.normalisation=none for a stream.",
            )
        )

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Go through codes, normalised codes and the answer."""
        codes = self.encode(batch)
        yield "the codes of the encoder", codes
        yield "the normalised codes", self.normalise(codes)
        yield "the output of the model", self.decide(codes)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out a penalty whose graph is nobody else's."""
        return {**self.__dict__, "_pending": None}


def decoder(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """Return two layers with a ReLU between them, that start as in the authors' programs.

    With the smaller weights that layers have by themselves, some starts do not get all the new
    patterns of identity rules with four pictures.
    """
    first, last = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)
    return nn.Sequential(start(first, "relu"), nn.ReLU(), start(last))


def start_gates(cell: nn.LSTMCell) -> None:
    """Let an LSTM start as in the program of ESBN: Xavier, 5/3 of it for the candidate, no bias."""
    size = cell.hidden_size
    with torch.no_grad():
        for weight in (cell.weight_ih, cell.weight_hh):
            nn.init.xavier_normal_(weight[: 2 * size])
            nn.init.xavier_normal_(weight[3 * size :])
            nn.init.xavier_normal_(weight[2 * size : 3 * size], gain=5 / 3)
        for bias in (cell.bias_ih, cell.bias_hh):
            nn.init.zeros_(bias)


def start(layer: nn.Linear, gain: float | Literal["relu"] = 1.0) -> nn.Linear:
    """Let a layer start without bias, from Xavier's normal numbers or, before a ReLU, Kaiming's."""
    if gain == "relu":
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    else:
        nn.init.xavier_normal_(layer.weight, gain=gain)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer
