"""Discrete depth: residual networks, plain and stable, as baselines of the flows."""

from __future__ import annotations

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.promises import Promise
from undamped._base.registry import models
from undamped.ode.flows.input_checks import fitting, type_of
from undamped.ode.flows.stable_residual import StableKind, StableLayers, StableResidual


@models.register("resnet")
class ResNet(nn.Module):
    """A residual network of perceptron blocks: the discrete baseline.

    Equation:
        h' = h + W₂ tanh(W₁ h + b₁) + b₂, with separate parameters in every block

    Symbols:
        h features.

    Promise:
        None: blocks need not be invertible.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        hidden_size: Width inside a block.
        depth: Number of blocks.
        width: Features between blocks; 0 for those of the input.

    Example:
        >>> model = undamped.models.ResNet(2, 2, depth=6)

    Reference:
        K. He and others. Deep residual learning for image recognition. CVPR, 2016.
    """

    usual_choice = True
    promises: tuple[Promise, ...] = ()

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        hidden_size: PositiveInt = 32,
        depth: PositiveInt = 6,
        width: NonNegativeInt = 0,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        size = width or input_size
        self.start = nn.Linear(input_size, size) if width else nn.Identity()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(size, hidden_size), nn.Tanh(), nn.Linear(hidden_size, size))
            for _ in range(depth)
        )
        self.head = nn.Linear(size, output_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores or values, (batch, output)."""
        x = self.start(fitting(x, self.input_size, type_of(self), "ResNet input"))
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


@models.register("stable-residual")
class StableResidualModel(nn.Module):
    """A stable deep residual network with a linear layer before and after it.

    Equation:
        As for `StableResidual`.

    Symbols:
        As for `StableResidual`.

    Promise:
        As for `StableResidual`: every kind but the antisymmetric is inverted layer by layer, so
        that training it takes the memory of one layer.

    Args:
        input_size: Features of the input.
        output_size: Classes or targets.
        width: Features of the layers.
        depth: Number of layers.
        kind: Which ODE and discretisation.
        step_size: Step size h.
        gamma: Diffusion, for the antisymmetric and midpoint kinds.

    Example:
        >>> model = undamped.models.StableResidualModel(2, 2, width=8, depth=50, kind="leapfrog")

    Reference:
        E. Haber, L. Ruthotto. 2017. B. Chang and others. AAAI, 2018.
    """

    promises: tuple[Promise, ...] = StableResidual.promises

    @checked
    def __init__(
        self,
        input_size: PositiveInt,
        output_size: PositiveInt,
        *,
        width: PositiveInt = 8,
        depth: PositiveInt = 50,
        kind: StableKind = "hamiltonian",
        step_size: PositiveFloat = 0.1,
        gamma: NonNegativeFloat = 0.0,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.start = nn.Linear(input_size, width)
        self.layers = StableResidual(width, depth, kind=kind, step_size=step_size, gamma=gamma)
        self.head = nn.Linear(width, output_size)
        self.promises = self.layers.promises

    @property
    def promising(self) -> StableLayers:
        """The layers, to which the promises apply."""
        return self.layers.layers

    def forward(self, x: Tensor) -> Tensor:
        """Return scores or values, (batch, output)."""
        x = fitting(x, self.input_size, type_of(self), "StableResidualModel input")
        return self.head(self.layers(self.start(x)))
