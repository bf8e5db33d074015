"""Continuous-depth models of images: a convolutional flow and a linear readout of all pixels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import ShapeError
from undamped._base.options import Default, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel, DepthOptions, flow_of
from undamped.models.continuous.second_order import (
    GENERAL_HEAVY_BALL,
    HEAVY_BALL,
    NO_PARAMETERS,
    HeavyBall,
)
from undamped.ode.fields.heavy_ball import HeavyBallField, SecondOrderField
from undamped.ode.flows.input_checks import fitting_images, type_of
from undamped.ode.flows.solving import TOLERANCE

SMALL = 3
"""Side of the images on which promises are measured."""


class ChannelOptions(TypedDict, total=False):
    """Channels of a model of images."""

    hidden_size: Annotated[PositiveInt, Default(50, "Channels inside the field.")]
    colours: Annotated[PositiveInt, Default(1, "Channels of the image.")]


class ImageOptions(ChannelOptions, DepthOptions, total=False):
    """Channels, depth and solver of a model of images, with a finer tolerance."""

    tolerance: Annotated[PositiveFloat, Default(1e-4, TOLERANCE)]


class ConvNODEOptions(ImageOptions, total=False):
    """Channels, depth and solver of a neural ODE of images, with a wider field."""

    hidden_size: Annotated[PositiveInt, Default(92, "Channels inside the field.")]


class ConvolutionalField(nn.Module):
    """Three convolutions as dy/dt, each of which sees the time.

    Equation:
        f(t, y) = C₃ [relu(C₂ [relu(C₁ [y, t]), t]), t], with kernels of 1 × 1, 3 × 3 and 1 × 1

    Symbols:
        [·, t] one more channel, whose values are the time.

    Args:
        channels: Channels of the output.
        hidden_size: Channels between.
        input_channels: Channels the field sees; as many as it returns by default.

    Example:
        >>> field = ConvolutionalField(5, 50)
        >>> field(torch.tensor(0.0), torch.randn(2, 5, 28, 28)).shape
        torch.Size([2, 5, 28, 28])

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021, and
        its authors' programs for MNIST and CIFAR-10.
    """

    @checked
    def __init__(
        self,
        channels: PositiveInt,
        hidden_size: PositiveInt = 50,
        *,
        input_channels: PositiveInt | None = None,
    ) -> None:
        super().__init__()
        first = (channels if input_channels is None else input_channels) + 1
        self.layers = nn.ModuleList(
            (
                nn.Conv2d(first, hidden_size, 1),
                nn.Conv2d(hidden_size + 1, hidden_size, 3, padding=1),
                nn.Conv2d(hidden_size + 1, channels, 1),
            )
        )

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return dy/dt, (batch, channels, rows, columns)."""
        time = torch.zeros_like(y[:, :1]) + t
        for number, layer in enumerate(self.layers):
            y = layer(torch.cat((torch.relu(y) if number else y, time), dim=1))
        return y


class ConvolutionalStart(nn.Module):
    """The start of a second-order model of images: computed channels and momenta.

    Equation:
        [h, m](0) = [x, C₃ λ(C₂ λ(C₁ x))], with kernels of 1 × 1, 3 × 3 and 1 × 1

    Symbols:
        x image, λ a leaky relu of slope 0.3 below zero.

    Args:
        input_channels: Channels of the image.
        channels: Channels of the position; as many of the momentum.
        hidden_size: Channels between.
    """

    @checked
    def __init__(
        self, input_channels: PositiveInt, channels: PositiveInt, hidden_size: PositiveInt
    ) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(input_channels, hidden_size, 1),
            nn.LeakyReLU(0.3),
            nn.Conv2d(hidden_size, hidden_size, 3, padding=1),
            nn.LeakyReLU(0.3),
            nn.Conv2d(hidden_size, 2 * channels - input_channels, 1),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, 2 × channels, rows, columns)."""
        return torch.cat((x, self.net(x)), dim=1)


class ZeroChannels(nn.Module):
    """Append channels of zeros to an image (ANODE).

    Args:
        extra: How many.
    """

    def __init__(self, extra: int) -> None:
        super().__init__()
        self.extra = extra

    def forward(self, x: Tensor) -> Tensor:
        """Return (batch, channels + extra, rows, columns)."""
        zeros = x.new_zeros(x.shape[0], self.extra, *x.shape[2:])
        return torch.cat((x, zeros), dim=1)


class ImageModel(ContinuousModel):
    """A model of images, given as rows of pixels, colour after colour.

    Args:
        input_size: Numbers of an image: colours × rows × columns.
    """

    def _build(
        self, sizes: tuple[int, int], channels: int, field: nn.Module, options: Mapping[str, Any]
    ) -> None:
        (input_size, output_size), colours = sizes, options["colours"]
        first_order = isinstance(field, ConvolutionalField)
        if channels < colours:
            raise ShapeError(
                f"channels must be at least {colours}, those of the image, since a position starts "
                f"with the image, got {channels}."
            )
        side = math.isqrt(input_size // colours)
        if colours * side * side != input_size:
            raise ShapeError(
                f"input_size={input_size} is not a square image of {colours} "
                f"colour{'s' * (colours > 1)}. Set input_size and colours that fit, such as 784 "
                "and 1 or 3072 and 3, or choose a model of vectors such as 'node'."
            )
        self.image_shape, self.channels = (colours, side, side), channels
        start: nn.Module = nn.Identity()
        if not first_order:
            start = ConvolutionalStart(colours, channels, options["hidden_size"])
        elif channels > colours:
            start = ZeroChannels(channels - colours)
        self._assemble(
            nn.Sequential(nn.Unflatten(1, self.image_shape), start),
            flow_of(field, options, ImageOptions),
            (input_size, channels * side * side, output_size),
            options,
            {} if first_order else NO_PARAMETERS,
        )

    def fitting(self, x: Tensor) -> Tensor:
        """Return images in the type of the model; raise an error if their shape is wrong."""
        return fitting_images(x, self.image_shape, type_of(self), f"{type(self).__name__} input")

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return initial states of small random images, which the same convolutions read."""
        colours, side, _ = self.image_shape
        side = min(side, SMALL)
        x = torch.randn(count, colours, side, side, generator=generator).to(self.head.weight)
        _, make_start = self.start.children()
        return make_start(x), None

    def features(self, x: Tensor) -> Tensor:
        """Return all positions at the end of depth, (batch, channels × pixels)."""
        return super().features(x)[:, : self.channels].flatten(1)


@models.register("conv-node")
class ConvNODE(ImageModel):
    """A neural ODE of images, with optional augmentation by channels of zeros.

    Equation:
        ḣ = f(t, h),  h(0) = [x, 0],  ŷ = W h(T) + b

    Symbols:
        x image, h state, f three convolutions, T depth, W and b readout of all pixels.

    Promise:
        The flow is a homeomorphism: two images never meet, and solving back from the end recovers
        the image.

    Args:
        augmented_channels: Channels of zeros added (ANODE).
        options: See `ChannelOptions` and `DepthOptions`.

    Example:
        >>> model = undamped.models.ConvNODE(784, 10, hidden_size=64, augmented_channels=5)

    Reference:
        R. Chen and others. NeurIPS, 2018. E. Dupont and others. Augmented neural ODEs. NeurIPS,
        2019. The field: H. Xia and others. NeurIPS, 2021.
    """

    usual_choice = True

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        augmented_channels: NonNegativeInt = 0,
        **options: Unpack[ConvNODEOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        channels = values["colours"] + augmented_channels
        field = ConvolutionalField(channels, values["hidden_size"])
        self._build((input_size, output_size), channels, field, options)


@models.register("conv-sonode")
class ConvSONODE(ImageModel):
    """A second-order neural ODE of images.

    Equation:
        ḧ = f(t, [h, ḣ])

    Symbols:
        h position, of which the image is the first channels and the others, with the velocity,
        are computed from it; f three convolutions.

    Promise:
        As for SONODE: the flow of position and velocity together is a homeomorphism.

    Args:
        channels: Channels of the position.
        options: See `ChannelOptions` and `DepthOptions`.

    Example:
        >>> model = undamped.models.ConvSONODE(784, 10)

    Reference:
        A. Norcliffe and others. On second order behaviour in augmented neural ODEs. NeurIPS,
        2020. The field: H. Xia and others. NeurIPS, 2021.
    """

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        channels: PositiveInt = 5,
        **options: Unpack[ImageOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        force = ConvolutionalField(channels, values["hidden_size"], input_channels=2 * channels)
        field = SecondOrderField(force, dim=1)
        self._build((input_size, output_size), channels, field, options)


@models.register("conv-hbnode")
class ConvHBNODE(HeavyBall, ImageModel):
    """A heavy-ball neural ODE of images, plain or general.

    Equation:
        ḣ = m,  ṁ = −γ m + f(t, h);  general: ḣ = tanh(m),  ṁ = −γ m + f(t, h) − ξ h

    Symbols:
        h position and m momentum as for conv-sonode, γ learned damping, ξ learned restoring
        force, f three convolutions.

    Promise:
        As for HBNODE: eigenvalues of the Jacobian come in pairs of sum −γ, and the determinant of
        the flow does not depend on the force; with `general`, no position moves further than T.

    Args:
        channels: Channels of the position.
        general: Whether it is GHBNODE.
        damping: Initial γ, below 1.
        options: See `ChannelOptions` and `DepthOptions`.

    Example:
        >>> model = undamped.models.ConvHBNODE(784, 10)

    Reference:
        H. Xia and others. Heavy ball neural ordinary differential equations. NeurIPS, 2021.
    """

    usual_choice = True
    promises = HEAVY_BALL

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        channels: PositiveInt = 5,
        general: bool = False,
        damping: PositiveFloat = 0.0474,
        **options: Unpack[ImageOptions],
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        if general:
            self.promises = GENERAL_HEAVY_BALL
        force = ConvolutionalField(channels, values["hidden_size"])
        field = HeavyBallField(force, damping=damping, general=general, dim=1)
        self._build((input_size, output_size), channels, field, options)
