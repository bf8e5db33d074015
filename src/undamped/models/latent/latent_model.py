"""What models with a latent start have in common: a bound on the likelihood, and answers from it.

    log p(x) ≥ E_q [ log p(x | z) ] − KL( q(z | x) ‖ p(z) )

Both terms are those of a whole sequence: sums over all its points and over all coordinates of z.
What training makes small is that bound, negative, per point; the weight of the divergence grows
from 0 to 1 while training begins. With K draws the bound is their mean, or the tighter
log (1/K) Σ exp(…) of every sequence by itself.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import ShapeError
from undamped._base.promises import Promise
from undamped.models.latent.emission import Emission
from undamped.models.latent.normal import Normal, standard
from undamped.models.latent.points import Points, asked_points, seen_points, without
from undamped.models.stamped import stamps_of
from undamped.models.task_model import Aim, TaskLoss, TaskModel

Bound = Literal["elbo", "iwae"]
HEAD = 32
"""Width of what answers a question about a whole sequence from its start."""


class Curve(NamedTuple):
    """What a model believes to have been between the samples, (times, batch, features).

    Args:
        mean: The mean.
        low: Below it lie five of a hundred measurements.
        high: Above it lie five of a hundred.
    """

    mean: Tensor
    low: Tensor
    high: Tensor


class LatentModel(TaskModel):
    """A model whose sequences follow from a latent state at time 0.

    Args:
        shape: The shape of the task.
        latent_size: Features of the latent start.
        state_size: Features of what `decode` returns; those of the start if not given.
        decoder_size: Width of the decoder's hidden layer; 0 for a linear one.
        noise: Standard deviation of measurements; learnt for every feature if not given.
        draws: Draws of the latent state for every sequence in training.
        bound: Whether the bound is the mean of the draws, or the tighter one of all of them.
        annealing: Updates over which the weight of the divergence grows from 0 to 1.
        label_weight: How much a label counts, or a number that is asked for, beside a point.
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"times", "observed", "target_times"})
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number", "trajectory"})
    input_kinds = frozenset[InputKind]({"vectors", "states"})
    sequential = True
    weighs_sequences = False  # the likelihood of what was read has no weights
    promises: tuple[Promise, ...] = ()
    updates: Tensor
    decoder_name: ClassVar[str] = "flow"
    """The module that `decode` calls."""

    def __init__(
        self,
        shape: TaskShape,
        *,
        latent_size: int,
        state_size: int | None = None,
        decoder_size: int = 0,
        noise: float | None,
        draws: int,
        bound: Bound,
        annealing: int,
        label_weight: float,
    ) -> None:
        super().__init__()
        self.shape = shape
        self.input_size = shape.input_size
        self.latent_size = latent_size
        self.readout = shape.readout
        self.draws, self.bound = draws, bound
        self.annealing, self.label_weight = annealing, label_weight
        self.gap = shape.clock.gap if shape.clock is not None else 1.0
        # Trained steps, kept with the weights: an interrupted training anneals on where it was.
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        seen = state_size or latent_size
        self.emission = Emission(seen, shape.input_size, hidden_size=decoder_size, noise=noise)
        self.by_time = shape.answer == "trajectory" or shape.horizon > 0
        outputs = shape.output_size // max(1, shape.horizon)
        self.answer_emission: Emission | None = None
        self.head: nn.Module | None = None
        if self.by_time and not shape.same_channels:
            self.answer_emission = Emission(seen, outputs, hidden_size=decoder_size, noise=noise)
        elif not self.by_time:
            reads = seen if shape.readout == "every" else latent_size
            self.head = nn.Sequential(
                nn.Linear(reads, HEAD), nn.Tanh(), nn.Linear(HEAD, shape.output_size)
            )

    # What a model of this kind is made of

    @abstractmethod
    def posterior(self, batch: Batch) -> Normal:
        """Return q(z₀ | x), (batch, latent)."""

    @abstractmethod
    def decode(self, z: Tensor, times: Tensor) -> Tensor:
        """Return latent states (draws, times, batch, latent) from starts (draws, batch, latent).

        Args:
            z: Where the draws start, at time 0.
            times: (times, batch) in any order, from 0 on.
        """

    def of_times(
        self, posterior: Normal, starts: Tensor, states: Tensor, points: Points
    ) -> Tensor | float:
        """Return what the times of measurements, or states at them, add to the log-likelihood.

        Args:
            posterior: What the starts were drawn from.
            starts: (draws, batch, latent).
            states: (draws, points, batch, …) at the times of the points.
            points: The measurements.

        Returns:
            (draws, batch), or 0 for a model that takes times as given.
        """
        return 0.0

    def of_weights(self) -> Tensor | float:
        """Return the divergence of weights that are drawn, as the share of one sequence."""
        return 0.0

    # Answers

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the answers of the likeliest start: what the posterior's mean leads to."""
        batch = batch.expanded()
        return self._answers(self.posterior(batch).mean, batch), None

    def _answers(self, start: Tensor, batch: Batch) -> Tensor:
        """Return the answers that follow from a start (batch, latent)."""
        z = start.unsqueeze(0)
        if self.by_time:
            found = (self.answer_emission or self.emission)(self.decode(z, self.asked(batch)))
            return self._in_one(found[0])
        assert self.head is not None
        if self.shape.readout == "every":
            return self.head(self.decode(z, stamps_of(batch, self.gap).double()))[0]
        return self.head(z[0])

    def asked(self, batch: Batch) -> Tensor:
        """Return when answers are asked for, (outputs, batch)."""
        if self.shape.horizon:
            times = stamps_of(batch, self.gap).double()
            last = times[-1]
            if batch.lengths is not None:
                last = times.gather(0, batch.lengths.unsqueeze(0) - 1).squeeze(0)
            ahead = torch.arange(1, self.shape.horizon + 1, device=last.device)
            return last + self.gap * ahead.unsqueeze(1)
        if batch.target_times is None:
            raise ShapeError(
                "batch.target_times: expected a tensor, got none. The model was built to answer at "
                "given times."
            )
        return batch.target_times.double()

    # Learning

    def objective(self, batch: Batch, loss: TaskLoss, state: Any = None) -> Aim:
        """Return the bound on the likelihood, negative and per point, and the task's loss."""
        batch = batch.expanded()
        posterior = self.posterior(batch)
        starts = posterior.draw(self.draws)
        seen = seen_points(batch, self.gap, self.dtype)
        asked = self._asked_points(batch)
        if asked is None:
            states = self.decode(starts, seen.times)
            likelihood = self.emission.log_likelihood(states, seen)
            likelihood = likelihood + self.of_times(posterior, starts, states, seen)
            bound = self._bound(likelihood, posterior, starts)
            prediction = self._answers(posterior.mean, batch)
            value = loss(prediction, batch)
            total = self.label_weight * value - bound.sum() / seen.known.sum().clamp(min=1)
            return Aim(total, value, prediction)
        if self.answer_emission is None:
            seen = without(seen, asked)  # nothing is to count twice
        states = self.decode(starts, torch.cat([seen.times, asked.times]))
        before, after = states.split([len(seen.times), len(asked.times)], dim=1)
        answering = self.answer_emission or self.emission
        likelihood = self.emission.log_likelihood(before, seen)
        likelihood = likelihood + answering.log_likelihood(after, asked)
        if self.answer_emission is None:
            likelihood = likelihood + self.of_times(posterior, starts, states, seen.joined(asked))
        else:
            likelihood = likelihood + self.of_times(posterior, starts, before, seen)
        bound = self._bound(likelihood, posterior, starts)
        total = -bound.sum() / (seen.known.sum() + asked.known.sum()).clamp(min=1)
        with torch.no_grad():
            found = answering(after).mean(0)
            prediction = self._in_one(found)
            value = loss(prediction, batch)
        return Aim(total, value, prediction)

    def _in_one(self, found: Tensor) -> Tensor:
        """Put values to come (horizon, batch, …) side by side, where an answer is all of them."""
        return found.transpose(0, 1).flatten(1) if self.shape.horizon else found

    def _asked_points(self, batch: Batch) -> Points | None:
        if not self.by_time:
            return None
        if self.shape.horizon:
            values = batch.targets.unflatten(1, (self.shape.horizon, -1)).transpose(0, 1)
            known = ~torch.isnan(values)
            values = values.to(self.dtype).masked_fill(~known, 0)
            return Points(self.asked(batch), values, known)
        return asked_points(batch, self.dtype)

    def _bound(self, likelihood: Tensor, posterior: Normal, starts: Tensor) -> Tensor:
        """Return the bound of every sequence (batch,)."""
        weight = self.divergence_weight()
        if self.bound == "elbo" or self.draws == 1:
            return likelihood.mean(0) - weight * (posterior.divergence() + self.of_weights())
        ratio = standard(starts).log_density(starts) - posterior.log_density(starts)
        tighter = torch.logsumexp(likelihood + weight * ratio, 0) - math.log(self.draws)
        return tighter - weight * self.of_weights()

    def divergence_weight(self) -> float:
        """The weight of the divergence, which grows while training begins."""
        if not self.annealing:
            return 1.0
        return min(1.0, int(self.updates) / self.annealing)

    def after_optimizer_step(self, step: int) -> None:
        """Count updates."""
        self.updates.fill_(step + 1)

    def parts_for_guard(self, batch: Batch) -> Iterator[tuple[str, Any]]:
        """Go through encoder, latent path, decoder and likelihood, then the answer."""
        batch = batch.expanded()
        posterior = self.posterior(batch)
        yield "the output of encoder", tuple(posterior)
        points = seen_points(batch, self.gap, self.dtype)
        asked = self._asked_points(batch) if batch.targets.numel() else None
        times = points.times if asked is None else torch.cat([points.times, asked.times])
        states = self.decode(posterior.draw(self.draws), times)
        yield f"the output of {self.decoder_name}", states
        yield "the output of emission", self.emission(states)
        seen = states[:, : len(points.times)]
        yield "the likelihood of emission", self.emission.log_likelihood(seen, points)
        yield "the answer", self.run(batch)[0]

    # What it believes

    @torch.no_grad()
    def curve(self, batch: Batch, times: Tensor, *, draws: int = 100, seed: int = 0) -> Curve:
        """Return what was measured or would have been, at any times: mean, and a 90 % band.

        Args:
            batch: What was seen.
            times: (times, batch).
            draws: How many starts the band is made of.
            seed: Where they come from.
        """
        batch = batch.expanded()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            starts = self.posterior(batch).draw(draws)
            found = self.emission(self.decode(starts, times.double()))
            # One draw of noise for all times of a curve: bands are the same, and smooth.
            noisy = found + self.emission.log_noise.exp() * torch.randn_like(found[:, :1])
        low, high = torch.quantile(noisy.float(), torch.tensor([0.05, 0.95]), dim=0)
        return Curve(found.mean(0), low.to(found), high.to(found))

    @classmethod
    def example_shape(cls) -> TaskShape:
        """Return the shape of a small task the model can answer."""
        return TaskShape(2, 2, answer="class")
