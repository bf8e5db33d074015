"""A bank of fixed oscillators with a linear readout, learnt in closed form."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import DataError, OptionError, explain
from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.dispatch import implementation
from undamped.lab.baselines.bank.early import PRIOR, WHOLE, EarlyReadouts
from undamped.lab.baselines.bank.fixed_network import FixedNetwork
from undamped.lab.baselines.bank.kernels.pools import Pools, feature_count, turned
from undamped.lab.baselines.bank.listeners import BankState, Listeners
from undamped.lab.baselines.bank.oscillators import Oscillators
from undamped.lab.baselines.bank.stream import BankStream
from undamped.lab.baselines.learns_at_once import ClosedFormModel, Part, check_one_answer
from undamped.lab.baselines.ridge import (
    error_covariance,
    fit_ridge,
    row_weights,
    sharpness,
    wanted_answers,
)
from undamped.models.model_stream import ModelStream, Sample
from undamped.models.task_model import StreamingModel

OSCILLATORS = "oscillators"
_EXAMPLES = 16  # sequences on whose responses thresholds are chosen
_LEAST_SCALE = 1e-6  # of a feature; one that hardly varies says nothing
_LEAST_SHARE = 1e-5  # of its own mean; less is rounding
_FARTHEST = 10.0
"""Standard deviations from its mean to which a feature is believed: one that was nearly the same in
all sequences learnt from would be thousands away in the first that is not."""
_MOST_BYTES = 2 << 30


@models.register("bank")
class OscillatorBank(ClosedFormModel, StreamingModel):
    """Oscillator bank: a thousand fixed oscillators hear the sequence, a ridge regression answers.

    Equation:
        z_k ← e^{(−γ_k + iω_k) Δt} z_k + d_k · (x, Δx),  y_k = Re e^{iψ_k} z_k
        answer = W φ + b
        φ = (max y, min y, share of samples with y > θ_j, longest stretch with y > θ_j)

    Symbols:
        x sample, Δx its change, ω log-spaced frequencies, γ dampings from none to ω, ψ phases, d
        random mixtures of one to three channels, all drawn once and never trained; θ quantiles of
        responses to training sequences. Where the answer is a number, φ has the mean and the
        present y too. W, b ridge regression with the penalty whose answers to samples left out are
        best, for classes as ±1 and then scaled into logits.

    Promise:
        Between samples no oscillation grows, and two gaps do what one gap of their length does.

    Learnt in seconds and without back-propagation, from sequences of any and unequal lengths, with
    gaps and timestamps. Everything that is pooled is running, so a stream is answered sample by
    sample in constant memory. Before a stream has the usual length, readouts for the first 1/16 to
    1/2 of it answer, so that the probabilities are calibrated for what was observed. The errors of
    answers to left-out sequences are stored as `error_covariance`, from which predictions get their
    standard errors. Of the options of training it heeds `batch_size` and `precision`, and where
    data have no end `steps`: so many batches are learnt from.

    Args:
        shape: The shape of the task.
        oscillators: How many.
        thresholds: How many levels of every oscillator are counted.
        dynamics: What hears the sequence: the oscillators, or a recurrent network of the registry
            with as many hidden units, as it starts; that heeds no timestamps.

    Example:
        >>> shape = undamped.models.TaskShape(3, 2)
        >>> model = undamped.lab.baselines.OscillatorBank(shape, oscillators=50)
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        Pooled random features with a ridge readout as in A. Dempster, D. Schmidt, G. Webb.
        MiniRocket. KDD, 2021; fixed dynamics as in H. Jaeger, The echo state approach, 2001.
    """

    uses: ClassVar[frozenset[Use]] = frozenset({"times", "observed"})
    answers: ClassVar[frozenset[Answer]] = frozenset({"class", "number"})
    input_kinds = frozenset[InputKind]({"vectors", "pixels"})
    sequential = True
    promises = (
        Promise(Kind.CONTRACTING_GAPS, "between samples no oscillation grows"),
        Promise(Kind.SEMIGROUP, "two gaps do what one gap of their length does"),
    )

    centre: Tensor
    scale: Tensor
    penalty: Tensor
    error_covariance: Tensor

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        oscillators: PositiveInt = 1000,
        thresholds: PositiveInt = 4,
        dynamics: str = OSCILLATORS,
    ) -> None:
        super().__init__()
        check_one_answer("bank", shape)
        self.shape = shape
        self.listeners = _listeners(shape, oscillators, thresholds, dynamics)
        if dynamics != OSCILLATORS:
            vars(self)["promises"] = ()  # those are the oscillators'
        features = feature_count(self.listeners.count, thresholds, levels=self._levels)
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.register_buffer("penalty", torch.tensor(float("nan"), dtype=torch.float64))
        unknown = torch.full([shape.output_size] * 2, float("nan"), dtype=torch.float64)
        self.register_buffer("error_covariance", unknown)
        self.readout = nn.Linear(features, shape.output_size)
        nn.init.zeros_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)
        self.left_out: Tensor | None = None
        """(sequences, outputs) what was answered without the sequence itself, in the order of
        learning; not a part of what is saved."""
        self.early = EarlyReadouts(shape, features)
        self._learnt: list[tuple[Tensor, Tensor, Tensor | None]] = []

    # Answers

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return an answer for every sequence, and where the bank stands afterwards."""
        batch = batch.cast(self.dtype)
        ended = self.listeners.run(batch.inputs, batch.times, batch.observed, batch.lengths, state)
        return self._answer(ended), ended

    def _step(self, sample: Sample, state: Any) -> tuple[Tensor, Any]:
        x, dt, observed, _ = sample
        before: BankState = self.listeners.empty_state(len(x)) if state is None else state
        times = None
        if dt is not None:
            since = torch.as_tensor(dt, dtype=torch.float64, device=x.device)
            times = (before.time + since).expand(len(x)).unsqueeze(0)
        seen = None if observed is None else observed.unsqueeze(0)
        ended = self.listeners.run(x.to(self.dtype).unsqueeze(0), times, seen, None, before)
        return self._answer_so_far(ended), ended

    def stream(self, ahead: Tensor | None = None) -> ModelStream:
        """Return an object that is fed with the samples of one stream; see `StreamingModel`."""
        bank = self.listeners
        compiled = implementation(bank.thresholds, bank.centre, self.readout.weight) == "numba"
        if not isinstance(bank, Oscillators) or not compiled:
            return super().stream(ahead)
        return BankStream(self, bank, self._levels, _FARTHEST)

    def _answer(self, state: BankState) -> Tensor:
        return self.readout(self._standard(state.pools.features(levels=self._levels)))

    def _answer_so_far(self, state: BankState) -> Tensor:
        """Return answers for sequences of which more may come, as sure as their beginnings are."""
        features, counts = state.pools.features(levels=self._levels), state.pools.samples
        answers = features.new_empty(len(features), self.shape.output_size)
        for count in counts.unique().tolist():
            rows = counts == count
            answers[rows] = sum(
                share * self._read(place, features[rows])
                for place, share in self.early.mixture(int(count))
            )
        return answers

    def _read(self, place: int, features: Tensor) -> Tensor:
        """Return what one of the readouts says (batch, outputs)."""
        early = self.early
        if place == PRIOR:
            return early.prior.expand(len(features), -1)
        if place == WHOLE:
            return self.readout(self._standard(features))
        scaled = (features - early.centre[place]) / early.scale[place]
        scaled = scaled.clamp(-_FARTHEST, _FARTHEST)
        return nn.functional.linear(scaled, early.weight[place], early.bias[place])

    def _standard(self, features: Tensor) -> Tensor:
        return ((features - self.centre) / self.scale).clamp(-_FARTHEST, _FARTHEST)

    @property
    def _levels(self) -> bool:
        """Whether means and present values are looked at: classes are better told without them."""
        return self.shape.answer != "class"

    # What is promised

    @property
    def state_sizes(self) -> tuple[int, int]:
        """Numbers of what flows between samples: real and imaginary parts."""
        return self.listeners.count, self.listeners.count

    def flow(self, state: tuple[Tensor, ...], gaps: Tensor) -> tuple[Tensor, ...]:
        """Return real and imaginary parts (batch, oscillators) after gaps (batch,)."""
        if not isinstance(self.listeners, Oscillators):
            raise OptionError(
                explain(
                    "bank.flow",
                    expected="a bank of oscillators",
                    got=f"one of {type(self.listeners).__name__}",
                    remedy="Build it with dynamics=oscillators.",
                )
            )
        damping, frequency, _ = self.listeners.rates().to(state[0].dtype)
        return turned(state[0], state[1], gaps.unsqueeze(1), damping, frequency)

    # Learning

    @torch.no_grad()
    def learn(self, part: Part) -> None:
        """Look at the sequences, choose what the bank listens to, and learn the readout."""
        examples = self._look(part)
        self._choose_thresholds(examples)
        self._learnt = self._features(part)
        features = torch.cat([one[0] for one in self._learnt])
        self.centre.copy_(features.mean(0))
        self.scale.copy_(_scales(self.centre, features.std(0, correction=0)))
        self._solve()

    @torch.no_grad()
    def refit(self, part: Part) -> None:
        """Learn the readout from another part too, with the bank as it is.

        The penalty is chosen again by leaving out one sequence after the other: one that suits few
        sequences may be far too small when there are as many as the features have directions.
        Readouts for streams that are not over are learnt here, from both parts.
        """
        more = self._features(part)
        if more:
            self._learnt += more
            self._solve()
        self._learnt = []
        self.early.solve(_FARTHEST, _scales)

    def findings(self) -> list[str]:
        """Say which penalty was chosen."""
        if self.penalty.isnan():
            return []
        return [
            f"{self.listeners.count:,} listeners, {len(self.centre):,} features; penalty "
            f"{float(self.penalty):.1e} chosen by leaving out one sequence after the other."
        ]

    def _look(self, part: Part) -> list[Batch]:
        """Find mean and scale of values and changes, and the longest period; return examples."""
        bank = self.listeners
        sums = torch.zeros(3, 2 * bank.channels, dtype=torch.float64)
        spans: list[Tensor] = []
        counts: list[Tensor] = []
        examples: list[Batch] = []
        met = 0
        for batch in part:
            batch = batch.cast(self.dtype)
            x, lengths = batch.inputs, _lengths(batch)
            signals = bank.signals(x, batch.observed, bank.empty_state(x.shape[1]), lengths)
            values = torch.where(signals.known, signals.values, 0).double()
            sums[0] += signals.known.sum((0, 1))
            sums[1] += values.sum((0, 1))
            sums[2] += values.square().sum((0, 1))
            spans.append(_spans(batch, lengths, bank.gap))
            counts.append(lengths)
            for number, length in enumerate(lengths.tolist()):
                # Every sequence has the same chance to be among the examples, whatever the order.
                place = met if met < _EXAMPLES else int(torch.randint(met + 1, ()))
                met += 1
                if place < _EXAMPLES:
                    one = batch.part(slice(number, number + 1), inputs_axis=1, targets_axis=0)
                    examples[place : place + 1] = [one.during(slice(length), every=False)]
        if not spans:
            raise DataError("bank: expected at least one sequence to learn from, got none.")
        count = sums[0].clamp_min(1)
        mean = sums[1] / count
        variance = (sums[2] / count - mean.square()).clamp_min(0)
        scale = variance.sqrt()
        bank.centre.copy_(mean)
        bank.scale.copy_(torch.where(scale > 0, scale, 1.0))
        bank.hear_span(float(torch.cat(spans).double().median()))
        self.early.forget(int(torch.cat(counts).median()))
        return examples

    def _choose_thresholds(self, examples: list[Batch]) -> None:
        """Take quantiles of what groups of listeners do when they hear one sequence each."""
        bank = self.listeners
        for group, example in zip(
            torch.randperm(bank.count).tensor_split(len(examples)), examples, strict=True
        ):
            if not len(group):
                continue
            heard = bank.responses(example.inputs, example.times, example.observed, group)
            heard = heard.sort(0).values
            place = bank.levels[:, group] * (len(heard) - 1)
            low = place.floor().long()
            high = (low + 1).clamp_max(len(heard) - 1)
            below, over = heard.gather(0, low), heard.gather(0, high)
            bank.thresholds[:, group] = below + (place - low) * (over - below)

    def _features(self, part: Part) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Return features, answers and weights, batch by batch, of sequences with an answer."""
        found: list[tuple[Tensor, Tensor, Tensor | None]] = []
        used = sum(rows[0].nbytes for rows in self._learnt)
        for batch in part:
            moved = batch.cast(self.dtype)
            snapshots: dict[int, Pools | None] = dict.fromkeys(self.early.stops)
            state = self.listeners.run(
                moved.inputs, moved.times, moved.observed, moved.lengths, None, snapshots
            )
            features = state.pools.features(levels=self._levels)
            answers, known = wanted_answers(self.shape, batch)
            weights = row_weights(self.shape, answers, batch.weights)
            if weights is not None:
                known = known & (weights > 0)
            used += features.nbytes
            if used > _MOST_BYTES:
                raise OptionError(
                    explain(
                        "model.oscillators",
                        expected=f"features that fit into {_MOST_BYTES >> 30} GB",
                        got=f"more, with {self.listeners.count:,} oscillators",
                        remedy="Give fewer oscillators, or fewer sequences (train.steps where "
                        "the data has no end).",
                    )
                )
            each = None if weights is None else weights[known]
            found.append((features[known], answers[known], each))
            keys = self.early.keys(len(answers))
            for stop, pools in snapshots.items():
                if pools is not None:
                    rows = known & (_lengths(batch) >= stop)
                    so_far = pools.features(levels=self._levels)
                    self.early.add(stop, so_far, answers, weights, rows, keys)
        return found

    def _solve(self) -> None:
        features = torch.cat([rows[0] for rows in self._learnt])
        answers = torch.cat([rows[1] for rows in self._learnt])
        each = [rows[2] for rows in self._learnt if rows[2] is not None]
        if len(features) < 2:
            raise DataError(
                explain(
                    "bank",
                    expected="at least two sequences with an answer",
                    got=len(features),
                    remedy="Give more data to learn from.",
                )
            )
        scaled, weights = self._standard(features), torch.cat(each) if each else None
        solved = fit_ridge(scaled, answers, weights=weights)
        factor = sharpness(self.shape, solved, answers, weights)
        self.penalty.fill_(solved.penalty)
        self.error_covariance.copy_(error_covariance(solved, answers, factor))
        self.left_out = solved.left_out * factor
        self.readout.weight.copy_(solved.weight * factor)
        self.readout.bias.copy_(solved.bias * factor)


def _scales(centre: Tensor, spread: Tensor) -> Tensor:
    """Return by what features are divided; infinity for those that hardly vary."""
    least = (_LEAST_SHARE * centre.abs()).clamp_min(_LEAST_SCALE)
    return torch.where(spread > least, spread, torch.inf)


def _listeners(shape: TaskShape, count: int, thresholds: int, dynamics: str) -> Listeners:
    if dynamics == OSCILLATORS:
        gap = shape.clock.gap if shape.clock is not None else 1.0
        return Oscillators(shape.input_size, count, thresholds, gap)
    if "times" in shape.needs:
        raise OptionError(
            explain(
                "model.dynamics",
                expected=f"{OSCILLATORS}, for a task whose samples have times of their own",
                got=dynamics,
                remedy="Leave the option out, or give samples at regular steps.",
            )
        )
    return FixedNetwork(dynamics, shape.input_size, count, thresholds)


def _lengths(batch: Batch) -> Tensor:
    if batch.lengths is not None:
        return batch.lengths
    return torch.full((batch.inputs.shape[1],), len(batch.inputs))


def _spans(batch: Batch, lengths: Tensor, gap: float) -> Tensor:
    """Return how long each sequence lasts, in usual gaps."""
    if batch.times is None:
        return lengths.double()
    last = (lengths - 1).clamp_min(0).unsqueeze(0)
    return (batch.times.gather(0, last).squeeze(0) - batch.times[0]).double() / gap
