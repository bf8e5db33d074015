"""Retention: what the state still knows of the answer, step by step.

At about fifty steps of a sequence a linear probe is asked for the answer that will be wanted at
the end, from nothing but the state after that step. It is fitted on some series and scored on
others. A network that remembers has a curve that rises when the answer comes in and stays up; one
that forgets has a curve that falls back to what a guess would score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.options import NonNegativeFloat, PositiveInt
from undamped._base.registry import instruments
from undamped.analysis.core.layout import Layout
from undamped.analysis.core.linear_probe import Split, answers_of, probe_scores
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.state_gradients import batch_axis
from undamped.analysis.core.style import Style, Trace
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.core.trend import student_quantile
from undamped.analysis.core.unrolled import State, evaluating, network_inside, unroll

Array = NDArray[Any]

FEWEST_SERIES = 20
MOST_SERIES = 1000
MOST_NUMBERS = 20_000_000
"""Of the inputs that are looked at; longer sequences are looked at in fewer series."""
HARDLY = 0.05
"""A best score this near to a guess is none."""
FORGOTTEN = 0.5
"""The answer counts as kept while this share of the best score above a guess is left."""


@instruments.register("retention")
@dataclass(frozen=True)
class Retention(Result):
    """What a linear probe reads of the answer from the state after each of some steps.

    `scores[i]` is the probe's mean score over the folds after step `steps[i]` (accuracy for
    classes, explained share of the variance for numbers), `low` and `high` the 95 % band of that
    mean, `per_layer` the same score from the state of one layer alone, and `chance` what a guess
    scores that looks at no state. Where series differ in length, `steps` are hundredths of each
    series' own length, and `unit` says so.
    """

    steps: Array
    scores: Array
    low: Array
    high: Array
    per_layer: Array
    chance: float
    kind: Literal["accuracy", "explained share"]
    unit: Literal["steps", "% of the series"]
    series: int
    name: str

    question = "What does the state still know of the answer, step by step?"
    place = 10

    @classmethod
    def measure(cls, probe: Probe) -> Retention:
        """Fit on series of the training part, score on the test part."""
        return _of_task(probe)

    @property
    def final(self) -> float:
        """The score after the last step, where the answer is asked for."""
        return float(self.scores[-1])

    @property
    def best(self) -> float:
        """The best score on the way."""
        return float(self.scores.max())

    @property
    def kept_until(self) -> float:
        """The last step, from the best on, up to which half of the best above chance is left."""
        limit = self.chance + FORGOTTEN * (self.best - self.chance)
        lost = np.flatnonzero((self.scores < limit) & (np.arange(len(self.scores)) > self._top))
        return float(self.steps[lost[0] - 1] if len(lost) else self.steps[-1])

    @property
    def _top(self) -> int:
        return int(self.scores.argmax())

    @property
    def sentence(self) -> str:
        """Best, end and chance in words."""
        best, end, guess = (self._shown(v) for v in (self.best, self.final, self.chance))
        at = f"{self.steps[self._top]:g} {self.unit}"
        if self.best < self.chance + HARDLY:
            return f"The state never tells the answer: at best {best}, a guess {guess}."
        return (
            f"A linear readout of the state has the answer at best {best} right (after {at}) and "
            f"{end} at the end; a guess has {guess}."
            if self.kind == "accuracy"
            else f"A linear readout of the state explains at best {best} of the answer (after "
            f"{at}) and {end} at the end."
        )

    def _shown(self, value: float) -> str:
        return f"{100 * value:.0f} %" if self.kind == "accuracy" else f"{value:.2f}"

    @property
    def layout(self) -> Layout:
        """Score against the step."""
        return Layout(
            "What the state still knows of the answer",
            f"after step t [{self.unit}]",
            f"{self.kind} of a linear probe on unseen series",
            "A curve that stays up has kept the answer; one that falls to the dotted line, which "
            "is a guess, has forgotten it. Bands are 95 % of the mean over the folds.",
            y_range=(-0.05, 1.05),
        )

    def traces(self, style: Style) -> list[Trace]:
        """The curve in its band, and a guess; alone, the layers too."""
        dotted = {"color": "#7F7F7F", "dash": "dot", "width": 1}
        ends = [self.steps[0], self.steps[-1]]
        drawn = [
            style.band(self.steps, self.low, self.high, "95 % band"),
            style.line(self.steps, self.scores, "whole state"),
            style.line(ends, [self.chance] * 2, "a guess", line=dotted),
        ]
        if not style.alone:
            drawn[2]["name"] = "a guess"
        elif len(self.per_layer) > 1:
            drawn += [
                style.line(self.steps, values, f"layer {layer + 1}", layer + 1)
                for layer, values in enumerate(self.per_layer)
            ]
        return drawn


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
    """Measure what the state knows of the answer along the way.

    Args:
        module: A network in one direction whose state is visible (see `gradient_flow`), or a
            model with one inside.
        inputs: What it takes, (time, series, features), or (series, time, features).
        targets: The answers (series,): whole numbers for classes, others for regression, with
            several columns if there are several numbers.
        lengths: The true length of each series, if they differ.
        held_out: Which series only to score on, as true and false; if none, each fold is held
            out once.
        points: At about how many steps to look.
        folds: Number of probes; each is fitted on all folds but one, and scored on series of a
            fold of its own.
        precision: The state is read with an error of this share of each unit's size. With none,
            differences of the size of rounding count as memory.
        seed: Seed of folds and errors.
        name: What to call the module in plots.
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
    places = _places(int(ends.max()), points)
    chosen = np.rint(places[:, None] * ends[None] / max(1, ends.max())).astype(np.int64)
    with evaluating(module), torch.no_grad():
        layers = _states(network, x, chosen, first)
    draw = np.random.default_rng(seed)
    layers = [_read(states, precision, draw) for states in layers]
    answers = answers_of(targets.detach().cpu().numpy())
    splits = _splits(len(ends), folds, held_out, draw)

    def score(states: Array) -> Array:  # (points, folds)
        return np.stack([probe_scores(at.astype(np.float64), answers, splits) for at in states])

    scores = score(np.concatenate(layers, axis=2))
    mean, reach = scores.mean(1), _reach(scores)
    single = [score(states).mean(1) for states in layers] if len(layers) > 1 else [mean]
    return Retention(
        steps=places + 1 if equal else np.round(100 * (places + 1) / (ends.max() + 1), 2),
        scores=mean,
        low=mean - reach,
        high=mean + reach,
        per_layer=np.stack(single),
        chance=float(np.mean([answers.guess(held, fitted) for fitted, held in splits])),
        kind="accuracy" if answers.classes else "explained share",
        unit="steps" if equal else "% of the series",
        series=len(ends),
        name=name or type(module).__name__,
    )


def _check(x: Tensor, targets: Tensor, folds: int) -> None:
    if x.dim() < 2 or len(targets) != x.shape[1] or x.shape[1] < max(FEWEST_SERIES, 2 * folds):
        raise ShapeError(
            explain(
                "retention",
                expected=f"inputs (time, series, features) and one answer for each of at least "
                f"{max(FEWEST_SERIES, 2 * folds)} series",
                got=f"{tuple(x.shape)} and {len(targets)} answers",
                remedy="Give more series, or targets that belong to whole series.",
            )
        )


def _ends(x: Tensor, lengths: Tensor | None) -> NDArray[np.int64]:
    """Return the last step of each series."""
    if lengths is None:
        return np.full(x.shape[1], len(x) - 1)
    return lengths.cpu().numpy().astype(np.int64) - 1


def _places(last: int, points: int) -> NDArray[np.int64]:
    """Return steps: two thirds evenly, a third by ratios from the beginning, where much happens."""
    even = np.linspace(0, last, max(2, 2 * points // 3))
    early = np.geomspace(1, last + 1, points // 3 + 1) - 1
    return np.unique(np.rint(np.concatenate([even, early])).astype(np.int64))


def _states(network: nn.Module, x: Tensor, chosen: Array, batch_first: bool) -> list[Array]:
    """Return the state of each layer as (points, series, features)."""
    unrolled = unroll(network, x, batch_first=batch_first)
    if unrolled is None:
        raise InapplicableError("it shows no state in one direction of time")
    unrolled.prepare()
    series = x.shape[1]
    states = unrolled.initial(series, x)
    found: list[Array] = []
    for t in range(int(chosen.max()) + 1):
        _, states = unrolled.step(x[t], states)
        due, which = np.nonzero(chosen == t)
        if not len(due):
            continue
        flat = [_flat(state, series) for state in states]
        if not found:
            found = [np.empty((*chosen.shape, f.shape[1]), dtype=f.dtype) for f in flat]
        for kept, now in zip(found, flat, strict=True):
            kept[due, which] = now[which]
    return found


def _flat(state: State, series: int) -> Array:
    rows = []
    for part in state:
        real = torch.view_as_real(part) if part.is_complex() else part
        if real.is_floating_point():
            rows.append(real.movedim(batch_axis(part, series), 0).reshape(series, -1))
    return torch.cat(rows, dim=1).float().cpu().numpy()


def _read(states: Array, precision: float, draw: np.random.Generator) -> Array:
    """Add the error of reading, a share of each unit's size at that step."""
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
    known, unseen = (draw.permutation(np.flatnonzero(part)) for part in (~mask, mask))
    if len(known) < FEWEST_SERIES // 2 or len(unseen) < folds:
        raise OptionError(
            explain(
                "held_out",
                expected=f"at least {FEWEST_SERIES // 2} series to fit on and {folds} to score on",
                got=f"{len(known)} and {len(unseen)}",
                remedy="Give more series, or leave it out.",
            )
        )
    fits, tests = np.array_split(known, folds), np.array_split(unseen, folds)
    return [
        (np.concatenate(fits[:i] + fits[i + 1 :]) if folds > 1 else known, tests[i])
        for i in range(folds)
    ]


def _reach(scores: Array) -> Array:
    """Return half the width of the 95 % interval of the mean over folds."""
    folds = scores.shape[1]
    if folds < 2:
        return np.zeros(len(scores))
    return student_quantile(0.975, folds - 1) * scores.std(1, ddof=1) / np.sqrt(folds)


def _of_task(probe: Probe) -> Retention:
    """Take as many series of the task as are worth their time."""
    probe.in_time()
    task = probe.task
    if task is None:
        raise InapplicableError("there is no task, so there is no answer to look for")
    if task.answer not in ("class", "number"):
        raise InapplicableError("its task does not ask for one answer at the end of a series")
    numbers = max(1, probe.inputs[:, :1].numel())
    wanted = int(np.clip(MOST_NUMBERS // numbers, 100, MOST_SERIES))
    known = task.batch("train", 0, 3 * wanted // 4)
    unseen = task.batch("test", 0, wanted // 4)
    parts = [_series(batch, task.readout == "every") for batch in (known, unseen)]
    if min(len(targets) for _, targets, _ in parts) < FEWEST_SERIES // 2:
        raise InapplicableError("its task has too few series with answers to fit a probe")
    longest = max(len(inputs) for inputs, _, _ in parts)
    inputs = torch.cat([_padded(inputs, longest) for inputs, _, _ in parts], dim=1)
    like = next((p for p in probe.model.parameters() if p.is_floating_point()), inputs)
    held_out = torch.arange(inputs.shape[1]) >= len(parts[0][1])
    return retention(
        probe.model,
        inputs.to(like.device, like.dtype) if inputs.is_floating_point() else inputs,
        torch.cat([targets for _, targets, _ in parts]),
        torch.cat([lengths for _, _, lengths in parts]),
        held_out=held_out,
        seed=probe.seed,
        name=probe.name,
    )


def _series(batch: Batch, stepwise: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return inputs, the answer at each series' end, and lengths, of series that have an answer."""
    batch = batch.expanded()
    steps, series = batch.inputs.shape[:2]
    lengths = torch.full((series,), steps) if batch.lengths is None else batch.lengths
    if batch.times is not None or batch.observed is not None:
        raise InapplicableError(
            "its series have times or gaps of their own, which are not read here"
        )
    targets, mask = batch.targets, batch.target_mask
    if stepwise:
        end = (lengths - 1, torch.arange(series))
        targets, mask = targets[end], None if mask is None else mask[end]
    if targets.is_floating_point():
        known = targets.reshape(series, -1).isfinite().all(1)
    else:
        known = targets.reshape(series, -1)[:, 0] >= 0  # a negative class marks a missing answer
    if mask is not None:
        known &= mask.reshape(series, -1).all(1)
    return batch.inputs[:, known], targets[known], lengths[known]


def _padded(inputs: Tensor, steps: int) -> Tensor:
    missing = steps - len(inputs)
    return torch.cat([inputs, inputs.new_zeros(missing, *inputs.shape[1:])]) if missing else inputs
