"""A bank of fixed oscillators with a linear readout, fitted in closed form."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, Batch, InputKind, TaskShape, Use
from undamped._base.errors import DataError, OptionError
from undamped._base.options import PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.kernels.dispatch import implementation
from undamped.lab.baselines.bank.dynamics import (
    BankState,
    FixedDynamics,
    FixedNetwork,
    Oscillators,
    Snapshots,
)
from undamped.lab.baselines.bank.early import FULL, PRIOR, EarlyReadouts
from undamped.lab.baselines.bank.kernels.pools import Pools, feature_count, rotate
from undamped.lab.baselines.bank.stream import BankStream
from undamped.lab.baselines.closed_form import Batches, ClosedFormModel, check_readout
from undamped.lab.baselines.ridge import (
    error_covariance,
    fit_ridge,
    logit_scale,
    ridge_targets,
    sample_weights,
)
from undamped.lab.streams import ModelStream, StepStream
from undamped.models.task_model import Sample, StreamingModel

OSCILLATORS = "oscillators"
_EXAMPLES = 16  # sequences whose responses determine the thresholds
_LEAST_STD = 1e-6  # of a feature; one that hardly varies is not used
_LEAST_VARIATION = 1e-5  # standard deviation relative to the mean; less is rounding error
LIMIT = 10.0
"""Standard deviations at which features are clipped. A feature that is nearly the same in all
training sequences would be thousands of them away in the first sequence where it is not."""
_MOST_BYTES = 2 << 30


@models.register("bank")
class OscillatorBank(ClosedFormModel, StreamingModel):
    """Oscillator bank: pooled responses of a thousand fixed oscillators, and a ridge regression.

    Equation:
        z_k ← e^{(−γ_k + iω_k) Δt} z_k + d_k · (x, Δx),  y_k = Re e^{iψ_k} z_k
        answer = W φ + b
        φ = (max y, min y, fraction of samples with y > θ_j, longest run with y > θ_j)

    Symbols:
        x sample, Δx its change, ω log-spaced frequencies, γ dampings from none to ω, ψ phases, d
        random mixtures of one to three channels, all random and never trained; θ quantiles of
        responses to training sequences. For regression, φ also has the mean and the last y. W, b
        ridge regression with the penalty of the smallest leave-one-out error, for classes as ±1
        and then scaled into logits.

    Promise:
        Between samples no oscillation grows, and two gaps do what one gap of their length does.

    It is fitted in seconds and without back-propagation, to sequences of any and unequal lengths,
    with missing values and timestamps. All pools are running statistics, so that a stream is
    processed sample by sample in constant memory. Before a stream has the median length of the
    training sequences, further readouts for the first 1/16 to 1/2 of it predict, so that
    probabilities are calibrated. The covariance of leave-one-out errors is stored as
    `error_covariance`, from which predictions get their standard errors. Of the training options
    it uses `batch_size` and `precision`, and for infinite data `steps`, the number of batches.

    Args:
        shape: The shape of the task.
        oscillators: Number of oscillators.
        thresholds: Number of thresholds per oscillator.
        dynamics: What is pooled: the oscillators, or the outputs of a recurrent network of the
            registry with as many hidden units and its initial weights, which ignores timestamps.

    Example:
        >>> shape = undamped.models.TaskShape(3, 2)
        >>> model = undamped.lab.baselines.OscillatorBank(shape, oscillators=50)
        >>> model(torch.randn(100, 8, 3)).shape
        torch.Size([8, 2])

    Reference:
        Pooled random features with a ridge readout as in A. Dempster, D. Schmidt, G. Webb.
        MiniRocket. KDD, 2021; fixed dynamics as in H. Jaeger, The echo state approach, 2001.
    """

    locations: ClassVar[bool] = False
    """Whether the locations of extremes are features."""
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
        check_readout("bank", shape)
        self.shape = shape
        self.dynamics = _build_dynamics(shape, oscillators, thresholds, dynamics)
        if dynamics != OSCILLATORS:
            vars(self)["promises"] = ()  # they hold for oscillators only
        self.dynamics.locations = self.locations
        features = feature_count(
            self.dynamics.count, thresholds, levels=self._levels, locations=self.locations
        )
        self.register_buffer("centre", torch.zeros(features))
        self.register_buffer("scale", torch.ones(features))
        self.register_buffer("penalty", torch.tensor(float("nan"), dtype=torch.float64))
        unknown = torch.full([shape.output_size] * 2, float("nan"), dtype=torch.float64)
        self.register_buffer("error_covariance", unknown)
        self.readout = nn.Linear(features, shape.output_size)
        nn.init.zeros_(self.readout.weight)
        nn.init.zeros_(self.readout.bias)
        self.loo_predictions: Tensor | None = None
        """(sequences, outputs) leave-one-out predictions, in the order of the training data; they
        are not saved."""
        self.early = EarlyReadouts(shape, features)
        # Features, targets and weights of the training data, batch by batch.
        self._rows: list[tuple[Tensor, Tensor, Tensor | None]] = []

    # Predictions

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return a prediction for every sequence, and the state of the bank."""
        state = self.dynamics.run(batch.cast(self.dtype), state)
        return self.readout(self._standardise(self._features(state.pools))), state

    def _step(self, sample: Sample, state: Any) -> tuple[Tensor, Any]:
        x, dt, observed, _ = sample
        before: BankState = self.dynamics.empty_state(len(x)) if state is None else state
        times = None
        if dt is not None:
            gap = torch.as_tensor(dt, dtype=torch.float64, device=x.device)
            times = (before.time + gap).expand(len(x)).unsqueeze(0)
        mask = None if observed is None else observed.unsqueeze(0)
        batch = Batch(x.to(self.dtype).unsqueeze(0), times=times, observed=mask)
        after = self.dynamics.run(batch, before)
        return self._predict_early(after.pools), after

    def stream(self, offsets: Tensor | None = None) -> ModelStream:
        """Return the stream of this model: a compiled one if its oscillators have kernels."""
        dynamics = self.dynamics
        tensors = dynamics.thresholds, dynamics.centre, self.readout.weight
        if not isinstance(dynamics, Oscillators) or implementation(*tensors) != "numba":
            return StepStream(self, offsets)
        return BankStream(self, dynamics, self._levels, LIMIT)

    def _predict_early(self, pools: Pools) -> Tensor:
        """Return calibrated predictions for sequences that may continue."""
        features, counts = self._features(pools), pools.samples
        outputs = features.new_empty(len(features), self.shape.output_size)
        for count in counts.unique().tolist():
            rows = counts == count
            outputs[rows] = sum(
                weight * self._read(readout, features[rows])
                for readout, weight in self.early.mixture(int(count))
            )
        return outputs

    def _read(self, readout: int, features: Tensor) -> Tensor:
        """Return the outputs (batch, outputs) of one of the readouts."""
        early = self.early
        if readout == PRIOR:
            return early.prior.expand(len(features), -1)
        if readout == FULL:
            return self.readout(self._standardise(features))
        standard = ((features - early.centre[readout]) / early.scale[readout]).clamp(-LIMIT, LIMIT)
        return nn.functional.linear(standard, early.weight[readout], early.bias[readout])

    def _features(self, pools: Pools) -> Tensor:
        return pools.features(levels=self._levels)

    def _standardise(self, features: Tensor) -> Tensor:
        return ((features - self.centre) / self.scale).clamp(-LIMIT, LIMIT)

    @property
    def _levels(self) -> bool:
        """Whether means and last values are features; classifiers are better without them."""
        return self.shape.answer != "class"

    def _load_from_state_dict(  # type: ignore[override]
        self, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        # A bank of an earlier version has no errors, and predicts without standard errors.
        unknown = torch.full_like(self.error_covariance, float("nan"))
        state_dict.setdefault(prefix + "error_covariance", unknown)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    # Promises

    @property
    def state_sizes(self) -> tuple[int, int]:
        """Sizes of the parts of the state that change between samples: real and imaginary."""
        return self.dynamics.count, self.dynamics.count

    def flow(self, state: tuple[Tensor, ...], gaps: Tensor) -> tuple[Tensor, ...]:
        """Return real and imaginary parts (batch, oscillators) after gaps (batch,)."""
        if not isinstance(self.dynamics, Oscillators):
            raise OptionError(
                f"bank.flow needs oscillators, but this bank has a {type(self.dynamics).__name__}. "
                "Build it with dynamics=oscillators."
            )
        damping, frequency, _ = self.dynamics.rates().to(state[0].dtype)
        return rotate(state[0], state[1], gaps.unsqueeze(1), damping, frequency)

    # Fit

    @torch.no_grad()
    def fit_closed_form(self, batches: Batches) -> None:
        """Estimate scales and thresholds from the data, and fit the readout."""
        examples = self._fit_scales(batches)
        self._fit_thresholds(examples)
        self._rows = self._collect(batches)
        features = torch.cat([row[0] for row in self._rows])
        self.centre.copy_(features.mean(0))
        self.scale.copy_(_scales(self.centre, features.std(0, correction=0)))
        self._solve()

    @torch.no_grad()
    def refit(self, batches: Batches) -> None:
        """Fit the readout to further data too, with an unchanged bank.

        The penalty is chosen again by leave-one-out predictions: one that suits few sequences may
        be far too small when there are as many as features. The readouts for beginnings of
        sequences are fitted here, to both splits.
        """
        further = self._collect(batches)
        if further:
            self._rows += further
            self._solve()
        self._rows = []
        self.early.solve(LIMIT, _scales)

    def findings(self) -> list[str]:
        if self.penalty.isnan():
            return []
        kind = "oscillators" if isinstance(self.dynamics, Oscillators) else "units"
        return [
            f"{self.dynamics.count:,} {kind}, {len(self.centre):,} features; penalty "
            f"{float(self.penalty):.1e} by leave-one-out cross-validation."
        ]

    def _fit_scales(self, batches: Batches) -> list[Batch]:
        """Estimate mean and scale of signals and the median length; return example sequences."""
        bank = self.dynamics
        sums = torch.zeros(3, 2 * bank.channels, dtype=torch.float64)
        spans: list[Tensor] = []
        counts: list[Tensor] = []
        examples: list[Batch] = []
        total = 0
        for batch in batches:
            batch = batch.cast(self.dtype)
            lengths = _lengths(batch)
            signals = bank.signals(batch, bank.empty_state(batch.inputs.shape[1]))
            values = torch.where(signals.mask, signals.values, 0).double()
            sums[0] += signals.mask.sum((0, 1))
            sums[1] += values.sum((0, 1))
            sums[2] += values.square().sum((0, 1))
            spans.append(_spans(batch, lengths, bank.gap))
            counts.append(lengths)
            for row, length in enumerate(lengths.tolist()):
                # Reservoir sampling: every sequence is an example with the same probability.
                slot = total if total < _EXAMPLES else int(torch.randint(total + 1, ()))
                total += 1
                if slot < _EXAMPLES:
                    sequence = batch.part(slice(row, row + 1), inputs_axis=1, targets_axis=0)
                    sequence = sequence.during(slice(length), every=False)
                    examples[slot : slot + 1] = [sequence._replace(lengths=None)]
        if not spans:
            raise DataError("bank needs at least one sequence to be fitted to, got none.")
        count = sums[0].clamp_min(1)
        mean = sums[1] / count
        std = (sums[2] / count - mean.square()).clamp_min(0).sqrt()
        bank.centre.copy_(mean)
        bank.scale.copy_(torch.where(std > 0, std, 1.0))
        bank.set_span(float(torch.cat(spans).double().median()))
        self.early.reset(int(torch.cat(counts).median()))
        return examples

    def _fit_thresholds(self, examples: list[Batch]) -> None:
        """Set thresholds to quantiles of responses, each group of outputs to one sequence."""
        bank = self.dynamics
        groups = torch.randperm(bank.count).tensor_split(len(examples))
        for group, example in zip(groups, examples, strict=True):
            if not len(group):
                continue
            responses = bank.responses(example, group).sort(0).values
            rank = bank.levels[:, group] * (len(responses) - 1)
            low = rank.floor().long()
            high = (low + 1).clamp_max(len(responses) - 1)
            below, above = responses.gather(0, low), responses.gather(0, high)
            bank.thresholds[:, group] = below + (rank - low) * (above - below)

    def _collect(self, batches: Batches) -> list[tuple[Tensor, Tensor, Tensor | None]]:
        """Return features, targets and weights, batch by batch, of sequences with a target."""
        rows: list[tuple[Tensor, Tensor, Tensor | None]] = []
        size = sum(features.nbytes for features, _, _ in self._rows)
        for batch in batches:
            snapshots: Snapshots = dict.fromkeys(self.early.stops)
            state = self.dynamics.run(batch.cast(self.dtype), None, snapshots)
            features = self._features(state.pools)
            targets, mask, weights = self._targets(batch)
            size += features.nbytes
            if size > _MOST_BYTES:
                raise OptionError(
                    f"The features of {self.dynamics.count:,} oscillators need more than "
                    f"{_MOST_BYTES >> 30} GB. Use fewer oscillators (model.oscillators), or fewer "
                    "sequences (train.steps for infinite data)."
                )
            rows.append((features[mask], targets[mask], None if weights is None else weights[mask]))
            keys = self.early.keys(len(targets))
            for stop, pools in snapshots.items():
                if pools is not None:
                    long_enough = mask & (_lengths(batch) >= stop)
                    early = self._features(pools)
                    self.early.add(stop, early, targets, weights, long_enough, keys)
        return rows

    def _targets(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return targets, a mask of the sequences that count, and weights."""
        targets, mask = ridge_targets(self.shape, batch)
        weights = sample_weights(self.shape, targets, batch.weights)
        return targets, mask if weights is None else mask & (weights > 0), weights

    @torch.no_grad()
    def ridge_rows(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return standardised features, targets and weights of the sequences with a target.

        Args:
            batch: Sequences with their targets.
        """
        targets, mask, weights = self._targets(batch)
        features = self._features(self.dynamics.run(batch.cast(self.dtype)).pools)[mask]
        return (
            self._standardise(features),
            targets[mask],
            None if weights is None else weights[mask],
        )

    def _solve(self) -> None:
        features = torch.cat([row[0] for row in self._rows])
        targets = torch.cat([row[1] for row in self._rows])
        parts = [row[2] for row in self._rows if row[2] is not None]
        if len(features) < 2:
            raise DataError(
                f"bank needs at least two sequences with a target, got {len(features)}. Add "
                "training data."
            )
        weights = torch.cat(parts) if parts else None
        ridge = fit_ridge(self._standardise(features), targets, weights=weights)
        factor = logit_scale(self.shape, ridge, targets, weights)
        self.penalty.fill_(ridge.penalty)
        self.error_covariance.copy_(error_covariance(ridge, targets, factor))
        self.loo_predictions = ridge.loo_predictions * factor
        self.readout.weight.copy_(ridge.weight * factor)
        self.readout.bias.copy_(ridge.bias * factor)


def _scales(centre: Tensor, std: Tensor) -> Tensor:
    """Return the scales of features; infinity for those that hardly vary."""
    least = (_LEAST_VARIATION * centre.abs()).clamp_min(_LEAST_STD)
    return torch.where(std > least, std, torch.inf)


def _build_dynamics(shape: TaskShape, count: int, thresholds: int, dynamics: str) -> FixedDynamics:
    if dynamics == OSCILLATORS:
        gap = shape.clock.gap if shape.clock is not None else 1.0
        return Oscillators(shape.input_size, count, thresholds, gap)
    if "times" in shape.needs:
        raise OptionError(
            f"model.dynamics must be {OSCILLATORS} for irregularly sampled series, got {dynamics}. "
            "Omit the option, or use regular samples."
        )
    return FixedNetwork(dynamics, shape.input_size, count, thresholds)


def _lengths(batch: Batch) -> Tensor:
    if batch.lengths is not None:
        return batch.lengths
    return torch.full((batch.inputs.shape[1],), len(batch.inputs))


def _spans(batch: Batch, lengths: Tensor, gap: float) -> Tensor:
    """Return the duration of each sequence, in typical gaps."""
    if batch.times is None:
        return lengths.double()
    last = (lengths - 1).clamp_min(0).unsqueeze(0)
    return (batch.times.gather(0, last).squeeze(0) - batch.times[0]).double() / gap
