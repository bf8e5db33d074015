"""Latent models: latent ODE, ODE²VAE and RNN-VAE.

Latent ODE: Rubanova, Chen and Duvenaud, 2019; RNN-VAE is its baseline, without a flow. ODE²VAE:
Yıldız, Heinonen and Lähdesmäki, 2019.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.options import Default, NonNegativeFloat, PositiveInt, Units, select
from undamped._base.registry import models
from undamped.models.irregular.gap_rnn import GapOptions, GapRNN, ModesRNN
from undamped.models.irregular.network import Parts
from undamped.models.latent.latent_model import (
    BoundOptions,
    LatentFlowModel,
    LatentModel,
    LatentOptions,
    PathOptions,
)
from undamped.models.latent.points import UNITS, LatentFlow, Normal, integral, standard
from undamped.models.task_model import LossOutput, TaskLoss
from undamped.models.timestamped import Points, gap_feature, refuse_before
from undamped.ode.fields.perceptron import PerceptronField, RotatingField


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
        field_size: Width of the fields' hidden layers.
        field_layers: Number of hidden layers in the latent flow.
        field: The latent field: rotations and a perceptron, or a perceptron alone.
        encoder: The encoder: a network with rotations between samples, or an ODE-RNN.
        poisson: Whether the times of measurements are modelled too, by an intensity for every
            channel.
        poisson_weight: Weight of the log-likelihood of the times.
        options: See `LatentOptions`, `BoundOptions` and `PathOptions`.

    Reference:
        Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations for
        irregularly-sampled time series. NeurIPS, 2019.
    """

    recipe: ClassVar = {"train": {"learning_rate": 1e-2, "schedule": "cosine", "clip": 1.0}}

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
        latent_size, path = self.latent_size, select(options, PathOptions)
        further = {"field_size": field_size} if encoder == "ode-rnn" else {}
        self.encoder = self._encoder(
            models[encoder], options.get("hidden_size"), field_size, **further
        )
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


SHARP = math.log(0.01)
"""log λ at the start: weights are nearly certain, and learn how uncertain they are."""


class BayesianAcceleration(nn.Module):
    """s' = v, v' = f_W(s, v): a perceptron whose weights have a normal distribution.

    Equation:
        f_W(s, v) = W₂ tanh(W₁ [s, v] + b₁) + b₂,  W ~ N(m, λ²), p(W) = N(0, 1)

    Symbols:
        s positions, v velocities, W all weights and biases, m their means, λ a deviation for each.

    Weights are drawn by `draw`, once for a solve, and are their means after `settle`.

    Args:
        size: How many positions, and as many velocities.
        hidden_size: Width of the hidden layer.

    Example:
        >>> field = BayesianAcceleration(3, 16)
        >>> field(0.0, torch.randn(5, 6)).shape
        torch.Size([5, 6])
    """

    @checked
    def __init__(self, size: PositiveInt, hidden_size: PositiveInt = 32) -> None:
        super().__init__()
        self.size = size
        shapes = [(hidden_size, 2 * size), (hidden_size,), (size, hidden_size), (size,)]
        start = [nn.Linear(2 * size, hidden_size), nn.Linear(hidden_size, size)]
        values = [part for layer in start for part in (layer.weight, layer.bias)]
        self.means = nn.ParameterList([nn.Parameter(value.detach().clone()) for value in values])
        self.log_deviations = nn.ParameterList(
            [nn.Parameter(torch.full(shape, SHARP)) for shape in shapes]
        )
        self._weights: list[Tensor] | None = None

    def draw(self) -> None:
        """Draw the weights of the solves to come, differentiably."""
        self._weights = [
            mean + log_deviation.exp() * torch.randn_like(mean)
            for mean, log_deviation in zip(self.means, self.log_deviations, strict=True)
        ]

    def settle(self) -> None:
        """Set the weights to their means."""
        self._weights = None

    @property
    def weights(self) -> list[Tensor]:
        """W₁, b₁, W₂, b₂ as they are now."""
        return list(self.means) if self._weights is None else self._weights

    def forward(self, t: Any, y: Tensor) -> Tensor:
        """Return (v, f_W(s, v)), (…, 2 size)."""
        first, first_bias, second, second_bias = self.weights
        hidden = torch.tanh(nn.functional.linear(y, first, first_bias))
        moved = nn.functional.linear(hidden, second, second_bias)
        return torch.cat([y[..., self.size :], moved], -1)

    def trace(self, y: Tensor) -> Tensor:
        """Return tr ∂f/∂v, the rate at which the flow spreads volume, (…, 1)."""
        first, first_bias, second, _ = self.weights
        hidden = torch.tanh(nn.functional.linear(y, first, first_bias))
        # Σ_i Σ_j W₂[i, j] (1 − h_j²) W₁[j, size + i]
        shared = (second.mT * first[:, self.size :]).sum(-1)
        return ((1 - hidden.square()) @ shared).unsqueeze(-1)

    def divergence(self) -> Tensor:
        """Return KL(N(m, λ²) ‖ N(0, 1)) of all weights."""
        return torch.stack(
            [
                (0.5 * ((2 * log_std).exp() + mean.square() - 1) - log_std).sum()
                for mean, log_std in zip(self.means, self.log_deviations, strict=True)
            ]
        ).sum()


class ODE2VAEOptions(LatentOptions, PathOptions, total=False):
    """Sizes, training and solver of an ODE²VAE."""

    latent_size: Annotated[Units, Default(6, "Number of positions; as many velocities.")]


@models.register("ode2vae")
class ODE2VAE(LatentFlowModel):
    """ODE²VAE: latent positions and velocities, accelerated by a field whose weights are uncertain.

    Equation:
        s' = v,  v' = f_W(s, v),  x(t_i) ~ N(g(s(t_i)), σ²),  W ~ N(m, λ²)
        log q(z(t)) = log q(z(0)) − ∫ tr ∂f_W/∂v dt,  z = (s, v)
        bound = E [log p(x | s) − c Σ_i (log q(z(t_i)) − log p(z(t_i)))/n − KL(q(z₀))] − KL(W)/N

    Symbols:
        s positions, v velocities, g decoder, σ noise, f_W a perceptron, q the density that the flow
        transports from the encoder's q(z₀); p = N(0, 1); n points of a sequence, N sequences. With
        c = 0 it is a bound on the likelihood; with c > 0 the whole path is regularised towards p,
        as in the paper, which counts one random start several times.

    Promise:
        The flow is a homeomorphism: it can be solved back.

    Args:
        field_size: Width of the field's hidden layer.
        path_weight: c, the weight of the density along the path.
        sequences: N, the number of training sequences; by default that of the task if it is fixed.
        options: See `LatentOptions` and `PathOptions`.

    Reference:
        Ç. Yıldız, M. Heinonen, H. Lähdesmäki. ODE²VAE: deep generative second order ODEs with
        Bayesian neural networks. NeurIPS, 2019.
    """

    recipe: ClassVar = {"train": {"learning_rate": 5e-3, "schedule": "cosine", "clip": 1.0}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        field_size: Units = 50,
        path_weight: NonNegativeFloat = 0.0,
        sequences: PositiveInt = 1000,
        **options: Unpack[ODE2VAEOptions],
    ) -> None:
        latent = select(options, LatentOptions)
        latent_size = latent.pop("latent_size")
        super().__init__(shape, latent_size=2 * latent_size, state_size=latent_size, **latent)
        self.encoder = self._encoder(ModesRNN, latent["hidden_size"], field_size)
        self.field = BayesianAcceleration(latent_size, field_size)
        self.flow = LatentFlow(self.field, span=self.span, **select(options, PathOptions))
        self.positions = latent_size
        self.path_weight, self.sequences = path_weight, sequences

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return positions (draws, times, batch, latent)."""
        return self.flow(z, times)[..., : self.positions]

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> LossOutput:
        """Return the bound for one draw of the weights, negative and per point."""
        self.field.draw()
        try:
            return super().objective(batch, loss, state)
        finally:
            self.field.settle()

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Yield the parts of a pass with one draw of the weights."""
        self.field.draw()
        try:
            yield from super().parts_for_guard(batch)
        finally:
            self.field.settle()

    def of_weights(self) -> Tensor:
        """Return KL(W)/N, for one sequence."""
        return self.field.divergence() / self.sequences

    def of_times(
        self, posterior: Normal, starts: Tensor, states: Tensor, points: Points
    ) -> Tensor | float:
        """Return −c times the mean of log q − log p along the path, for every sequence."""
        if not self.path_weight:
            return 0.0
        measured = points.mask.any(-1)  # (points, batch)
        times = torch.where(measured, points.times, 0.0)
        position = times * (self.flow.steps / self.flow.span)
        density = self.path_density(posterior, starts, position)
        states = self.flow(starts, times)
        prior = standard(states).log_density(states)
        each = torch.where(measured, density - prior, 0.0).sum(1) / measured.sum(0).clamp(min=1)
        return -self.path_weight * self.divergence_weight() * each

    def path_density(self, posterior: Normal, starts: Tensor, position: Tensor) -> Tensor:
        """Return log q (draws, times, batch) at positions (times, batch), in steps of the grid."""
        path, slopes = self.flow.path_until(starts, position)
        size = UNITS / self.flow.steps
        spread = torch.stack(
            [integral(path, slopes, lambda z: size * self.field.trace(z), end) for end in position],
            1,
        ).squeeze(-1)
        return posterior.log_density(starts).unsqueeze(1) - spread


class _StillRNN(GapRNN):
    """A cell that reads ln(1 + Δt), the time since the previous sample in usual gaps.

    The state does not change between samples.
    """

    def __init__(self, input_size: int, hidden_size: int, **options: Unpack[GapOptions]) -> None:
        super().__init__(input_size, hidden_size, more=1, **options)

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """Return the cell's projection of values, of the mask, and of the gaps."""
        parts = [x, observed.to(x.dtype)] if self.missing else [x]
        ago = gap_feature(gaps, 1.0).unsqueeze(-1).to(x.dtype)
        return self.cell.project(torch.cat([*parts, ago], -1))

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        return state


class RNNVAEOptions(LatentOptions, BoundOptions, total=False):
    """Sizes and training of an RNN-VAE."""


@models.register("rnn-vae")
class RNNVAE(LatentModel):
    """RNN-VAE: one network encodes a sequence backwards, another decodes it from a latent state.

    Equation:
        z ~ N(0, 1),  h₀ = W z,  h_i = GRU(ln(1 + Δt_i), h_{i−1}),  x(t_i) ~ N(g(h_i), σ²)
        q(z | x) normal, from a GRU that reads (x_i, ln(1 + Δt_i)) backwards

    Symbols:
        z latent state, Δt_i time between two points, in usual gaps, the only input of the decoder.
        A prediction depends on the other query times, which those of a flow do not.

    Promise:
        None.

    Args:
        options: See `LatentOptions` and `BoundOptions`; the decoder network has `hidden_size`
            units too.

    Reference:
        The baseline of Y. Rubanova, R. Chen, D. Duvenaud. Latent ordinary differential equations
        for irregularly-sampled time series. NeurIPS, 2019.
    """

    recipe: ClassVar = {"train": {"learning_rate": 1e-2, "schedule": "cosine", "clip": 1.0}}

    decoder_name = "writer"

    @checked
    def __init__(self, shape: TaskShape, **options: Unpack[RNNVAEOptions]) -> None:
        latent = select(options, LatentOptions)
        hidden_size = latent["hidden_size"]
        super().__init__(shape, state_size=hidden_size, **latent, **select(options, BoundOptions))
        self.encoder = self._encoder(_StillRNN, hidden_size, hidden_size, further=1, cell="gru")
        self.first = nn.Linear(self.latent_size, hidden_size)
        self.writer: Any = models.build("gru", input_size=1, hidden_size=hidden_size)

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return states of the decoder network (draws, times, batch, hidden)."""
        refuse_before(times, 0.0)
        draws, batch = z.shape[:2]
        ordered, order = times.sort(0)
        gaps = torch.diff(ordered, dim=0, prepend=torch.zeros_like(ordered[:1]))
        inputs = gap_feature(gaps, self.gap).to(z.dtype).unsqueeze(-1).repeat(1, draws, 1)
        start = self.first(z).view(1, draws * batch, -1)
        states, _ = self.writer(inputs, start)
        back = order.argsort(0).repeat(1, draws).unsqueeze(-1).expand_as(states)
        return states.gather(0, back).unflatten(1, (draws, batch)).transpose(0, 1)
