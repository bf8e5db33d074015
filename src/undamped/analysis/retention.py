"""Retention: how well the answer can be read from the state, step by step.

At about fifty steps of a sequence a linear probe predicts the answer at the end from the state
after that step. It is fitted on some series and scored on others. For a network that remembers, the
curve rises when the answer enters and stays high; for one that forgets, it falls back to chance
level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, ShapeError
from undamped._base.options import NonNegativeFloat, PositiveInt
from undamped._base.registry import instruments
from undamped.analysis.core import InapplicableError, Layout, Probe, Result, Style, Trace
from undamped.analysis.core.gradients import batch_axis
from undamped.analysis.core.statistics import Split, answers_of, probe_scores, student_quantile
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.unrolled import State, evaluating, network_inside, unroll

Array = NDArray[Any]

MIN_SERIES = 20
MAX_SERIES = 1000
MAX_ENTRIES = 20_000_000
"""Largest size of the inputs; fewer series are used for longer sequences."""
INSIGNIFICANT = 0.05
"""Scores this close to chance level are insignificant."""
RETAINED = 0.5
"""Fraction of the best score above chance level down to which the answer counts as retained."""


@instruments.register("retention")
@dataclass(frozen=True)
class Retention(Result):
    """How well a linear probe predicts the answer from the state after each of some steps.

    `scores[i]` is the probe's mean score over the folds after step `steps[i]` (accuracy for
    classes, explained variance for numbers), `low` and `high` the 95 % confidence interval of that
    mean, `per_layer` the same score from the state of a single layer, and `chance` the score of a
    constant prediction. Where series differ in length, `steps` are percentages of the length, as
    `unit` states.
    """

    steps: Array
    scores: Array
    low: Array
    high: Array
    per_layer: Array
    chance: float
    kind: Literal["accuracy", "explained variance"]
    unit: Literal["steps", "% of the series"]
    series: int
    name: str

    question = "How well can the answer be read from the state, step by step?"
    page_order = 10
    slow = True

    @classmethod
    def measure(cls, probe: Probe) -> Retention:
        """Fit on series of the training split, score on the test split."""
        return _of_task(probe)

    @property
    def final(self) -> float:
        """The score after the last step, where the answer is required."""
        return float(self.scores[-1])

    @property
    def best(self) -> float:
        """The best score over all steps."""
        return float(self.scores.max())

    @property
    def retained_until(self) -> float:
        """The step after the best until which half of the best score above chance remains."""
        limit = self.chance + RETAINED * (self.best - self.chance)
        below = np.flatnonzero((self.scores < limit) & (np.arange(len(self.scores)) > self._top))
        return float(self.steps[below[0] - 1] if len(below) else self.steps[-1])

    @property
    def _top(self) -> int:
        return int(self.scores.argmax())

    @property
    def sentence(self) -> str:
        best, end, chance = (self._format(v) for v in (self.best, self.final, self.chance))
        step = f"{self.steps[self._top]:g} {self.unit}"
        if self.best < self.chance + INSIGNIFICANT:
            return (
                f"The answer cannot be read from the state: at best {best}, chance level {chance}."
            )
        return (
            f"The accuracy of a linear readout of the state is at best {best} (after {step}) and "
            f"{end} at the end; chance level is {chance}."
            if self.kind == "accuracy"
            else f"A linear readout of the state explains at best {best} of the variance (after "
            f"{step}) and {end} at the end."
        )

    def _format(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.kind == "accuracy" else f"{value:.2f}"

    @property
    def layout(self) -> Layout:
        return Layout(
            "Answer read from the state",
            f"after step t [{self.unit}]",
            f"{self.kind} of a linear probe on held-out series",
            "A curve that stays high retains the answer; one that falls to the dotted line, chance "
            "level, has forgotten it. Bands are 95 % confidence intervals of the mean over folds.",
            y_range=(-0.05, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The curve with its band, and chance level; for a single model also the layers."""
        dotted = {"color": "#7F7F7F", "dash": "dot", "width": 1}
        ends = [self.steps[0], self.steps[-1]]
        lines = [
            style.band(self.steps, self.low, self.high, "95 % band"),
            style.line(self.steps, self.scores, "whole state"),
            style.line(ends, [self.chance] * 2, "chance level", line=dotted),
        ]
        if not style.single:
            lines[2]["name"] = "chance level"
        elif len(self.per_layer) > 1:
            lines += [
                style.line(self.steps, values, f"layer {layer + 1}", layer + 1)
                for layer, values in enumerate(self.per_layer)
            ]
        return lines


def retention(
    module: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    lengths: Tensor | None = None,
    *,
    held_out: Tensor | None = None,
    points: PositiveInt = 40,
    folds: PositiveInt = 5,
    precision: NonNegativeFloat = 1e-3,
    seed: int = 0,
    name: str | None = None,
    batch_first: bool | None = None,
) -> Retention:
    """Measure how well the answer can be read from the state, step by step.

    Args:
        module: A unidirectional network with an accessible state (see `gradient_flow`), or a
            model that contains one.
        inputs: Its inputs, (time, series, features), or (series, time, features).
        targets: The answers (series,): integers for classes, floats for regression, with
            several columns if there are several numbers.
        lengths: The true length of each series, if they differ.
        held_out: Mask of the series to score on; by default each fold is held out once.
        points: Approximate number of steps at which to measure.
        folds: Number of probes; each is fitted on all folds but one, and scored on series of one
            fold.
        precision: Standard deviation of noise on the state, relative to each unit's size. Without
            it, differences of the size of rounding errors would count as memory.
        seed: Seed of folds and noise.
        name: Name of the module in figures.
        batch_first: Whether the series come first; see `gradient_flow`.

    Example:
        >>> x, digit = torch.randn(100, 200, 1), torch.randint(2, (200,))
        >>> x[0] += 3 * digit[:, None]
        >>> retention(undamped.nn.UnICORNN(1, 8), x, digit).final
    """
    first = layout_of(module, inputs, batch_first).batch_first
    network, x = network_inside(module, inputs)
    if first:
        x = x.transpose(0, 1)
    _check(x, targets, folds)
    ends = _ends(x, lengths)
    equal = bool((ends == ends[0]).all())
    steps = _probed_steps(int(ends.max()), points)
    indices = np.rint(steps[:, None] * ends[None] / max(1, ends.max())).astype(np.int64)
    with evaluating(module), torch.no_grad():
        layers = _states(network, x, indices, first)
    draw = np.random.default_rng(seed)
    layers = [_add_noise(states, precision, draw) for states in layers]
    answers = answers_of(targets.detach().cpu().numpy())
    splits = _splits(len(ends), folds, held_out, draw)

    def score(states: Array) -> Array:  # (points, folds)
        return np.stack([probe_scores(at.astype(np.float64), answers, splits) for at in states])

    scores = score(np.concatenate(layers, axis=2))
    mean, margin = scores.mean(1), _margin(scores)
    single = [score(states).mean(1) for states in layers] if len(layers) > 1 else [mean]
    return Retention(
        steps=steps + 1 if equal else np.round(100 * (steps + 1) / (ends.max() + 1), 2),
        scores=mean,
        low=mean - margin,
        high=mean + margin,
        per_layer=np.stack(single),
        chance=float(np.mean([answers.chance(scored, fitted) for fitted, scored in splits])),
        kind="accuracy" if answers.classes else "explained variance",
        unit="steps" if equal else "% of the series",
        series=len(ends),
        name=name or type(module).__name__,
    )


def _check(x: Tensor, targets: Tensor, folds: int) -> None:
    if x.dim() < 2 or len(targets) != x.shape[1] or x.shape[1] < max(MIN_SERIES, 2 * folds):
        raise ShapeError(
            f"retention needs inputs (time, series, features) and targets of at least "
            f"{max(MIN_SERIES, 2 * folds)} series, got inputs {tuple(x.shape)} and "
            f"{len(targets)} targets."
        )


def _ends(x: Tensor, lengths: Tensor | None) -> NDArray[np.int64]:
    """Return the last step of each series."""
    if lengths is None:
        return np.full(x.shape[1], len(x) - 1)
    return lengths.cpu().numpy().astype(np.int64) - 1


def _probed_steps(last: int, points: int) -> NDArray[np.int64]:
    """Return steps, two thirds of them evenly spaced and a third geometrically."""
    even = np.linspace(0, last, max(2, 2 * points // 3))
    early = np.geomspace(1, last + 1, points // 3 + 1) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))


def _states(network: nn.Module, x: Tensor, indices: Array, batch_first: bool) -> list[Array]:
    """Return the state of each layer as (points, series, features)."""
    unrolled = unroll(network, x, batch_first=batch_first)
    if unrolled is None:
        raise InapplicableError("it is not unidirectional with an accessible state")
    unrolled.prepare()
    series = x.shape[1]
    states = unrolled.initial(series, x)
    stored: list[Array] = []
    for t in range(int(indices.max()) + 1):
        _, states = unrolled.step(x[t], states)
        due, which = np.nonzero(indices == t)
        if not len(due):
            continue
        flat = [_flat(state, series) for state in states]
        if not stored:
            stored = [np.empty((*indices.shape, f.shape[1]), dtype=f.dtype) for f in flat]
        for layer, now in zip(stored, flat, strict=True):
            layer[due, which] = now[which]
    return stored


def _flat(state: State, series: int) -> Array:
    rows = []
    for part in state:
        real = torch.view_as_real(part) if part.is_complex() else part
        if real.is_floating_point():
            rows.append(real.movedim(batch_axis(part, series), 0).reshape(series, -1))
    return torch.cat(rows, dim=1).float().cpu().numpy()


def _add_noise(states: Array, precision: float, draw: np.random.Generator) -> Array:
    """Add noise relative to each unit's size at that step."""
    if not precision:
        return states
    size = np.sqrt((states.astype(np.float64) ** 2).mean(1, keepdims=True))
    return states + precision * size * draw.standard_normal(states.shape)


def _splits(
    series: int, folds: int, held_out: Tensor | None, draw: np.random.Generator
) -> list[Split]:
    """Return, for each fold, the series to fit on and those to score on."""
    if held_out is None:
        parts = np.array_split(draw.permutation(series), folds)
        return [(np.concatenate(parts[:i] + parts[i + 1 :]), parts[i]) for i in range(folds)]
    mask = held_out.cpu().numpy().astype(bool)
    training, unseen = (draw.permutation(np.flatnonzero(part)) for part in (~mask, mask))
    if len(training) < MIN_SERIES // 2 or len(unseen) < folds:
        raise OptionError(
            f"held_out must leave at least {MIN_SERIES // 2} series to fit on and {folds} to "
            f"score on, got {len(training)} and {len(unseen)}."
        )
    fits, tests = np.array_split(training, folds), np.array_split(unseen, folds)
    return [
        (np.concatenate(fits[:i] + fits[i + 1 :]) if folds > 1 else training, tests[i])
        for i in range(folds)
    ]


def _margin(scores: Array) -> Array:
    """Return half the width of the 95 % confidence interval of the mean over folds."""
    folds = scores.shape[1]
    if folds < 2:
        return np.zeros(len(scores))
    return student_quantile(0.975, folds - 1) * scores.std(1, ddof=1) / np.sqrt(folds)


def _of_task(probe: Probe) -> Retention:
    """Measure a model on series of its task."""
    probe.require_sequences()
    task = probe.task
    if task is None:
        raise InapplicableError("there is no task whose answer could be read")
    if task.answer not in ("class", "number"):
        raise InapplicableError("its task does not have one answer at the end of a series")
    numbers = max(1, probe.inputs[:, :1].numel())
    count = int(np.clip(MAX_ENTRIES // numbers, 100, MAX_SERIES))
    training = task.batch("train", 0, 3 * count // 4)
    unseen = task.batch("test", 0, count // 4)
    splits = [_series(batch, task.readout == "every") for batch in (training, unseen)]
    if min(len(targets) for _, targets, _ in splits) < MIN_SERIES // 2:
        raise InapplicableError("its task has too few series with answers to fit a probe")
    longest = max(len(inputs) for inputs, _, _ in splits)
    inputs = torch.cat([_padded(inputs, longest) for inputs, _, _ in splits], dim=1)
    like = next((p for p in probe.model.parameters() if p.is_floating_point()), inputs)
    held_out = torch.arange(inputs.shape[1]) >= len(splits[0][1])
    return retention(
        probe.model,
        inputs.to(like.device, like.dtype) if inputs.is_floating_point() else inputs,
        torch.cat([targets for _, targets, _ in splits]),
        torch.cat([lengths for _, _, lengths in splits]),
        held_out=held_out,
        seed=probe.seed,
        name=probe.name,
    )


def _series(batch: Batch, stepwise: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, the answer at each series' end, and lengths, of series with an answer."""
    batch = batch.expanded()
    steps, series = batch.inputs.shape[:2]
    lengths = torch.full((series,), steps) if batch.lengths is None else batch.lengths
    if batch.times is not None or batch.observed is not None:
        raise InapplicableError("its series have timestamps or missing values")
    targets, mask = batch.targets, batch.target_mask
    if stepwise:
        end = (lengths - 1, torch.arange(series))
        targets, mask = targets[end], None if mask is None else mask[end]
    if targets.is_floating_point():
        valid = targets.reshape(series, -1).isfinite().all(1)
    else:
        valid = targets.reshape(series, -1)[:, 0] >= 0  # a negative class marks a missing answer
    if mask is not None:
        valid &= mask.reshape(series, -1).all(1)
    return batch.inputs[:, valid], targets[valid], lengths[valid]


def _padded(inputs: Tensor, steps: int) -> Tensor:
    missing = steps - len(inputs)
    return torch.cat([inputs, inputs.new_zeros(missing, *inputs.shape[1:])]) if missing else inputs
