"""`undamped data check`: what it finds in good and in suspicious files."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from undamped._base.errors import DataError
from undamped.lab.cli import main
from undamped.lab.cli.verbs.data_check import sparkline
from undamped.lab.data.recordings.findings import look_at
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask


def check(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["undamped", "data", "check", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    said = capsys.readouterr()
    return code, said.out, said.err


def suspicious():
    random = np.random.default_rng(0)
    rows = []
    for number in range(8):
        for step in range(10 + number):
            rows.append(
                {
                    "walk": f"w{number}",
                    "x": 1.0 if step % 2 else random.normal(),
                    "gappy": np.nan if step == 3 else random.normal(),
                    "flat": 4,
                    "row": step,
                    "code": 100 + number,
                    "answer": number % 2,
                    "gait": "slow" if number % 2 else "fast",
                }
            )
    return pd.DataFrame(rows)


def test_suspicious_columns_are_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suspicious().to_csv("a.csv", index=False)
    code, out, err = check(
        monkeypatch, capsys, "a.csv", "target=gait", "id=walk", "--json", "--figure", "a.png"
    )
    assert code == 0, err
    found = json.loads(out)
    said = " ".join(found["warnings"])
    assert "Constant channels, which are not used: flat" in said
    assert "'row' counts the rows" in said
    assert "'code' has a different number for every series" in said
    assert "'answer' reveals the target" in said
    assert "'x'" not in said
    assert "gappy 7.4%" in " ".join(found["facts"])
    assert found["classes"] == {"fast": 4, "slow": 4}
    assert found["lengths"] == {"shortest": 10, "median": 13, "longest": 17}
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_screen_has_bars_lines_and_the_next_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suspicious().to_csv("a.csv", index=False)
    code, out, _ = check(monkeypatch, capsys, "target=gait", "a.csv", "id=walk")
    assert code == 0
    assert "8 series of 10 to 17 steps" in out and "█" in out and "▁" in out
    assert "undamped train a.csv target=gait id=walk" in out


def test_copies_targets_and_times():
    random = np.random.default_rng(0)
    series = list(random.normal(size=(40, 6, 1)))
    series[1] = series[0]
    timestamps = [np.array([0, 1, 2, 3, 4, 9.0])] * 40
    data = SeriesSet.of(series, targets=["a", "b"] + ["a"] * 38, times=timestamps)
    said = " ".join([*(found := look_at(data)).facts, *found.warnings])
    assert "1 series are copies" in said and "different labels" in said
    assert "the largest gap is 5" in said and "Too rare" in said
    numbers = look_at(SeriesSet.of(series, targets=random.normal(size=40)))
    assert numbers.target_range is not None
    steps = [(one[:, 0] > 0).astype(int) for one in series]
    assert "reveals the target" not in " ".join(
        look_at(SeriesSet.of(series, targets=steps)).warnings
    )
    leak = [np.stack([one[:, 0], label], 1) for one, label in zip(series, steps, strict=True)]
    assert "'1' reveals the target" in " ".join(look_at(SeriesSet.of(leak, targets=steps)).warnings)


@pytest.mark.parametrize("kind", ["numbers", "steps", "none"])
def test_picture_of_every_kind(kind, tmp_path, monkeypatch, capsys):
    x = np.random.default_rng(0).normal(size=(5, 20, 2))
    y = {"numbers": x.sum((1, 2)), "steps": (x[:, :, 0] > 0).astype(int)}
    np.savez(tmp_path / "a.npz", X=x, **({"y": y[kind]} if kind in y else {}))
    picture = tmp_path / "a.svg"
    code, out, err = check(monkeypatch, capsys, tmp_path / "a.npz", "--figure", picture)
    assert code == 0, err
    assert "</svg>" in picture.read_text()
    assert ("horizon" in out) == (kind == "none")


def test_what_goes_wrong(tmp_path, monkeypatch, capsys):
    (tmp_path / "a.csv").write_text("")
    for words, said in (
        ([tmp_path / "a.csv"], "is empty"),
        ([tmp_path / "nowhere.csv"], "No such file or folder"),
        ([tmp_path / "a.csv", "tarfet=x"], "Did you mean 'target'"),
        ([tmp_path / "a.csv", "b.csv"], "one file or folder, got 2"),
        ([tmp_path / "a.csv", "--figure", "a.bmp"], "--figure"),
    ):
        code, out, err = check(monkeypatch, capsys, *words)
        assert (code, out) == (2, "") and said in err and len(err.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("y", "found", "refused"),
    [
        ([1.5, np.nan] * 4, "All targets are the same", "all targets are 1.5"),
        ([np.nan] * 8, "All targets are missing", "every target is missing"),
        ([""] * 8, "All targets are missing", "every target is missing"),
        ([3] * 8, "Only one class", "all targets are '3', two or more"),
    ],
)
def test_the_look_and_training_agree_about_targets(
    y, found, refused, tmp_path, monkeypatch, capsys
):
    series = np.random.default_rng(0).normal(size=(8, 20, 1))
    np.savez(tmp_path / "a.npz", X=series, y=np.array(y))
    picture = tmp_path / "a.svg"
    code, out, err = check(monkeypatch, capsys, tmp_path / "a.npz", "--figure", picture)
    assert code == 0, err
    assert found in out and "0 labels" not in out
    with pytest.raises(DataError, match=refused):
        SeriesTask(SeriesSet.of(series, targets=np.array(y)))


def test_few_broken_numbers_are_numbers():
    series = np.random.default_rng(0).normal(size=(8, 20, 1))
    targets = np.array([0.5, 1.5] * 4)
    assert look_at(SeriesSet.of(series, targets=targets)).target_range == (0.5, 1.5)
    assert SeriesTask(SeriesSet.of(series, targets=targets)).kind == "regression"


def test_infinite_values_are_said_and_left_blank(tmp_path, monkeypatch, capsys):
    x = np.random.default_rng(0).normal(size=(4, 20, 2))
    x[1, 3, 1] = np.inf
    np.savez(tmp_path / "a.npz", X=x, y=[0, 1, 0, 1])
    code, out, err = check(monkeypatch, capsys, tmp_path / "a.npz")
    assert code == 0, err
    assert "! Infinite values in 1:" in out
    code, out, err = check(monkeypatch, capsys, tmp_path / "a.npz", "--json")
    assert code == 0 and "Infinity" not in out and json.loads(out)["channels"][1]["infinite"] == 1


def test_sparkline():
    assert sparkline(np.array([0.0, np.inf, 1.0])) == "▁ █"
    assert sparkline(np.array([0.0, 1.0])) == "▁█"
    assert sparkline(np.array([np.nan, 1.0, 2.0])) == " ▁█"
    assert len(sparkline(np.arange(1000.0))) == 60
    assert sparkline(np.array([np.nan])) == " "


def test_wrong_labels_are_listed_and_right_ones_are_not(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    labels = ["slow" if number % 2 else "fast" for number in range(60)]
    rates = np.where(np.arange(60) % 2, 0.3, 0.5)[:, None]
    turns = random.uniform(0, 6, (60, 1))
    waves = np.sin(rates * np.arange(40) + turns) + 0.3 * random.normal(size=(60, 40))
    wrong = [7, 20, 41]
    for number in wrong:
        labels[number] = "fast" if labels[number] == "slow" else "slow"
    labels[55] = "odd"
    rows = [
        {"walk": f"w{number}", "x": value, "gait": labels[number]}
        for number in range(60)
        for value in waves[number]
    ]
    pd.DataFrame(rows).to_csv("a.csv", index=False)
    words = ("a.csv", "target=gait", "id=walk", "--labels")
    code, out, err = check(monkeypatch, capsys, *words, "--json")
    assert code == 0, err
    found = json.loads(out)["labels"]
    assert {one["id"] for one in found["doubtful"]} == {f"w{number}" for number in wrong}
    assert found["alone"] == ["odd"] and found["right"] > 0.85
    code, out, _ = check(monkeypatch, capsys, *words)
    assert code == 0 and "Doubtful labels" in out and "w20: label slow" in out


def test_numbers_have_no_labels_to_look_at(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    suspicious().assign(code=lambda rows: rows["code"] + 0.5).to_csv("a.csv", index=False)
    code, _, err = check(monkeypatch, capsys, "a.csv", "target=code", "id=walk", "--labels")
    assert code == 2 and "needs recordings with one label each, got numbers" in err
