"""The contract of models of image sequences: encoder, normalisation, checks, penalties.

The encoder has three convolutions and two layers, or is a random projection. A frozen encoder
encodes each image of a set once: its codes are cached as long as the same set is used.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypedDict, Unpack

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch, InputKind, TaskShape, Use
from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import Default, NonNegativeFloat, Units
from undamped._base.torch_internals import inside_functional_transform, version_of
from undamped.models.task_model import TaskModel

EncoderKind = Literal["learned", "frozen", "random"]
CHANNELS, KERNEL, HIDDEN = 32, 4, 256
CHUNK = 96
"""Images per call of the convolutions; more do not fit into a CPU cache."""
SMALLEST = 8
"""Smallest height and width for three convolutions of stride two."""


class ImageEncoder(nn.Module):
    """From images (count, channels, height, width) to codes (count, features) ≥ 0.

    Args:
        picture_shape: Channels, height and width.
        features: Size of a code.
        kind: "learned"; "frozen": the same network with initial weights, never trained; "random":
            one random layer, never trained.
    """

    def __init__(
        self, picture_shape: tuple[int, int, int], features: int, kind: EncoderKind
    ) -> None:
        super().__init__()
        self.picture_shape, self.features, self.kind = picture_shape, features, kind
        channels, height, width = picture_shape
        if kind == "random":
            layers: list[nn.Module] = [
                nn.Flatten(),
                nn.Linear(channels * height * width, features),
                nn.ReLU(),
            ]
        else:
            if min(height, width) < SMALLEST:
                raise ShapeError(
                    f"Images must be at least {SMALLEST} × {SMALLEST} pixels, got {width} × "
                    f"{height}. Enlarge them, or choose model.encoder=random."
                )
            layers = []
            for inputs in (channels, CHANNELS, CHANNELS):
                layers += [nn.Conv2d(inputs, CHANNELS, KERNEL, stride=2, padding=1), nn.ReLU()]
            flat = CHANNELS * (height // 8) * (width // 8)
            layers += [nn.Flatten(), nn.Linear(flat, HIDDEN), nn.ReLU()]
            layers += [nn.Linear(HIDDEN, features), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
        self.trained = kind == "learned"
        self.requires_grad_(self.trained)
        self._cache = _CodeCache()

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return next(self.parameters()).dtype

    def forward(self, images: Tensor) -> Tensor:
        """Return codes of bytes, from 0 to 255, or of floating-point pixels, from 0 to 1."""
        images = self._checked(images)
        with torch.set_grad_enabled(self.trained and torch.is_grad_enabled()):
            if len(images) <= 2 * CHUNK:
                return self.layers(images)
            return torch.cat([self.layers(chunk) for chunk in images.split(CHUNK)])

    def of_images(self, batch: Batch) -> tuple[Batch, Callable[[Tensor], Tensor]]:
        """Return a batch and the function that encodes its inputs.

        These are the images and this encoder, or cached codes and the identity.
        """
        if not self.trained and batch.distinct is not None:
            cached = self._cache.codes(batch.distinct, self)
            if cached is not None:
                return batch._replace(distinct=cached), lambda codes: codes
        return batch, self

    def _checked(self, images: Tensor) -> Tensor:
        if tuple(images.shape[1:]) != tuple(self.picture_shape):
            raise ShapeError(
                f"Images must be (time, batch, {', '.join(map(str, self.picture_shape))}), as in "
                f"the task of the model, got (…, {', '.join(map(str, images.shape[1:]))})."
            )
        if not images.is_floating_point():
            return images.to(self.dtype) / 255
        if not bool(torch.isfinite(images).all()):
            raise ShapeError("Images have pixels that are not finite. Fill the gaps first.")
        return images.to(self.dtype)

    def __getstate__(self) -> dict[str, object]:
        """Leave out the cache."""
        return {**self.__dict__, "_cache": _CodeCache()}


class _CodeCache:
    """The codes of the last set of images, if it was used twice."""

    def __init__(self) -> None:
        self.images: Tensor | None = None
        self.cached: Tensor | None = None
        self.versions: tuple[int, ...] = ()

    def codes(self, images: Tensor, encoder: ImageEncoder) -> Tensor | None:
        """Return the codes of a set, or None the first time that it is used.

        Caching does not pay for a set that is used once, or created for every batch.
        """
        if images.is_inference() or any(p.is_inference() for p in encoder.parameters()):
            return None
        versions = tuple(version_of(part) for part in (images, *encoder.parameters()))
        weight = next(encoder.parameters())
        same = images is self.images and versions == self.versions
        if not same:
            self.images, self.versions, self.cached = images, versions, None
            return None
        if self.cached is None or self.cached.dtype != weight.dtype:
            with torch.inference_mode(False), torch.no_grad():
                self.cached = encoder(images)
        return self.cached


EPSILON = 1e-8


class TemporalContextNorm(nn.Module):
    """z = γ (u − mean u) / √(var u + 1e-8) + β, over the steps of a sequence or of each segment.

    The variance is the unbiased one, so that a segment needs two steps. It needs all steps at once,
    so that a model with it cannot predict sample by sample.

    Args:
        features: Features of a step.
        segments: Steps of each segment that is normalised separately; none for the whole sequence.

    Reference:
        T. W. Webb and others. Learning representations that support extrapolation. ICML, 2020.
    """

    def __init__(self, features: int, segments: Sequence[int] = ()) -> None:
        super().__init__()
        self.segments = tuple(segments)
        self.gamma = nn.Parameter(torch.ones(features))
        self.beta = nn.Parameter(torch.zeros(features))

    def scaled(self, centred: Tensor, variance: Tensor) -> Tensor:
        """Return γ c / √(variance + 1e-8) + β for codes c with mean zero."""
        gamma, beta = self.gamma.to(centred.dtype), self.beta.to(centred.dtype)
        return torch.addcmul(beta, centred, gamma * torch.rsqrt(variance + EPSILON))

    def forward(self, codes: Tensor) -> Tensor:
        """Return (time, batch, features) with mean zero and variance one in time."""
        gamma, beta = self.gamma.to(codes.dtype), self.beta.to(codes.dtype)
        if len(self.segments) > 1:
            segments = codes.split(self.segments)
            return torch.cat([_standardise(segment, gamma, beta) for segment in segments])
        return _standardise(codes, gamma, beta)


class _Standardise(torch.autograd.Function):
    """Standardisation with fewer passes over memory, which take most of the time."""

    @staticmethod
    def forward(ctx: Any, codes: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
        centred = codes - codes.mean(0)
        scale = torch.rsqrt(centred.square().sum(0) / (len(codes) - 1) + EPSILON)
        ctx.save_for_backward(codes, gamma, beta, centred, scale)
        return torch.addcmul(beta, centred, scale * gamma)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        (gradient,) = gradients
        *inputs, centred, scale = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient will be differentiated
            return torch.autograd.grad(
                _standardise_simply(*inputs), inputs, gradient, create_graph=True
            )
        along = (gradient * centred).sum(0) * scale
        slope = scale * inputs[1]
        back = gradient * slope
        back -= centred * (slope * scale * along / (len(centred) - 1))
        back -= back.mean(0)
        return back, along.sum(0), gradient.sum((0, 1))


def _standardise_simply(codes: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    centred = codes - codes.mean(0)
    return gamma * centred / torch.sqrt(centred.square().sum(0) / (len(codes) - 1) + EPSILON) + beta


def _standardise(codes: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    if inside_functional_transform():  # which cannot use a custom autograd function
        return _standardise_simply(codes, gamma, beta)
    return _Standardise.apply(codes, gamma, beta)  # type: ignore[return-value]


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

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.RelationalModel(task.task_shape)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"pictures"})
    input_kinds: ClassVar[frozenset[InputKind]] = frozenset({"pictures"})
    sequential: ClassVar[bool | None] = True
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
