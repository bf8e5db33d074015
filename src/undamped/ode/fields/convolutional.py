"""Convolutional fields for images, as in the programs of the heavy-ball paper."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import PositiveInt


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
