"""The encoder of images, and temporal context normalisation of its codes.

The encoder has three convolutions and two layers, or is a random projection. A frozen encoder
encodes each image of a set once: its codes are cached as long as the same set is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import ShapeError
from undamped._base.torch_internals import inside_functional_transform, version_of

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
