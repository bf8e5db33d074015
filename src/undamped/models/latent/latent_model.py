"""Models with a latent initial state: a bound on the likelihood, and predictions from it.

    log p(x) ≥ E_q [ log p(x | z) ] − KL( q(z | x) ‖ p(z) )

Both terms are sums over all points of a sequence and over all coordinates of z. Training minimises
the negative bound per point; the weight of the divergence grows from 0 to 1 at the start of
training. With K draws the bound is their mean, or the tighter log (1/K) Σ exp(…) of every sequence.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, TypedDict

import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.options import (
    Default,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Units,
)
from undamped._base.promises import Kind, Promise
from undamped.models.latent.points import (
    BackwardEncoder,
    Emission,
    LatentFlow,
    Normal,
    perceptron,
    standard,
)
from undamped.models.task_model import LossOutput, TaskLoss, TaskModel, needed_target_times
from undamped.models.timestamped import (
    Points,
    observed_points,
    target_points,
    timestamps_of,
    without,
)

Bound = Literal["elbo", "iwae"]
HEAD = 32
"""Hidden width of the head that predicts one label or number of a sequence."""


class LatentOptions(TypedDict, total=False):
    """Sizes and training of a model with a latent initial state."""

    latent_size: Annotated[Units, Default(10, "Features of the latent state.")]
    hidden_size: Annotated[Units, Default(40, "Units of the encoder.")]
    decoder_size: Annotated[
        NonNegativeInt, Default(0, "Width of the decoder's hidden layer; 0 for a linear decoder.")
    ]
    noise: Annotated[
        PositiveFloat | None,
        Default(None, "Standard deviation of measurements; by default learned for every feature."),
    ]
    annealing: Annotated[
        NonNegativeInt,
        Default(500, "Updates over which the weight of the divergence grows from 0 to 1."),
    ]
    label_weight: Annotated[
        NonNegativeFloat,
        Default(1.0, "Weight of a label, or of a target number, relative to one point."),
    ]


class BoundOptions(TypedDict, total=False):
    """The bound that training maximises."""

    draws: Annotated[
        PositiveInt, Default(1, "Draws of the latent state for every sequence in training.")
    ]
    bound: Annotated[
        Bound,
        Default("elbo", "'elbo' is the mean of the draws, 'iwae' the tighter bound of all draws."),
    ]


class PathOptions(TypedDict, total=False):
    """How a latent flow is solved."""

    steps: Annotated[
        PositiveInt,
        Default(40, "Steps of the latent flow over the span of the task, joined by cubics."),
    ]
    method: Annotated[str, Default("rk4", "Solver of the latent flow.")]


class LatentModel(TaskModel):
    """A model whose sequences follow from a latent state at time 0.

    Args:
        shape: The shape of the task.
        state_size: Features of the result of `decode`; by default those of the latent state.
        options: See `LatentOptions` and `BoundOptions`.

    Example:
        >>> model = undamped.models.LatentModel(undamped.models.TaskShape(3, 2), latent_size=4)
        >>> x, times = torch.randn(20, 8, 3), torch.rand(20, 8).cumsum(0)
        >>> model(undamped.models.Batch(x, times=times)).shape
        torch.Size([8, 2])
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"times", "observed", "target_times"})
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number", "trajectory"})
    input_kinds = frozenset[InputKind]({"vectors", "states"})
    sequential = True
    weighs_sequences = False  # the likelihood of the inputs has no weights
    updates: Tensor
    encoder: BackwardEncoder
    decoder_name: ClassVar[str] = "flow"
    """Name of the module that `decode` calls."""

    def __init__(
        self,
        shape: TaskShape,
        *,
        latent_size: int,
        state_size: int | None = None,
        draws: int = 1,
        bound: Bound = "elbo",
        **options: Any,
    ) -> None:
        super().__init__()
        values: Any = options  # complete, as `checked` passes them
        self.shape = shape
        self.input_size = shape.input_size
        self.latent_size = latent_size
        self.readout = shape.readout
        self.draws, self.bound = draws, bound
        self.annealing: int = values["annealing"]
        self.label_weight: float = values["label_weight"]
        self.gap = shape.clock.gap if shape.clock is not None else 1.0
        self.span = shape.clock.span if shape.clock is not None else 50 * self.gap
        # Training steps, saved with the weights so that a resumed training continues to anneal.
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        size = state_size or latent_size
        emission = {"hidden_size": values["decoder_size"], "noise": values["noise"]}
        self.emission = Emission(size, shape.input_size, **emission)
        self.by_time = shape.answer == "trajectory" or shape.horizon > 0
        outputs = shape.output_size // max(1, shape.horizon)
        self.answer_emission: Emission | None = None
        self.head: nn.Module | None = None
        if self.by_time and not shape.same_channels:
            self.answer_emission = Emission(size, outputs, **emission)
        elif not self.by_time:
            inputs = size if shape.readout == "every" else latent_size
            self.head = perceptron(inputs, HEAD, shape.output_size)

    def _encoder(
        self, network_class: Any, hidden_size: Any, width: int, *, further: int = 0, **options: Any
    ) -> BackwardEncoder:
        """Build the encoder, with initial values of a GRU for long memory and few inputs.

        Args:
            network_class: The class of its network.
            hidden_size: Units of the network.
            width: Width of the layer before mean and standard deviation.
            further: Number of inputs of the cell besides the features and their mask.
            options: Further options of the network.
        """
        missing = "observed" in self.shape.needs
        inputs = further + self.input_size * (2 if missing else 1)
        options |= {"cell_options": {"input_std": 1 / math.sqrt(inputs), "update_bias": 2.5}}
        network = network_class(
            self.input_size, hidden_size, missing=missing, gap=self.gap, **options
        )
        return BackwardEncoder(network, self.latent_size, width)

    # Parts that a model defines

    def posterior(self, batch: Batch) -> Normal:
        """Return q(z₀ | x), (batch, latent)."""
        return self.encoder(batch, self.dtype)

    @abstractmethod
    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return latent states (draws, times, batch, latent) at times (times, batch), in any order.

        The argument z are drawn states at time 0, (draws, batch, latent).
        """

    def of_times(
        self, posterior: Normal, starts: Tensor, states: Tensor, points: Points
    ) -> Tensor | float:
        """Return further terms of the log-likelihood, of the times or of the states at them.

        Args:
            posterior: The distribution of the starts.
            starts: (draws, batch, latent).
            states: (draws, points, batch, …) at the times of the points.
            points: The measurements.

        Returns:
            (draws, batch), or 0 for a model without such terms.
        """
        return 0.0

    def of_weights(self) -> Tensor | float:
        """Return the divergence of random weights divided by the number of sequences."""
        return 0.0

    # Predictions

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the predictions from the mean of the posterior."""
        batch = batch.expanded()
        return self._predict(self.posterior(batch).mean, batch), None

    def _predict(self, start: Tensor, batch: Batch) -> Tensor:
        """Return the predictions from a start (batch, latent)."""
        z = start.unsqueeze(0)
        if self.by_time:
            emission = self.answer_emission or self.emission
            return self._flat(emission(self.decode(z, self.query_times(batch)))[0])
        assert self.head is not None
        if self.shape.readout == "every":
            return self.head(self.decode(z, timestamps_of(batch, self.gap).double()))[0]
        return self.head(z[0])

    def query_times(self, batch: Batch) -> Tensor:
        """Return the times of the predictions, (outputs, batch)."""
        if self.shape.horizon:
            times = timestamps_of(batch, self.gap).double()
            last = times[-1]
            if batch.lengths is not None:
                last = times.gather(0, batch.lengths.unsqueeze(0) - 1).squeeze(0)
            steps_ahead = torch.arange(1, self.shape.horizon + 1, device=last.device)
            return last + self.gap * steps_ahead.unsqueeze(1)
        return needed_target_times(batch).double()

    # Training

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> LossOutput:
        """Return the negative bound on the likelihood per point, and the task's loss."""
        batch = batch.expanded()
        posterior = self.posterior(batch)
        starts = posterior.draw(self.draws)
        inputs = observed_points(batch, self.gap, self.dtype)
        targets, emission = self._target_points(batch), self.answer_emission or self.emission
        if targets is not None and self.answer_emission is None:
            inputs = without(inputs, targets)
        times = inputs.times if targets is None else torch.cat([inputs.times, targets.times])
        states = self.decode(starts, times)
        before, after = states[:, : len(inputs.times)], states[:, len(inputs.times) :]
        likelihood = self.emission.log_likelihood(before, inputs)
        points, count = inputs, inputs.mask.sum()
        if targets is not None:
            likelihood = likelihood + emission.log_likelihood(after, targets)
            count = count + targets.mask.sum()
            if self.answer_emission is None:  # targets are measurements like the inputs
                before, points = states, inputs.joined(targets)
        likelihood = likelihood + self.of_times(posterior, starts, before, points)
        total = -self._bound(likelihood, posterior, starts).sum() / count.clamp(min=1)
        if targets is None:
            prediction = self._predict(posterior.mean, batch)
            value = loss(prediction, batch)
            return LossOutput(self.label_weight * value + total, value, prediction)
        with torch.no_grad():
            prediction = self._flat(emission(after).mean(0))
            value = loss(prediction, batch)
        return LossOutput(total, value, prediction)

    def _flat(self, values: Tensor) -> Tensor:
        """Return forecasts (horizon, batch, …) as (batch, horizon · …); others unchanged."""
        return values.transpose(0, 1).flatten(1) if self.shape.horizon else values

    def _target_points(self, batch: Batch) -> Points | None:
        if not self.by_time:
            return None
        if self.shape.horizon:
            values = batch.targets.unflatten(1, (self.shape.horizon, -1)).transpose(0, 1)
            mask = ~torch.isnan(values)
            values = values.to(self.dtype).masked_fill(~mask, 0)
            return Points(self.query_times(batch), values, mask)
        return target_points(batch, self.dtype)

    def _bound(self, likelihood: Tensor, posterior: Normal, starts: Tensor) -> Tensor:
        """Return the bound of every sequence (batch,)."""
        weight = self.divergence_weight()
        if self.bound == "elbo" or self.draws == 1:
            return likelihood.mean(0) - weight * (posterior.divergence() + self.of_weights())
        ratio = standard(starts).log_density(starts) - posterior.log_density(starts)
        tighter = torch.logsumexp(likelihood + weight * ratio, 0) - math.log(self.draws)
        return tighter - weight * self.of_weights()

    def divergence_weight(self) -> float:
        """Return the weight of the divergence, which grows at the start of training."""
        if not self.annealing:
            return 1.0
        return min(1.0, int(self.updates) / self.annealing)

    def after_optimizer_step(self, step: int) -> None:
        """Count updates."""
        self.updates.fill_(step + 1)

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Yield outputs of encoder, latent path, decoder and likelihood, then the prediction."""
        batch = batch.expanded()
        posterior = self.posterior(batch)
        yield "the output of encoder", tuple(posterior)
        points = observed_points(batch, self.gap, self.dtype)
        targets = self._target_points(batch) if batch.targets.numel() else None
        times = points.times if targets is None else torch.cat([points.times, targets.times])
        states = self.decode(posterior.draw(self.draws), times)
        yield f"the output of {self.decoder_name}", states
        yield "the output of emission", self.emission(states)
        inputs = states[:, : len(points.times)]
        yield "the likelihood of emission", self.emission.log_likelihood(inputs, points)
        yield "the answer", self.run(batch)[0]


class LatentFlowModel(LatentModel):
    """A latent model whose states follow the flow of an ODE."""

    promises = (Promise(Kind.INVERTIBLE_FLOW, "the latent flow can be solved back"),)
    flow: LatentFlow

    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        return self.flow(z, times)

    # Promises are measured on the ODE, solved with a small tolerance.

    def example(self, count: int, generator: torch.Generator) -> tuple[Tensor, None]:
        """Return random latent states, and no context."""
        like = next(self.parameters())
        return torch.randn(count, self.latent_size, generator=generator).to(like), None

    def carry(self, state: Tensor, context: object = None) -> Tensor:
        """Return latent states after one unit of the flow's time."""
        return self.flow.step.solve_finely(state, 1.0)

    def carry_back(self, state: Tensor, context: object = None) -> Tensor:
        """Return latent states one unit of the flow's time before."""
        return self.flow.step.solve_finely(state, -1.0)
