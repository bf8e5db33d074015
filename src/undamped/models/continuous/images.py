"""Continuous-depth models of pictures: a convolutional flow and a linear readout of all pixels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import ShapeError, explain
from undamped._base.options import Default, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.registry import models
from undamped.models.continuous.base import ContinuousModel
from undamped.models.continuous.heavy_ball import (
    GENERAL_HEAVY_BALL,
    HEAVY_BALL,
    NO_SHARE,
    HeavyBall,
)
from undamped.models.continuous.options import DepthOptions, flow_of
from undamped.ode.fields.convolutional import ConvolutionalField, ConvolutionalStart, ZeroChannels
from undamped.ode.fields.heavy_ball import HeavyBallField, SecondOrderField
from undamped.ode.flows.input_checks import fitting_pictures, type_of
from undamped.ode.flows.solve_options import TOLERANCE

SMALL = 3
"""Side of the pictures on which promises are measured."""


class ImageSolveOptions(DepthOptions, total=False):
    """How the field of a model of pictures is solved: as any, with a finer tolerance."""

    tolerance: Annotated[PositiveFloat, Default(1e-4, TOLERANCE)]


class ImageModel(ContinuousModel):
    """Pictures in, as rows of pixels, colour after colour; answers out."""

    def _build(
        self,
        input_size: int,
        output_size: int,
        colours: int,
        channels: int,
        make_start: Callable[[], nn.Module],
        field: nn.Module,
        solve: ImageSolveOptions,
    ) -> None:
        side = math.isqrt(input_size // colours)
        if colours * side * side != input_size:
            raise ShapeError(
                explain(
                    "input_size",
                    expected=f"square pictures of {colours} colour{'s' * (colours > 1)}",
                    got=f"{input_size} numbers",
                    remedy="Give input_size and colours that fit, such as 784 and 1 or 3072 and "
                    "3, or choose a model of vectors such as 'node'.",
                )
            )
        self.picture = (colours, side, side)
        self.input_size = input_size
        self.channels = channels
        self.start = nn.Sequential(nn.Unflatten(1, self.picture), make_start())
        self.flow = flow_of(field, solve, ImageSolveOptions)
        self.keep(solve, **({} if isinstance(field, ConvolutionalField) else NO_SHARE))
        self.head = nn.Linear(channels * side * side, output_size)

    def fitting(self, x: Tensor) -> Tensor:
        """Return pictures as the model takes them, or say what it expects instead."""
        return fitting_pictures(x, self.picture, type_of(self), f"{type(self).__name__} input")

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor | None]:
        """Return states of small random pictures, which the same convolutions read."""
        colours, side, _ = self.picture
        side = min(side, SMALL)
        x = torch.randn(count, colours, side, side, generator=generator).to(self.head.weight)
        _, make_start = self.start.children()
        return make_start(x), None

    def features(self, x: Tensor) -> Tensor:
        """Return all positions at the end of depth, (batch, channels × pixels)."""
        return super().features(x)[:, : self.channels].flatten(1)


@models.register("conv-node")
class ConvNODE(ImageModel):
    """A neural ODE of pictures, augmented with channels of zeros if wished.

    Equation:
        ḣ = f(t, h),  h(0) = [x, 0],  ŷ = W h(T) + b

    Symbols:
        x picture, h state, f three convolutions, T depth, W and b readout of all pixels.

    Promise:
        The flow is a homeomorphism: two pictures never meet, and solving back from the end gives
        the picture again.

    Args:
        input_size: Numbers of a picture: colours × rows × columns.
        output_size: Classes or targets.
        hidden_size: Channels inside the field.
        augmented_channels: Channels of zeros added (ANODE).
        colours: Channels of the picture.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

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
        hidden_size: PositiveInt = 92,
        augmented_channels: NonNegativeInt = 0,
        colours: PositiveInt = 1,
        **solve: Unpack[ImageSolveOptions],
    ) -> None:
        super().__init__()
        channels = colours + augmented_channels
        self._build(
            input_size,
            output_size,
            colours,
            channels,
            lambda: ZeroChannels(augmented_channels) if augmented_channels else nn.Identity(),
            ConvolutionalField(channels, hidden_size),
            solve,
        )


@models.register("conv-sonode")
class ConvSONODE(ImageModel):
    """A second-order neural ODE of pictures.

    Equation:
        ḧ = f(t, [h, ḣ])

    Symbols:
        h position, of which the picture is the first channels and the others, with the velocity,
        are computed from it; f three convolutions.

    Promise:
        As for SONODE: the flow of position and velocity together is a homeomorphism.

    Args:
        input_size: Numbers of a picture: colours × rows × columns.
        output_size: Classes or targets.
        hidden_size: Channels inside the field.
        channels: Channels of the position.
        colours: Channels of the picture.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

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
        hidden_size: PositiveInt = 50,
        channels: PositiveInt = 5,
        colours: PositiveInt = 1,
        **solve: Unpack[ImageSolveOptions],
    ) -> None:
        super().__init__()
        _check_channels(channels, colours)
        force = ConvolutionalField(channels, hidden_size, input_channels=2 * channels)
        self._build(
            input_size,
            output_size,
            colours,
            channels,
            lambda: ConvolutionalStart(colours, channels, hidden_size),
            SecondOrderField(force, dim=1),
            solve,
        )


@models.register("conv-hbnode")
class ConvHBNODE(HeavyBall, ImageModel):
    """A heavy-ball neural ODE of pictures, plain or general.

    Equation:
        ḣ = m,  ṁ = −γ m + f(t, h);  general: ḣ = tanh(m),  ṁ = −γ m + f(t, h) − ξ h

    Symbols:
        h position and m momentum as for conv-sonode, γ learned damping, ξ learned restoring
        force, f three convolutions.

    Promise:
        As for HBNODE: eigenvalues of the Jacobian come in pairs of sum −γ, and the determinant of
        the flow does not depend on the force; with `general`, no position moves further than T.

    Args:
        input_size: Numbers of a picture: colours × rows × columns.
        output_size: Classes or targets.
        hidden_size: Channels inside the force.
        channels: Channels of the position.
        general: Whether it is GHBNODE.
        damping: γ at the start, below 1.
        colours: Channels of the picture.
        solve: Depth, solver and what training keeps of gradients: see `DepthOptions`.

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
        hidden_size: PositiveInt = 50,
        channels: PositiveInt = 5,
        general: bool = False,
        damping: PositiveFloat = 0.0474,
        colours: PositiveInt = 1,
        **solve: Unpack[ImageSolveOptions],
    ) -> None:
        super().__init__()
        _check_channels(channels, colours)
        force = ConvolutionalField(channels, hidden_size)
        if general:
            self.promises = GENERAL_HEAVY_BALL
        self._build(
            input_size,
            output_size,
            colours,
            channels,
            lambda: ConvolutionalStart(colours, channels, hidden_size),
            HeavyBallField(force, damping=damping, general=general, dim=1),
            solve,
        )


def _check_channels(channels: int, colours: int) -> None:
    if channels < colours:
        raise ShapeError(
            explain(
                "channels",
                expected=f"at least the {colours} of the picture",
                got=channels,
                remedy="A position begins with the picture itself.",
            )
        )
