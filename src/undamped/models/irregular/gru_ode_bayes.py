"""GRU-ODE-Bayes (De Brouwer, Simm, Arany and Moreau, 2019)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.contract.clock import LONGEST_GAP
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt, Units
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.irregular.gap_flows import STABLE_STEP, SolvedFlow
from undamped.models.irregular.model import StampedModel
from undamped.models.irregular.network import JumpNetwork, Parts
from undamped.models.latent.normal import log_normal
from undamped.models.latent.points import Points, asked_points, seen_points
from undamped.models.task_model import Aim, TaskLoss
from undamped.nn.gru import GRUCell
from undamped.ode.fields.gru_field import GRUField


class BayesNetwork(JumpNetwork):
    """A GRU as a field between samples, and a jump that sees how far off the forecast was.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        forecast_size: Width of the layer between a state and its forecast.
        jump_size: Features that a channel's measurement and forecast become for the jump.
        steps: Steps of rk4 per gap.
        missing: Whether features may be missing.
        gap: The usual time between two samples.
    """

    longest_gap = 0.1 * LONGEST_GAP

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        forecast_size: int,
        jump_size: int,
        steps: int,
        missing: bool,
        gap: float,
    ) -> None:
        super().__init__(input_size, hidden_size, missing=missing, gap=gap)
        self.gap_flow = SolvedFlow(
            GRUField(hidden_size), method="rk4", steps=steps, longest_step=STABLE_STEP
        )
        self.forecast = nn.Sequential(
            nn.Linear(hidden_size, forecast_size),
            nn.ReLU(),
            nn.Linear(forecast_size, 2 * input_size),
        )
        self.prepare = nn.Parameter(
            math.sqrt(2 / (4 + jump_size)) * torch.randn(input_size, 4, jump_size)
        )
        self.prepare_bias = nn.Parameter(torch.full((input_size, jump_size), 0.1))
        self.cell = GRUCell(input_size * jump_size, hidden_size)

    # The state: h, and what it was before the jump.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """h after a sample, and before it."""
        return (self.hidden_size, self.hidden_size)

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        """Values, and which were measured."""
        return torch.cat([x, observed.to(x.dtype)], -1)

    def expected(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of a measurement in a state, (…, input) each."""
        mean, log_variance = self.forecast(hidden).chunk(2, dim=-1)
        return mean, log_variance

    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """A step of a GRU that sees values, forecasts and errors, channel by channel."""
        x, seen = projected.chunk(2, dim=-1)
        before = state[0]
        mean, log_variance = self.expected(before)
        error = (x - mean) * torch.exp(-0.5 * log_variance)
        parts = torch.stack([x, mean, log_variance, error], -1)  # (batch, input, 4)
        each = torch.einsum("bif,ifj->bij", parts, self.prepare) + self.prepare_bias
        read = (torch.relu(each) * seen.unsqueeze(-1)).flatten(1)
        (after,) = self.cell.advance(self.cell.project(read), (before,), constants)
        return after, before

    def constants(self) -> Parts:
        """Those of the GRU."""
        return self.cell.constants()

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Move h; what it was before the last jump stays."""
        return self.gap_flow(state[0], gaps), state[1]


@models.register("gru-ode-bayes")
class GRUODEBayes(StampedModel):
    """GRU-ODE-Bayes: a forecast at all times, corrected by every measurement.

    Equation:
        dh/dt = (1 − z) ⊙ (u − h) between samples,  x(t) ~ N(μ(h), σ²(h))
        h⁺ = GRU(relu(W_c [x, μ, log σ², (x − μ)/σ]) for every channel c that was measured, h⁻)
        loss = −log N(x; μ(h⁻), σ²(h⁻)) + λ KL(N(μ(h⁺), σ²(h⁺)) ‖ N(x, s²))

    Symbols:
        h state, r, z, u gates and candidate of a GRU without input, h⁻ and h⁺ before and after a
        measurement, s = 0.01 of the usual size of values.

    Promise:
        Between samples −1 < h < 1 is kept: the field points inwards.

    Args:
        shape: The shape of the task.
        hidden_size: Number of hidden units.
        forecast_size: Width of the layer between a state and its forecast.
        jump_size: Features that a channel's measurement and forecast become for the jump.
        steps: Steps of rk4 per gap; over gaps of more than 2.5 usual ones there are more.
        mixing: λ.
        label_weight: How much a label counts, or a number that is asked for, beside a measurement.

    Example:
        >>> model = undamped.models.GRUODEBayes(undamped.models.TaskShape(3, 2))
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped._base.contract.Batch(x, times=times)).shape
        torch.Size([8, 2])

    Reference:
        E. De Brouwer, J. Simm, A. Arany, Y. Moreau. GRU-ODE-Bayes: continuous modeling of
        sporadically-observed time series. NeurIPS, 2019.
    """

    weighs_sequences = False  # the likelihood of what was read has no weights

    promises = (Promise(Kind.BOUNDED_GAPS, "between samples −1 < h < 1 is kept"),)

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        hidden_size: Units = 50,
        forecast_size: Units = 25,
        jump_size: Units = 25,
        steps: PositiveInt = 1,
        mixing: NonNegativeFloat = 1e-4,
        label_weight: PositiveFloat = 1.0,
    ) -> None:
        network = BayesNetwork(
            shape.input_size,
            hidden_size,
            forecast_size=forecast_size,
            jump_size=jump_size,
            steps=steps,
            missing="observed" in shape.needs,
            gap=shape.clock.gap if shape.clock is not None else 1.0,
        )
        super().__init__(
            network,
            shape.input_size,
            shape.output_size,
            readout=shape.readout,
            at_times=shape.answer == "trajectory",
            horizon=shape.horizon,
        )
        self.mixing, self.label_weight = mixing, label_weight
        self.forecasts = (self.at_times or self.horizon > 0) and shape.same_channels
        if self.forecasts:
            self.head = _Mean(network)

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> Aim:
        """Return how unlikely every measurement was just before it came, and the task's loss."""
        batch, network = batch.expanded(), self.network
        x = batch.inputs.to(self.dtype)
        states, final = network.states(x, batch.times, batch.observed, batch.lengths, state)
        seen = seen_points(batch, network.gap, self.dtype)
        surprise = _surprise(network, states[1], seen)
        after = self._divergence(states[0], seen)
        total = surprise + self.mixing * after
        if self.forecasts and self.at_times:
            # What is asked for is a measurement like any other, and the only one from far.
            start = network.initial_state(x.shape[1], x) if state is None else state
            times = network.stamps(x, batch.times, start[-1], fresh=state is None)
            asked = asked_points(batch, self.dtype)
            there = network.at(states, times, batch.lengths, asked.times, start)
            prediction = self.head(there)
            return Aim(
                total + _surprise(network, there, asked),
                loss(prediction, batch),
                prediction,
                final,
            )
        prediction, final = self._answer(batch, states, final, state)
        value = loss(prediction, batch)
        return Aim(total + self.label_weight * value, value, prediction, final)

    def _divergence(self, hidden: Tensor, points: Points) -> Tensor:
        """Return KL(N(μ, σ²) ‖ N(x, s²)) after the jump, a mean over what was measured."""
        mean, log_variance = self.network.expected(hidden)
        narrow = 0.01
        each = 0.5 * (
            (log_variance.exp() + (mean - points.values).square()) / narrow**2
            - 1
            - log_variance
            + 2 * math.log(narrow)
        )
        return _mean_where(each, points.known)

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a small task the model can answer."""
        return TaskShape(2, 2, answer="class")

    # What is promised is promised of the flow between samples.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """Those of the network."""
        return self.network.state_sizes[:1]

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Move states over gaps, solved finely."""
        fine = SolvedFlow(self.network.gap_flow.field, method="dopri5", tolerance=1e-8)
        return (fine(state[0], gaps),)


class _Mean(nn.Module):
    """The mean of a forecast, as a readout; its network belongs to the model."""

    def __init__(self, network: BayesNetwork) -> None:
        super().__init__()
        self._network = (network,)

    def forward(self, hidden: Tensor) -> Tensor:
        return self._network[0].expected(hidden)[0]


def _surprise(network: BayesNetwork, hidden: Tensor, points: Points) -> Tensor:
    """Return −log N(x; μ, σ²), a mean over what was measured."""
    mean, log_variance = network.expected(hidden)
    return _mean_where(-log_normal(points.values, mean, 0.5 * log_variance), points.known)


def _mean_where(values: Tensor, known: Tensor) -> Tensor:
    return torch.where(known, values, 0.0).sum() / known.sum().clamp(min=1)
