"""Which of two events came first: accuracy of models that read whole recordings.

A recording is noise with two waves, a fast and a slow one, at random times. Features that do not
depend on the order of the events are the same for both classes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from undamped._base.contract import Batch, TaskShape
from undamped._base.registry import models
from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.report.table import Progress, Report, Table, silent

_LENGTH, _FAST, _SLOW = 49, 8, 16  # of a wave, and its periods
_TEST = 400


@dataclass(frozen=True)
class Score:
    """The accuracy of a model.

    Args:
        model: Its name.
        amplitude: Of the waves; the noise has deviation 1.
        seed: Of data and model.
        accuracy: On the test part.
        cpu_seconds: To fit the model.
    """

    model: str
    amplitude: float
    seed: int
    accuracy: float
    cpu_seconds: float


def recordings(count: int, steps: int, amplitude: float, seed: int) -> Batch:
    """Return noise with a slow and a fast wave; the class says whether the fast one is first."""
    random = np.random.default_rng(seed)
    x, labels = random.normal(size=(steps, count)), random.integers(0, 2, size=count)
    for index, fast_first in enumerate(labels.tolist()):
        first = random.integers(0, steps - 2 * _LENGTH - 1)
        second = random.integers(first + _LENGTH + 1, steps - _LENGTH)
        periods = (_FAST, _SLOW) if fast_first else (_SLOW, _FAST)
        for start, period in zip((first, second), periods, strict=True):
            phase = 2 * np.pi * (np.arange(_LENGTH) / period + random.random())
            x[start : start + _LENGTH, index] += amplitude * np.sin(phase)
    return Batch(torch.from_numpy(x).float().unsqueeze(-1), torch.from_numpy(labels))


@benchmark("two-events")
def run(
    *,
    names: tuple[str, ...] = ("bank", "location-bank"),
    amplitudes: tuple[float, ...] = (2.5, 1.7, 1.3),
    seeds: int = 3,
    steps: int = 500,
    training: int = 300,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Which of two events came first: accuracy of models that read whole recordings.

    Args:
        names: Models that are fitted in closed form, such as bank or rdst.
        amplitudes: Amplitudes of the events in noise of deviation 1.
        seeds: How many draws of data and model.
        steps: Samples of a recording.
        training: Recordings for training.
        quick: One amplitude, one draw and few recordings.
        progress: Called with a name after every model.

    Example:
        >>> result = run(quick=True)
    """
    if quick:
        amplitudes, seeds, steps, training = amplitudes[:1], 1, 200, 80
    records, rows = [], []
    for amplitude in amplitudes:
        for name in names:
            scores = [_score(name, amplitude, seed, steps, training) for seed in range(seeds)]
            accuracies = ", ".join(f"{100 * score.accuracy:.1f}" for score in scores)
            seconds = np.mean([score.cpu_seconds for score in scores])
            rows.append((name, f"{amplitude:g}", accuracies, f"{seconds:.1f}"))
            records += scores
            progress(f"{name}, amplitude {amplitude:g}")
    title = f"{training} recordings of {steps} steps for training, {_TEST} for the test."
    header = ("model", "amplitude", "accuracy of each seed, %", "CPU s")
    return Report(records, [Table(header, rows, title)])


def _score(name: str, amplitude: float, seed: int, steps: int, training: int) -> Score:
    train = recordings(training, steps, amplitude, seed)
    test = recordings(_TEST, steps, amplitude, seed + 1000)
    torch.manual_seed(seed)
    clock = time.process_time()
    model = models.build(name, shape=TaskShape(1, 2))
    model.fit_closed_form([train])
    seconds = time.process_time() - clock
    with torch.no_grad():
        correct = model(test).argmax(1) == test.targets
    return Score(name, amplitude, seed, float(correct.float().mean()), seconds)
