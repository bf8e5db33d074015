"""Latent ODE (Rubanova, Chen and Duvenaud, 2019)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.options import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Units,
)
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.latent.encoder import BackwardEncoder, remembering
from undamped.models.latent.latent_model import Bound, LatentModel
from undamped.models.latent.normal import Normal
from undamped.models.latent.path import UNITS, LatentFlow, integral
from undamped.models.latent.points import Points
from undamped.ode.fields.perceptron import PerceptronField
from undamped.ode.fields.rotating import RotatingField


@models.register("latent-ode")
class LatentODE(LatentModel):
    """Latent ODE: a sequence is what can be seen of a flow, whose start is all that is unknown.

    Equation:
        z(0) ~ N(0, 1),  dz/dt = f(z),  x(t_i) ~ N(g(z(t_i)), σ²)
        q(z(0) | x) normal, from a network that reads x backwards and flows on to time 0

    Symbols:
        z latent state, f field, g decoder, σ noise, x what was measured, of every channel when it
        was. Learnt by a bound on the likelihood of all points. The field begins as rotations of
        several frequencies, and so does the flow of the network that reads: from a perceptron alone
        and an ODE-RNN, the authors' choice, oscillations are found only after thousands of updates.

    Promise:
        The flow is a homeomorphism: it can be solved back.

    Args:
        shape: The shape of the task.
        latent_size: Features of the latent state.
        hidden_size: Units of the network that reads.
        field_size: Width of the fields' hidden layers.
        field_layers: Their number in the latent flow.
        field: What the latent state follows: rotations and a perceptron, or a perceptron alone.
        encoder: The network that reads: one with rotations between samples, or an ODE-RNN.
        decoder_size: Width of the decoder's hidden layer; 0 for a linear decoder.
        steps: Steps of the latent flow over the span of the task; answers lie on cubics between.
        method: Solver of the latent flow.
        noise: Standard deviation of measurements; learnt for every feature if not given.
        draws: Draws of the latent state for every sequence in training.
        bound: "elbo" is the mean of the draws, "iwae" the tighter bound of all of them together.
        annealing: Updates over which the weight of the divergence grows from 0 to 1.
        label_weight: How much a label counts beside a point.
        poisson: Whether the times of measurements are modelled too, by an intensity for every
            channel.
        poisson_weight: How much of their log-likelihood is learnt.

    Example:
        >>> model = undamped.models.LatentODE(undamped.models.TaskShape(3, 2), latent_size=4)
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped._base.contract.Batch(x, times=times)).shape
        torch.Size([8, 2])

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019.
    """

    promises = (Promise(Kind.INVERTIBLE_FLOW, "the latent flow can be solved back"),)
    recipe: ClassVar[dict[str, dict[str, Any]]] = {
        "train": {"learning_rate": 1e-2, "schedule": "cosine", "clip": 1.0}
    }

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        latent_size: Units = 10,
        hidden_size: Units = 40,
        field_size: Units = 100,
        field_layers: PositiveInt = 1,
        field: Literal["rotating", "perceptron"] = "rotating",
        encoder: Literal["modes-rnn", "ode-rnn"] = "modes-rnn",
        decoder_size: NonNegativeInt = 0,
        steps: PositiveInt = 40,
        method: str = "rk4",
        noise: PositiveFloat | None = None,
        draws: PositiveInt = 1,
        bound: Bound = "elbo",
        annealing: NonNegativeInt = 500,
        label_weight: NonNegativeFloat = 1.0,
        poisson: bool = False,
        poisson_weight: NonNegativeFloat = 0.1,
    ) -> None:
        super().__init__(
            shape,
            latent_size=latent_size,
            decoder_size=decoder_size,
            noise=noise,
            draws=draws,
            bound=bound,
            annealing=annealing,
            label_weight=label_weight,
        )
        missing = "observed" in shape.needs
        further = {"field_size": field_size} if encoder == "ode-rnn" else {}
        network = models.build(
            encoder,
            input_size=shape.input_size,
            hidden_size=hidden_size,
            cell_options=remembering(shape.input_size * (2 if missing else 1)),
            missing=missing,
            gap=self.gap,
            **further,
        )
        self.encoder = BackwardEncoder(network, latent_size, field_size)
        span = shape.clock.span if shape.clock is not None else 50 * self.gap
        sizes: dict[str, Any] = {"hidden_size": field_size, "hidden_layers": field_layers}
        made: nn.Module = PerceptronField(latent_size, **sizes, time=False)
        if field == "rotating":
            # From half a turn in the span to a quarter of one between samples, or what the grid of
            # the flow can follow.
            turn = 2 * math.pi / UNITS
            most = max(1.0, min(span / self.gap / 4, steps / 8))
            made = RotatingField(latent_size, **sizes, slowest=turn / 2, fastest=turn * most)
        self.flow = LatentFlow(made, span=span, steps=steps, method=method)

        self.poisson_weight = poisson_weight
        self.intensity = nn.Linear(latent_size, shape.input_size) if poisson else None

    def posterior(self, batch: Batch) -> Normal:
        """Return q(z₀ | x), (batch, latent)."""
        return self.encoder(batch, self.dtype)

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return latent states (draws, times, batch, latent)."""
        return self.flow(z, times)

    def of_times(
        self, posterior: Normal, starts: Tensor, states: Tensor, points: Points
    ) -> Tensor | float:
        """Σ log λ(t_i) − ∫ λ dt for every channel, from time 0 to the last measurement."""
        log_rate = self.intensity
        if log_rate is None:
            return 0.0
        # Rates are per usual gap; a step of the grid is so many of them.
        gaps = self.flow.span / self.flow.steps / self.gap
        happened = torch.where(points.known, log_rate(states), 0.0).sum((1, 3))
        last = torch.where(points.known.any(-1), points.times, 0.0).amax(0)
        end = last * (self.flow.steps / self.flow.span)
        path, slopes = self.flow.path(starts, max(1, math.ceil(float(end.max()) - 1e-9)))
        expected = integral(path, slopes, lambda z: gaps * log_rate(z).exp(), end)
        return self.poisson_weight * (happened - expected.sum(-1))

    # What is promised is promised of the ODE.

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, None]:
        """Return random latent states, and nothing beside them."""
        like = next(self.parameters())
        return torch.randn(count, self.latent_size, generator=generator).to(like), None

    def carry(self, state: Tensor, given: object = None) -> Tensor:
        """Return where latent states are after a unit of the flow's own time."""
        return self.flow.finely(state, 1.0)

    def carry_back(self, state: Tensor, given: object = None) -> Tensor:
        """Return where they were a unit before."""
        return self.flow.finely(state, -1.0)
