"""`undamped explain` and `undamped update`: sentences, files, JSON, and what they refuse."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from undamped.lab.cli import main
from undamped.lab.training import fit


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def run_command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["undamped", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def bumps(path, count, seed):
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        values = random.normal(0, 0.2, 40)
        values[20:28] += 2 if number % 2 else -2
        label = "up" if number % 2 else "down"
        rows += [{"id": f"r{number}", "x": value, "sign": label} for value in values]
    pd.DataFrame(rows).to_csv(path, index=False)


def test_explain_then_update(tmp_path, monkeypatch, capsys):
    bumps("bumps.csv", 24, 0)
    bumps("new.csv", 4, 1)
    run = fit(
        "bank",
        "recordings",
        model_options={"oscillators": 30},
        task_options={"file": "bumps.csv", "target": "sign", "id": "id"},
        progress=False,
    )
    words = ("explain", run.path, "new.csv", "--row", "r3")
    code, out, err = run_command(monkeypatch, capsys, *words)
    assert code == 0, err
    assert out.startswith("r3: up") and "Check:" in out and "Oscillators" in out
    assert (run.path / "explanation.svg").read_text().startswith("<?xml")
    code, out, err = run_command(monkeypatch, capsys, *words, "--json", "--out", "why.png")
    content = json.loads(out)
    assert content["segment"]["first"] < 28 and content["segment"]["last"] >= 20
    assert content["method"] == "exact" and abs(content["completeness_error"]) < 1e-3
    assert (tmp_path / "why.png").stat().st_size > 1000
    for wrong, reason in (
        (("--row", "99"), "--row must be an id"),
        (("--out", "why.txt"), "--out must be a .png or .svg"),
    ):
        code, _, err = run_command(monkeypatch, capsys, *words[:3], *wrong)
        assert code == 2 and reason in err
    code, _, err = run_command(monkeypatch, capsys, "explain", "flags-latch")
    assert code == 2 and "not a run on recordings" in err

    code, out, err = run_command(monkeypatch, capsys, "update", run.path)
    assert code == 0 and "normal equations of its 21 series" in out, err
    (tmp_path / "bumps.csv").unlink()
    bumps("more.csv", 30, 2)
    code, out, err = run_command(monkeypatch, capsys, "update", run.path, "more.csv", "--json")
    content = json.loads(out)
    assert code == 0 and content["series"] == 30 and content["drift"]["changed"] == []
    code, out, err = run_command(monkeypatch, capsys, "predict", content["run"], "new.csv")
    assert code == 0 and "r3: up" in out
    code, out, err = run_command(monkeypatch, capsys, "update", content["run"], "new.csv")
    assert code == 0 and "4 further series" in out
    code, _, err = run_command(monkeypatch, capsys, "update", content["run"], "more.csv")
    assert code == 2 and "used for an update before" in err and "Traceback" not in err
