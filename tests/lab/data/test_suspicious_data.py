"""Leaks, sentinels, units, axes and escapes: what is said before and after training."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from undamped._base.errors import DataError, DataWarning
from undamped.lab.cli import main
from undamped.lab.data.recordings.findings import look_at
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.splits import split
from undamped.lab.data.recordings.suspicions import find_leaks, find_suspicions, without_leaks
from undamped.lab.tasks.recordings import Recordings


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["undamped", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    output = capsys.readouterr()
    return code, output.out, output.err


def leaking(count=24, steps=20):
    random = np.random.default_rng(0)
    rows = []
    for number in range(count):
        kind = number % 2
        for _ in range(steps):
            rows.append(
                {
                    "id": number,
                    "u": random.normal(),
                    "v": random.normal(),
                    "batch_code": 1000 * kind + number,
                    "serial": 7919 * (number + 3) % 1009,
                    "state": "bad" if kind else "ok",
                }
            )
    return pd.DataFrame(rows)


@pytest.mark.slow
def test_a_leaking_column_is_left_out_and_training_says_so(monkeypatch, capsys):
    leaking().to_csv("a.csv", index=False)
    code, out, err = run(monkeypatch, capsys, "train", "a.csv", "bank", "target=state")
    assert code == 0, err
    for text in (out, err):
        assert "'batch_code' determines the target of every series and is left out" in text
        assert "'serial' has a different number for every series: is it an id?" in text
    code, out, err = run(monkeypatch, capsys, "train", "a.csv", "bank", "target=state", "--json")
    settings = json.loads(out)
    assert any("batch_code" in sentence for sentence in settings["warnings"])
    assert settings["preparation"]["raw_channels"] == ["u", "v", "serial"]
    assert settings["result"]["test"]["accuracy"] < 1
    code, out, err = run(monkeypatch, capsys, "predict", settings["run"], "a.csv")
    assert code == 0, err


def test_a_column_that_is_named_stays_and_is_warned_about():
    leaking().to_csv("a.csv", index=False)
    task = Recordings("a.csv", target="state", channels=["u", "batch_code"])
    assert task.preparation.raw_channels == ["u", "batch_code"]
    (sentence,) = task.series_set.warnings
    assert "'batch_code' reveals the target" in sentence
    assert f"Warning: {sentence}" in task.notes()


def test_leaks_are_told_from_chance():
    random = np.random.default_rng(0)

    def make(count, values, labels):
        series = [np.stack([random.normal(size=9), np.full(9, v)], 1) for v in values[:count]]
        return SeriesSet.of(series, targets=labels[:count], channels=["x", "c"])

    labels = [f"class {i % 3}" for i in range(30)]
    sorted_codes = [100.5 * (i % 3) + i for i in range(30)]
    assert find_leaks(make(30, sorted_codes, labels)) == ["c"]
    assert find_leaks(make(30, random.normal(size=30), labels)) == []
    four = make(4, [1, 5, 2, 6], ["a", "b", "a", "b"])
    assert find_leaks(four) == ["c"]
    assert without_leaks(four).channels == ["x", "c"]  # four numbers are sorted by chance
    assert without_leaks(make(30, sorted_codes, labels)).channels == ["x"]
    numbers = np.arange(30.0) * 0.37 + 2
    assert find_leaks(make(30, 3 - 2 * numbers, numbers)) == ["c"]
    some = [*labels[:28], "", ""]
    assert find_leaks(make(30, sorted_codes, some)) == ["c"]
    steps = SeriesSet.of([random.normal(size=(9, 1))] * 2, targets=[np.arange(9)] * 2)
    assert find_leaks(steps) == []


def test_sentinels_are_asked_about():
    random = np.random.default_rng(0)
    values = random.normal(size=(20, 50, 4))
    values[random.random(values.shape[:2]) < 0.05, 0] = -999
    values[:, ::10, 1] = 0  # often, and nothing unusual
    values[:, :, 2] = random.random((20, 50)) < 0.02  # rare events
    values[0, 0, 3] = 9999  # once is an outlier
    data = SeriesSet.of(values, targets=[0, 1] * 10, channels=["a", "b", "c", "d"])
    (sentence,) = find_suspicions(data)
    assert sentence.startswith("-999 is 4.7%") and "'a'" in sentence and "set na=-999" in sentence
    pd.DataFrame(values.reshape(-1, 4), columns=data.channels).to_csv("a.csv", index=False)
    assert sum("na=-999" in w for w in look_at(read_recordings("a.csv")).warnings) == 1
    clean = read_recordings("a.csv", na=["-999"])
    assert not any("-999" in w for w in look_at(clean).warnings)


def test_axes_of_an_array():
    random = np.random.default_rng(0)
    np.savez("a.npz", X=random.normal(size=(12, 3, 100)), y=np.arange(12) % 2)
    assert "3 steps of 100 channels" in " ".join(look_at(read_recordings("a.npz")).warnings)
    np.savez("b.npz", X=random.normal(size=(12, 100, 3)), y=np.arange(12) % 2)
    assert not look_at(read_recordings("b.npz")).warnings


def test_names_that_look_like_groups_and_labels(tmp_path, monkeypatch, capsys):
    frame = leaking().drop(columns=["batch_code", "serial"])
    frame["machine"] = "m" + (frame["id"] // 4).astype(str)
    frame.to_csv("a.csv", index=False)
    code, out, _ = run(monkeypatch, capsys, "data", "check", "a.csv", "target=state")
    assert code == 0
    assert "! Several series have the same 'machine': is it a group?" in out
    code, out, _ = run(
        monkeypatch, capsys, "data", "check", "a.csv", "target=state", "group=machine"
    )
    assert "is it a group" not in out
    (tmp_path / "flat").mkdir()
    for name in ("ok_0", "ok_1", "inner_2", "inner_3"):
        frame[["u", "v"]][:20].to_csv(f"flat/{name}.csv", index=False)
    code, out, _ = run(monkeypatch, capsys, "data", "check", "flat")
    assert code == 0
    assert "labels (inner, ok)? Then put them into one subfolder per label" in out
    code, _, err = run(monkeypatch, capsys, "train", "flat", "bank")
    assert code == 2
    assert "one subfolder per label, or list them in labels.csv" in err


def test_other_units_and_empty_series_are_warned_about(monkeypatch, capsys):
    frame = leaking().drop(columns=["batch_code", "serial"])
    frame.to_csv("a.csv", index=False)
    _, out, _ = run(monkeypatch, capsys, "train", "a.csv", "bank", "target=state", "--json")
    folder = json.loads(out)["run"]
    _, out, err = run(monkeypatch, capsys, "predict", folder, "a.csv", "--json")
    assert not err and not any("warning" in answer for answer in json.loads(out))
    frame["u"] *= 1000
    frame.loc[frame["id"] == 3, ["u", "v"]] = np.nan
    frame.to_csv("b.csv", index=False)
    code, out, err = run(monkeypatch, capsys, "predict", folder, "b.csv", "--json")
    assert code == 0
    assert "Warning: Series '0' has values of 'u' that are" in err
    answers = json.loads(out)
    assert "times those of training: is it another unit?" in answers[0]["warning"]
    assert "has no values" in answers[3]["warning"]


def test_estimators_warn():
    from undamped.lab.estimators import SequenceClassifier

    random = np.random.default_rng(0)
    X, y = random.normal(size=(24, 20, 2)), np.arange(24) % 2
    model = SequenceClassifier("bank", random_state=0).fit(X, y)
    model.predict(X)
    with pytest.warns(DataWarning, match="2 steps of 40 channels"):
        SequenceClassifier("bank", random_state=0).fit(random.normal(size=(24, 2, 40)), y)
    with pytest.warns(DataWarning, match="another unit"):
        model.predict(1000 * X)
    X[:, :, 1] = (100 * y + np.arange(24))[:, None]
    with pytest.warns(DataWarning, match="'channel 1' reveals the target"):
        SequenceClassifier("bank", random_state=0).fit(X, y)


def test_names_of_files_cannot_control_the_terminal(monkeypatch, capsys):
    evil = "\x1b]0;PWN\x07\x1b[2J\x9b1m\u202ex[/]"  # and no markup either
    frame = leaking().drop(columns=["batch_code"])
    frame = frame.rename(columns={"serial": evil})
    frame["state"] = frame["state"].replace("bad", f"bad{evil}")
    frame["id"] = frame["id"].astype(str) + evil
    frame.to_csv("a.csv", index=False)
    commands = (
        ["data", "check", "a.csv", "target=state"],
        ["data", "check", "a.csv", "target=state", "--json"],
        ["train", "a.csv", "bank", "target=state"],
        ["predict", "runs/recordings-bank-1", "a.csv"],
        ["predict", "runs/recordings-bank-1", "a.csv", "--json"],
        ["data", "check", "a.csv", "target=u", f"channels=nosuch{evil}"],
    )
    for words in commands:
        code, out, err = run(monkeypatch, capsys, *words)
        assert code == (2 if "nosuch" in words[-1] else 0), err
        assert "[2J" in out + err
        for character in ("\x1b", "\x07", "\x9b", "\u202e"):
            assert character not in err
            assert character not in out or (character == "\u202e" and "--json" in words)


@pytest.mark.parametrize(
    ("distinct", "message"), [(1, "30 series are identical"), (2, "copies of 2")]
)
def test_identical_series_are_named_as_the_cause(distinct, message):
    series = [np.full((5, 1), number % distinct) for number in range(30)]
    with pytest.raises(DataError, match=message):
        split(SeriesSet.of(series, targets=[0, 1] * 15))
