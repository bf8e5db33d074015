"""GRU-ODE-Bayes (De Brouwer, Simm, Arany and Moreau, 2019)."""

from __future__ import annotations

import math
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import LONGEST_GAP, Batch, TaskShape
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt, Units
from undamped._base.registry import models
from undamped.models.irregular.gap_flows import STABLE_STEP, SolvedFlow
from undamped.models.irregular.model import TimestampedModel
from undamped.models.irregular.network import JumpNetwork, Parts, SampleOptions
from undamped.models.latent.points import log_normal
from undamped.models.task_model import LossOutput, TaskLoss
from undamped.models.timestamped import Points, observed_points, target_points
from undamped.nn.lstm import GRUCell
from undamped.ode.fields.gru_field import GRUField


class BayesNetwork(JumpNetwork):
    """A GRU as a field between samples, and a jump that reads the forecast error.

    Args:
        forecast_size: Hidden width of the forecast.
        jump_size: Features of each channel for the jump, from measurement and forecast.
        steps: Steps of rk4 per gap.
        samples: See `SampleOptions`.
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
        **samples: Unpack[SampleOptions],
    ) -> None:
        super().__init__(input_size, hidden_size, **samples)
        self.gap_flow = SolvedFlow(
            GRUField(hidden_size), method="rk4", steps=steps, longest_step=STABLE_STEP
        )
        first = nn.Linear(hidden_size, forecast_size)
        self.forecast = nn.Sequential(first, nn.ReLU(), nn.Linear(forecast_size, 2 * input_size))
        self.prepare = nn.Parameter(
            math.sqrt(2 / (4 + jump_size)) * torch.randn(input_size, 4, jump_size)
        )
        self.prepare_bias = nn.Parameter(torch.full((input_size, jump_size), 0.1))
        self.cell = GRUCell(input_size * jump_size, hidden_size)

    # The state: h after and before the last jump.

    @property
    def state_sizes(self) -> tuple[int, ...]:
        """h after a sample, and before it."""
        return (self.hidden_size, self.hidden_size)

    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Tensor:
        return torch.cat([x, observed.to(x.dtype)], -1)

    def expected(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and log-variance of a measurement in a state, (…, input) each."""
        mean, log_variance = self.forecast(hidden).chunk(2, dim=-1)
        return mean, log_variance

    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """Return the state after a GRU step on values, forecasts and errors of every channel."""
        x, mask = projected.chunk(2, dim=-1)
        before = state[0]
        mean, log_variance = self.expected(before)
        error = (x - mean) * torch.exp(-0.5 * log_variance)
        parts = torch.stack([x, mean, log_variance, error], -1)  # (batch, input, 4)
        each = torch.einsum("bif,ifj->bij", parts, self.prepare) + self.prepare_bias
        inputs = (torch.relu(each) * mask.unsqueeze(-1)).flatten(1)
        (after,) = self.cell.advance(self.cell.project(inputs), (before,), constants)
        return after, before

    def constants(self) -> Parts:
        return self.cell.constants()

    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        return self.gap_flow(state[0], gaps), state[1]


@models.register("gru-ode-bayes")
class GRUODEBayes(TimestampedModel):
    """GRU-ODE-Bayes: a forecast at all times, which every measurement corrects.

    Equation:
        dh/dt = (1 − z) ⊙ (u − h) between samples,  x(t) ~ N(μ(h), σ²(h))
        h⁺ = GRU(relu(W_c [x, μ, log σ², (x − μ)/σ]) for every channel c that was measured, h⁻)
        loss = −log N(x; μ(h⁻), σ²(h⁻)) + λ KL(N(μ(h⁺), σ²(h⁺)) ‖ N(x, s²))

    Symbols:
        h state, r, z, u gates and candidate of a GRU without input, h⁻ and h⁺ before and after a
        measurement, s = 0.01.

    Promise:
        Between samples −1 < h < 1 holds, since the field points inwards.

    Args:
        shape: The shape of the task.
        hidden_size: Number of hidden units.
        forecast_size: Hidden width of the forecast.
        jump_size: Features of each channel for the jump, from measurement and forecast.
        steps: Steps of rk4 per gap; more over gaps of more than 2.5 usual ones.
        mixing: Weight λ of the divergence.
        label_weight: Weight of a label, or of a target number, relative to a measurement.

    Example:
        >>> model = undamped.models.GRUODEBayes(undamped.models.TaskShape(3, 2))
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped.models.Batch(x, times=times)).shape
        torch.Size([8, 2])

    Reference:
        E. De Brouwer, J. Simm, A. Arany, Y. Moreau. GRU-ODE-Bayes: continuous modeling of
        sporadically-observed time series. NeurIPS, 2019.
    """

    weighs_sequences = False  # the likelihood of the inputs has no weights

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

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> LossOutput:
        """Return the negative log-likelihood of measurements given those before, and the loss."""
        batch, network = batch.expanded(), self.network
        states, final = self._states(batch, state)
        inputs = observed_points(batch, network.gap, self.dtype)
        likelihood = _negative_log_likelihood(network, states[1], inputs)
        total = likelihood + self.mixing * self._divergence(states[0], inputs)
        if self.forecasts and self.at_times:
            # Targets are measurements like any other, and the only ones that are far ahead.
            x, size = batch.inputs, batch.inputs.shape[1]
            start = network.initial_state(size, states[0]) if state is None else state
            times = network.timestamps(x, batch.times, start[-1], fresh=state is None)
            targets = target_points(batch, self.dtype)
            hidden = network.at(states, times, batch.lengths, targets.times, start)
            prediction = self.head(hidden)
            return LossOutput(
                total + _negative_log_likelihood(network, hidden, targets),
                loss(prediction, batch),
                prediction,
                final,
            )
        prediction, final = self._predict(batch, states, final, state)
        value = loss(prediction, batch)
        return LossOutput(total + self.label_weight * value, value, prediction, final)

    def _divergence(self, hidden: Tensor, points: Points) -> Tensor:
        """Return the mean of KL(N(μ, σ²) ‖ N(x, s²)) after the jump over measured values."""
        mean, log_variance = self.network.expected(hidden)
        narrow = 0.01
        each = 0.5 * (
            (log_variance.exp() + (mean - points.values).square()) / narrow**2
            - 1
            - log_variance
            + 2 * math.log(narrow)
        )
        return _mean_where(each, points.mask)


class _Mean(nn.Module):
    """The mean of a forecast as a readout; the tuple hides the network from the parameters."""

    def __init__(self, network: BayesNetwork) -> None:
        super().__init__()
        self._network = (network,)

    def forward(self, hidden: Tensor) -> Tensor:
        return self._network[0].expected(hidden)[0]


def _negative_log_likelihood(network: BayesNetwork, hidden: Tensor, points: Points) -> Tensor:
    """Return the mean of −log N(x; μ, σ²) over measured values."""
    mean, log_variance = network.expected(hidden)
    return _mean_where(-log_normal(points.values, mean, 0.5 * log_variance), points.mask)


def _mean_where(values: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, values, 0.0).sum() / mask.sum().clamp(min=1)
