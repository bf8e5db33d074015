"""ODE²VAE (Yıldız, Heinonen and Lähdesmäki, 2019)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor

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
from undamped.models.irregular.modes_rnn import ModesRNN
from undamped.models.latent.encoder import BackwardEncoder, remembering
from undamped.models.latent.latent_model import LatentModel
from undamped.models.latent.normal import Normal, standard
from undamped.models.latent.path import UNITS, LatentFlow, integral
from undamped.models.latent.points import Points
from undamped.models.task_model import Aim, TaskLoss
from undamped.ode.fields.bayesian_acceleration import BayesianAcceleration


@models.register("ode2vae")
class ODE2VAE(LatentModel):
    """ODE²VAE: latent positions and velocities, accelerated by a field whose weights are uncertain.

    Equation:
        s' = v,  v' = f_W(s, v),  x(t_i) ~ N(g(s(t_i)), σ²),  W ~ N(m, λ²)
        log q(z(t)) = log q(z(0)) − ∫ tr ∂f_W/∂v dt,  z = (s, v)
        bound = E [log p(x | s) − c Σ_i (log q(z(t_i)) − log p(z(t_i)))/n − KL(q(z₀))] − KL(W)/N

    Symbols:
        s positions, v velocities, g decoder, σ noise, f_W a perceptron, q the density that the flow
        carries from the encoder's q(z₀), with its entropy; p = N(0, 1); n points of a sequence, N
        sequences. With c = 0 it is a bound on the likelihood; with c > 0 the whole path is drawn
        towards p, as the authors do, which counts one random start several times.

    Promise:
        The flow is a homeomorphism: it can be solved back.

    Args:
        shape: The shape of the task.
        latent_size: How many positions, and as many velocities.
        hidden_size: Units of the network that reads.
        field_size: Width of the field's hidden layer.
        decoder_size: Width of the decoder's hidden layer; 0 for a linear decoder.
        steps: Steps of the latent flow over the span of the task.
        method: Solver of the latent flow.
        noise: Standard deviation of measurements; learnt for every feature if not given.
        annealing: Updates over which the weight of the divergences grows from 0 to 1.
        path_weight: c, how much the density along the path counts.
        sequences: N, how many sequences there are to learn from; training on a task with a fixed
            number of them takes that number unless told otherwise.
        label_weight: How much a label counts beside a point.

    Example:
        >>> model = undamped.models.ODE2VAE(undamped.models.TaskShape(3, 2), latent_size=4)
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped._base.contract.Batch(x, times=times)).shape
        torch.Size([8, 2])

    Reference:
        Ç. Yıldız, M. Heinonen, H. Lähdesmäki. ODE²VAE: deep generative second order ODEs with
        Bayesian neural networks. NeurIPS, 2019.
    """

    promises = (Promise(Kind.INVERTIBLE_FLOW, "the latent flow can be solved back"),)
    recipe: ClassVar[dict[str, dict[str, Any]]] = {
        "train": {"learning_rate": 5e-3, "schedule": "cosine", "clip": 1.0}
    }

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        latent_size: Units = 6,
        hidden_size: Units = 40,
        field_size: Units = 50,
        decoder_size: NonNegativeInt = 0,
        steps: PositiveInt = 40,
        method: str = "rk4",
        noise: PositiveFloat | None = None,
        annealing: NonNegativeInt = 500,
        path_weight: NonNegativeFloat = 0.0,
        sequences: PositiveInt = 1000,
        label_weight: NonNegativeFloat = 1.0,
    ) -> None:
        super().__init__(
            shape,
            latent_size=2 * latent_size,
            state_size=latent_size,
            decoder_size=decoder_size,
            noise=noise,
            draws=1,
            bound="elbo",
            annealing=annealing,
            label_weight=label_weight,
        )
        missing = "observed" in shape.needs
        network = ModesRNN(
            shape.input_size,
            hidden_size,
            cell_options=remembering(shape.input_size * (2 if missing else 1)),
            missing=missing,
            gap=self.gap,
        )
        self.encoder = BackwardEncoder(network, 2 * latent_size, field_size)
        span = shape.clock.span if shape.clock is not None else 50 * self.gap
        self.field = BayesianAcceleration(latent_size, field_size)
        self.flow = LatentFlow(self.field, span=span, steps=steps, method=method)
        self.positions = latent_size
        self.path_weight, self.sequences = path_weight, sequences

    def posterior(self, batch: Batch) -> Normal:
        """Return q(z₀ | x), (batch, 2 latent)."""
        return self.encoder(batch, self.dtype)

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return positions (draws, times, batch, latent)."""
        return self.flow(z, times)[..., : self.positions]

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> Aim:
        """Return the bound for one draw of the weights, negative and per point."""
        self.field.draw()
        try:
            return super().objective(batch, loss, state)
        finally:
            self.field.settle()

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Go through the parts of a pass with one draw of the weights."""
        self.field.draw()
        try:
            yield from super().parts_for_guard(batch)
        finally:
            self.field.settle()

    def of_weights(self) -> Tensor:
        """KL(W)/N, the share of one sequence."""
        return self.field.divergence() / self.sequences

    def of_times(
        self, posterior: Normal, starts: Tensor, states: Tensor, points: Points
    ) -> Tensor | float:
        """−c times the mean of log q − log p along the path, for every sequence."""
        if not self.path_weight:
            return 0.0
        there = points.known.any(-1)  # (points, batch)
        place = torch.where(there, points.times, 0.0) * (self.flow.steps / self.flow.span)
        density = self.path_density(posterior, starts, place)
        carried = self.flow(starts, torch.where(there, points.times, 0.0))
        prior = standard(carried).log_density(carried)
        each = torch.where(there, density - prior, 0.0).sum(1) / there.sum(0).clamp(min=1)
        return -self.path_weight * self.divergence_weight() * each

    def path_density(self, posterior: Normal, starts: Tensor, place: Tensor) -> Tensor:
        """Return log q along the path, (draws, times, batch).

        Args:
            posterior: q(z₀).
            starts: (draws, batch, 2 latent).
            place: (times, batch) when, in steps of the flow's grid.
        """
        path, slopes = self.flow.path(starts, max(1, math.ceil(float(place.max()) - 1e-9)))
        size = UNITS / self.flow.steps
        spread = torch.stack(
            [integral(path, slopes, lambda z: size * self.field.trace(z), end) for end in place], 1
        ).squeeze(-1)
        return posterior.log_density(starts).unsqueeze(1) - spread

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
