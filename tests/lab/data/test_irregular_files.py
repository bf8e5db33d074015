"""Files of visits as they come: right, or refused in a sentence."""

import csv

import numpy as np
import pytest
import torch

from undamped._base.errors import DataError
from undamped.lab import tasks
from undamped.models.for_task import model_for


def visits():
    """Rows of sixteen patients: id, time, two values, label."""
    random = np.random.default_rng(0)
    return [
        [f"p{p}", t, *random.normal(size=2), "ab"[p % 2]]
        for p in range(16)
        for t in np.sort(random.uniform(0, 10, random.integers(4, 8)))
    ]


def task_of(rows, path):
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "when", "x", "y", "label"], *rows])
    return tasks.build("recordings", file=str(path), target="label", id="id", time="when")


def shuffle(rows):
    return [rows[i] for i in np.random.default_rng(1).permutation(len(rows))]


def zones(rows):
    """The same moments, now in one time zone and now in another."""
    clock = np.datetime64("2024-01-01T00:00:00")
    result = []
    for i, (who, when, *rest) in enumerate(rows):
        offset = i % 3
        stamp = clock + np.timedelta64(round(3600 * when) + 3600 * offset, "s")
        result.append([who, f"{stamp}+0{offset}:00", *rest])
    return result


RIGHT = {
    "unsorted": shuffle,
    "one observation": lambda rows: [*rows, ["alone", 3.0, 1.0, 2.0, "a"]],
    "a channel never measured in a series": lambda rows: [
        [who, when, x, "" if who == "p3" else y, label] for who, when, x, y, label in rows
    ],
    "time zones": zones,
    "a long gap": lambda rows: [*rows, ["p5", 5e4, 0.0, 0.0, "b"]],
}
REFUSED = {
    "two rows with the timestamp": lambda rows: [*rows, rows[0]],
    "every value of channel 'y' is missing": lambda rows: [[*row[:3], "", row[4]] for row in rows],
    "at most 100,000 times are possible": lambda rows: [*rows, ["p5", 1e6, 0.0, 0.0, "b"]],
    "'soon' is not": lambda rows: [*rows, ["p5", "soon", 0.0, 0.0, "b"]],
}


@pytest.mark.parametrize("what", list(RIGHT))
def test_it_is_right(what, tmp_path):
    task = task_of(RIGHT[what](visits()), tmp_path / "visits.csv")
    batch = task.batch("train", 0, 16)
    assert (torch.diff(batch.times, dim=0) >= 0).all()
    for name in ("latent-ode", "ode-rnn"):
        torch.manual_seed(0)
        model = model_for(task.task_shape, name, {"hidden_size": 4})
        model.objective(batch, task.loss).total.backward()
        for parameter in model.parameters():
            assert parameter.grad is None or parameter.grad.isfinite().all()


def test_a_zone_does_not_move_a_moment(tmp_path):
    plain = task_of(visits(), tmp_path / "plain.csv")
    zoned = task_of(zones(visits()), tmp_path / "zoned.csv")
    expected, actual = plain.batch("test", 0, 4), zoned.batch("test", 0, 4)
    torch.testing.assert_close(expected.times, actual.times, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("message", list(REFUSED))
def test_it_is_refused_in_a_sentence(message, tmp_path):
    with pytest.raises(DataError, match=message):
        task = task_of(REFUSED[message](visits()), tmp_path / "visits.csv")
        for split in ("train", "valid", "test"):
            task.batch(split, 0, 16)
