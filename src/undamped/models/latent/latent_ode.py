"""Latent ODE (Rubanova, Chen and Duvenaud, 2019)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import (
    NonNegativeFloat,
    PositiveInt,
    Units,
    select,
)
from undamped._base.registry import models
from undamped.models.latent.latent_model import (
    BoundOptions,
    LatentFlowModel,
    LatentOptions,
    PathOptions,
)
from undamped.models.latent.path import (
    UNITS,
    BackwardEncoder,
    LatentFlow,
    integral,
    long_memory_options,
)
from undamped.models.latent.points import Normal, Points
from undamped.ode.fields.perceptron import PerceptronField
from undamped.ode.fields.rotating import RotatingField


class LatentODEOptions(LatentOptions, BoundOptions, PathOptions, total=False):
    """Sizes, training and solver of a latent ODE."""


@models.register("latent-ode")
class LatentODE(LatentFlowModel):
    """Latent ODE: a sequence is measured along a latent flow with an unknown initial state.

    Equation:
        z(0) ~ N(0, 1),  dz/dt = f(z),  x(t_i) ~ N(g(z(t_i)), σ²)
        q(z(0) | x) normal, from a network that reads x backwards and flows on to time 0

    Symbols:
        z latent state, f field, g decoder, σ noise, x measurements, of every channel at its times.
        Training maximises a bound on the likelihood of all points. The field is initialised as
        rotations of several frequencies, and so is the flow of the encoder: with a perceptron alone
        and an ODE-RNN, as in the paper, oscillations are learned only after thousands of updates.

    Promise:
        The flow is a homeomorphism: it can be solved back.

    Args:
        shape: The shape of the task.
        field_size: Width of the fields' hidden layers.
        field_layers: Number of hidden layers in the latent flow.
        field: The latent field: rotations and a perceptron, or a perceptron alone.
        encoder: The encoder: a network with rotations between samples, or an ODE-RNN.
        poisson: Whether the times of measurements are modelled too, by an intensity for every
            channel.
        poisson_weight: Weight of the log-likelihood of the times.
        options: See `LatentOptions`, `BoundOptions` and `PathOptions`.

    Example:
        >>> model = undamped.models.LatentODE(undamped.models.TaskShape(3, 2), latent_size=4)
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped._base.contract.Batch(x, times=times)).shape
        torch.Size([8, 2])

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019.
    """

    recipe: ClassVar[dict[str, dict[str, Any]]] = {
        "train": {"learning_rate": 1e-2, "schedule": "cosine", "clip": 1.0}
    }

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        field_size: Units = 100,
        field_layers: PositiveInt = 1,
        field: Literal["rotating", "perceptron"] = "rotating",
        encoder: Literal["modes-rnn", "ode-rnn"] = "modes-rnn",
        poisson: bool = False,
        poisson_weight: NonNegativeFloat = 0.1,
        **options: Unpack[LatentODEOptions],
    ) -> None:
        super().__init__(shape, **select(options, LatentOptions), **select(options, BoundOptions))
        missing = "observed" in shape.needs
        further = {"field_size": field_size} if encoder == "ode-rnn" else {}
        network = models.build(
            encoder,
            input_size=shape.input_size,
            hidden_size=options.get("hidden_size"),
            cell_options=long_memory_options(shape.input_size * (2 if missing else 1)),
            missing=missing,
            gap=self.gap,
            **further,
        )
        latent_size, path = self.latent_size, select(options, PathOptions)
        self.encoder = BackwardEncoder(network, latent_size, field_size)
        sizes: dict[str, Any] = {"hidden_size": field_size, "hidden_layers": field_layers}
        latent_field: nn.Module = PerceptronField(latent_size, **sizes, time=False)
        if field == "rotating":
            # From half a turn in the span to a quarter of one between samples, or to the highest
            # frequency that the grid resolves.
            turn = 2 * math.pi / UNITS
            most = max(1.0, min(self.span / self.gap / 4, path["steps"] / 8))
            latent_field = RotatingField(
                latent_size, **sizes, slowest=turn / 2, fastest=turn * most
            )
        self.flow = LatentFlow(latent_field, span=self.span, **path)
        self.poisson_weight = poisson_weight
        self.intensity = nn.Linear(latent_size, shape.input_size) if poisson else None

    def of_times(
        self, posterior: Normal, starts: Tensor, states: Tensor, points: Points
    ) -> Tensor | float:
        """Return Σ log λ(t_i) − ∫ λ dt, summed over channels, up to the last measurement."""
        log_rate = self.intensity
        if log_rate is None:
            return 0.0
        # Rates are per usual gap; `gaps` is the length of a step of the grid in usual gaps.
        gaps = self.flow.span / self.flow.steps / self.gap
        events = torch.where(points.mask, log_rate(states), 0.0).sum((1, 3))
        last = torch.where(points.mask.any(-1), points.times, 0.0).amax(0)
        end = last * (self.flow.steps / self.flow.span)
        path, slopes = self.flow.path_until(starts, end)
        expected = integral(path, slopes, lambda z: gaps * log_rate(z).exp(), end)
        return self.poisson_weight * (events - expected.sum(-1))
