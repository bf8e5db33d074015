"""Explanations of recordings whose cause is planted: does the marked segment cover it?

A recording is noise with one event of random length at a random time, which alone determines its
class: the frequency of a wave, the direction of a chirp, or the sign of a bump. A bank is trained
on such recordings, and `undamped.lab.training.explanations` explains its answers to new ones.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch

from undamped._base.contract import TaskShape
from undamped.lab.baselines.bank.oscillator_bank import OscillatorBank
from undamped.lab.benchmarks.timing import benchmark
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.report.table import Progress, Report, Table, silent
from undamped.lab.training.explanations import explain

EVENTS = ("frequency", "chirp", "bump")
_NOISE = 0.4
_COVERED = 0.5  # of an event; more of it counts as covered


@dataclass(frozen=True)
class PlantedCause:
    """The explanations of correct answers to one kind of event.

    Args:
        event: The kind of event.
        accuracy: Fraction of correct answers.
        rows: Correct answers that were explained.
        covered: Fraction of them whose segment covers at least half of the event.
        marked: Mean length of the segments, as a fraction of a recording.
        planted: Mean length of the events, as a fraction of a recording.
        decided: Fraction for which deleting the segment changes the value at least twice as much as
            deleting any other segment.
        seconds: CPU seconds per explanation.
        largest_error: The largest difference between value and sum of contributions.
    """

    event: str
    accuracy: float
    rows: int
    covered: float
    marked: float
    planted: float
    decided: float
    seconds: float
    largest_error: float


def planted_recordings(
    event: str, count: int, steps: int, seed: int
) -> tuple[SeriesSet, np.ndarray]:
    """Return labelled recordings, and first step and end (count, 2) of their events.

    Args:
        event: One of `EVENTS`.
        count: How many.
        steps: Their length; an event has between 3/32 and 3/16 of it.
        seed: The seed of the random numbers.
    """
    random = np.random.default_rng(seed)
    series, labels, spans = [], [], np.zeros((count, 2), dtype=int)
    for index in range(count):
        up = bool(random.integers(2))
        length = int(random.integers(3 * steps // 32, 3 * steps // 16))
        first, phase = int(random.integers(steps - length)), random.uniform(0, 2 * np.pi)
        slow, fast = 0.05, 0.25
        if event == "frequency":
            frequency = np.full(length, 0.16 if up else 0.08)
        else:
            frequency = np.linspace(*((slow, fast) if up else (fast, slow)), length)
        wave = 1.5 * np.sin(2 * np.pi * np.cumsum(frequency) + phase)
        if event == "bump":
            wave = (2.0 if up else -2.0) * np.hanning(length)
        values = random.normal(0, _NOISE, (steps, 1))
        values[first : first + length, 0] += wave
        series.append(values)
        labels.append("up" if up else "down")
        spans[index] = first, first + length
    return SeriesSet.of(series, labels), spans


def measure(
    event: str, rows: int, steps: int, seed: int, oscillators: int = 1000, training: int = 200
) -> PlantedCause:
    """Train a bank on recordings with one kind of event, and explain its answers to others.

    Args:
        event: One of `EVENTS`.
        rows: How many answers to explain.
        steps: Samples of a recording.
        seed: The seed of data and model.
        oscillators: Size of the bank.
        training: Recordings for training.
    """
    series_set, _ = planted_recordings(event, training, steps, seed)
    preparation = Preparation.fit(series_set, kind="classification")
    prepared = [preparation.prepare(series) for series in series_set.series]
    targets = torch.from_numpy(preparation.encode(np.asarray(series_set.targets)))
    torch.manual_seed(seed)
    model = OscillatorBank(TaskShape(1, 2, answer="class"), oscillators=oscillators)
    model.fit_closed_form([batch_of(prepared)._replace(targets=targets)])
    model.refit(())
    new, spans = planted_recordings(event, rows, steps, seed + 1000)
    correct, overlap, marked, decided, errors = 0, [], [], [], []
    clock = time.process_time()
    for row, (first, stop) in enumerate(spans.tolist()):
        explanation = explain(model.eval(), preparation, new, row)
        if explanation.answer["label"] != np.asarray(new.targets)[row]:
            continue
        segment, correct = explanation.segment, correct + 1
        inside = min(stop, segment.last + 1) - max(first, segment.first)
        overlap.append(max(0, inside) / (stop - first))
        marked.append((segment.last + 1 - segment.first) / steps)
        decided.append(segment.decides)
        errors.append(abs(explanation.completeness_error or 0.0))
    return PlantedCause(
        event,
        correct / rows,
        correct,
        float(np.mean(np.array(overlap) >= _COVERED)),
        float(np.mean(marked)),
        float(np.mean(spans[:, 1] - spans[:, 0])) / steps,
        float(np.mean(decided)),
        (time.process_time() - clock) / rows,
        max(errors),
    )


@benchmark("explanations")
def run(
    *,
    rows: int = 50,
    steps: int = 256,
    seed: int = 0,
    quick: bool = False,
    progress: Progress = silent,
) -> Report:
    """Explanations of answers whose cause was planted: whether the marked segment covers it.

    Args:
        rows: How many answers are explained for each kind of event.
        steps: Samples of a recording.
        seed: The seed of data and models.
        quick: Few answers of a small bank.
        progress: Called with a name after every kind of event.

    Example:
        >>> result = run(quick=True)
    """
    records = []
    for event in EVENTS:
        size = (6, 128, seed, 100, 60) if quick else (rows, steps, seed)
        records.append(measure(event, *size))
        progress(event)
    table = [
        (
            r.event,
            f"{100 * r.accuracy:.0f}",
            str(r.rows),
            f"{100 * r.covered:.0f}",
            f"{100 * r.marked:.0f}",
            f"{100 * r.planted:.0f}",
            f"{100 * r.decided:.0f}",
            f"{r.seconds:.2f}",
            f"{r.largest_error:.0e}",
        )
        for r in records
    ]
    header = (
        "event",
        "accuracy, %",
        "explained",
        "covered, %",
        "marked, % of steps",
        "event, % of steps",
        "decides, %",
        "CPU s per row",
        "sum error",
    )
    title = f"Bank, recordings of {128 if quick else steps} steps, seed {seed}."
    return Report(records, [Table(header, table, title)])
