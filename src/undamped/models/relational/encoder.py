"""The encoder of pictures: three convolutions and two layers, or a random projection.

A frozen encoder sees each picture of a set once: as long as the same set comes again, its codes
are remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import ShapeError, explain
from undamped._base.torch_internals import version_of

EncoderKind = Literal["learned", "frozen", "random"]
CHANNELS, KERNEL, HIDDEN = 32, 4, 256
AT_ONCE = 96
"""Pictures that go through the convolutions together: more do not fit into a cache."""
SMALLEST = 8
"""Rows and columns that three convolutions of stride two leave something of."""


class PictureEncoder(nn.Module):
    """Pictures (count, channels, height, width) become codes (count, features) that are ≥ 0.

    Args:
        picture_shape: Channels, height and width.
        features: Size of a code.
        kind: "learned"; "frozen": the same network as it was drawn, never trained; "random": one
            random layer, never trained.
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
                    explain(
                        "pictures",
                        expected=f"at least {SMALLEST} × {SMALLEST} pixels",
                        got=f"{width} × {height}",
                        remedy="Enlarge them, or choose model.encoder=random.",
                    )
                )
            layers = []
            for before in (channels, CHANNELS, CHANNELS):
                layers += [nn.Conv2d(before, CHANNELS, KERNEL, stride=2, padding=1), nn.ReLU()]
            left = CHANNELS * (height // 8) * (width // 8)
            layers += [nn.Flatten(), nn.Linear(left, HIDDEN), nn.ReLU()]
            layers += [nn.Linear(HIDDEN, features), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        for layer in self.layers:
            if isinstance(layer, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                assert layer.bias is not None
                nn.init.zeros_(layer.bias)
        self.trained = kind == "learned"
        self.requires_grad_(self.trained)
        self._known = _Known()

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights."""
        return next(self.parameters()).dtype

    def forward(self, pictures: Tensor) -> Tensor:
        """Return codes; bytes count from 0 to 255, other pixels from 0 to 1."""
        pictures = self._fitting(pictures)
        with torch.set_grad_enabled(self.trained and torch.is_grad_enabled()):
            if len(pictures) <= 2 * AT_ONCE:
                return self.layers(pictures)
            return torch.cat([self.layers(part) for part in pictures.split(AT_ONCE)])

    def of_pictures(self, batch: Batch) -> tuple[Batch, Callable[[Tensor], Tensor]]:
        """Return a batch and what makes codes of its inputs.

        These are the pictures and this encoder, or codes that are known and nothing.
        """
        if not self.trained and batch.distinct is not None:
            known = self._known.codes(batch.distinct, self)
            if known is not None:
                return batch._replace(distinct=known), lambda codes: codes
        return batch, self

    def _fitting(self, pictures: Tensor) -> Tensor:
        if tuple(pictures.shape[1:]) != tuple(self.picture_shape):
            raise ShapeError(
                explain(
                    "pictures",
                    expected=f"(time, batch, {', '.join(map(str, self.picture_shape))})",
                    got=f"(…, {', '.join(map(str, pictures.shape[1:]))})",
                    remedy="Channels, height and width are those of the task the model is for.",
                )
            )
        if not pictures.is_floating_point():
            return pictures.to(self.dtype) / 255
        if not bool(torch.isfinite(pictures).all()):
            raise ShapeError(
                explain(
                    "pictures",
                    expected="pixels that are finite numbers",
                    got="others among them",
                    remedy="Fill the gaps first.",
                )
            )
        return pictures.to(self.dtype)

    def __getstate__(self) -> dict[str, object]:
        """Leave out what can be computed again."""
        return {**self.__dict__, "_known": _Known()}


class _Known:
    """The codes of the set that came last, if it came twice."""

    def __init__(self) -> None:
        self.pictures: Tensor | None = None
        self.found: Tensor | None = None
        self.versions: tuple[int, ...] = ()

    def codes(self, pictures: Tensor, encoder: PictureEncoder) -> Tensor | None:
        """Return the codes of a whole set, or None the first time that it is seen.

        A set that comes once, or that is made anew for every batch, is not worth it.
        """
        if pictures.is_inference() or any(p.is_inference() for p in encoder.parameters()):
            return None
        versions = tuple(version_of(part) for part in (pictures, *encoder.parameters()))
        where = next(encoder.parameters())
        same = pictures is self.pictures and versions == self.versions
        if not same:
            self.pictures, self.versions, self.found = pictures, versions, None
            return None
        if self.found is None or self.found.dtype != where.dtype:
            with torch.inference_mode(False), torch.no_grad():
                self.found = encoder(pictures)
        return self.found
