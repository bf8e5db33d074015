"""The memory benchmark: plan, scores, certificates and what it refuses."""

import json
import re
import textwrap
from dataclasses import asdict
from pathlib import Path

import pytest
from registries import isolate

from lab.cli.test_command_line import invoke
from undamped._base import plugins
from undamped._base.errors import OptionError, RunError, UnknownNameError
from undamped.extend import models
from undamped.lab.baselines.window import WindowPerceptron
from undamped.lab.benchmarks import memory_tasks
from undamped.lab.benchmarks.memory_report import Summary, summarise
from undamped.lab.benchmarks.memory_scores import Score
from undamped.lab.benchmarks.memory_tasks import run

SMALL = {"tasks": ("flags",), "seeds": 1, "cpu_seconds": 0.2, "tested": (64, 256)}


def score(entrant, accuracy, trained=128, certificate=False, **more):
    return Score("flags", entrant, trained, 0, certificate, 0.125, accuracy, 400, **more)


def test_trainings_of_different_times_are_not_compared(tmp_path):
    (tmp_path / "scores").mkdir()
    stored = asdict(score("latch", {"64": 0.5}, budget=30.0))
    (tmp_path / "scores" / "flags--latch--128--0.json").write_text(json.dumps(stored))
    with pytest.raises(OptionError, match="trained for 30 CPU seconds"):
        run(**SMALL, models=("latch",), out=tmp_path)


def test_the_time_of_a_training_follows_from_the_minutes_and_then_from_the_scores(tmp_path):
    assert memory_tasks._cpu_seconds(tmp_path, None, None, 216) == 60
    assert memory_tasks._cpu_seconds(tmp_path, None, 60, 216) == 10
    (tmp_path / "scores").mkdir()
    stored = asdict(score("latch", {"64": 0.5}, budget=12.0))
    (tmp_path / "scores" / "flags--latch--128--0.json").write_text(json.dumps(stored))
    assert memory_tasks._cpu_seconds(tmp_path, None, 600, 216) == 12


def test_scores_are_files_that_are_not_computed_again(tmp_path):
    report = run(models=("latch", "window-64"), trained=(128, 1024), out=tmp_path, **SMALL)
    names = sorted(path.name for path in (tmp_path / "scores").iterdir())
    assert names == [
        "flags--latch--1024--0.json",
        "flags--latch--128--0.json",
        "flags--window-64--1024--0.json",
    ]
    path = tmp_path / "scores" / "flags--latch--128--0.json"
    stored = json.loads(path.read_text())
    assert set(stored["accuracy"]) == {"64", "256"} and stored["chance"] == 0.125
    assert 0.15 < stored["cpu_seconds"] < 10 and stored["updates"] >= 1
    stored["accuracy"]["256"] = 1.0
    path.write_text(json.dumps(stored))
    again = run(models=("latch", "window-64"), trained=(128, 1024), out=tmp_path, **SMALL)
    assert "100.0" in again.markdown() and "100.0" not in report.markdown()
    assert (tmp_path / "memory-benchmark.png").stat().st_size > 5000
    assert (tmp_path / "memory-tasks.png").stat().st_size > 3000
    paper = (tmp_path / "paper.md").read_text()
    assert paper.startswith("---") and "| flags |" in paper and "{{" not in paper
    assert "have 128, 1,024 steps" in " ".join(paper.split())


def test_a_model_of_a_third_party_takes_part(tmp_path):
    @models.register("my-window")
    class MyWindow(WindowPerceptron):
        """A window of another name."""

    report = run(models=("my-window",), trained=(128,), out=tmp_path, **SMALL)
    assert [record.entrant for record in report.records] == ["my-window"]
    assert not report.records[0].certificate


def test_the_example_of_the_documentation_takes_part(tmp_path, monkeypatch):
    page = (Path(__file__).parents[3] / "docs" / "benchmark.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"\n\n((?:    .*\n|\n)*?    import torch\n(?:    .*\n|\n)*)", page)
    (tmp_path / "my_models.py").write_text(textwrap.dedent(example))
    isolate(monkeypatch, models)
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setenv(plugins.VARIABLE, "")
    words = ("models=max-pooled-cnn", "trained=64", "tested=64", "seeds=1", "cpu_seconds=0.2")
    code, output, _ = invoke(
        *("benchmark", "memory", "--with", str(tmp_path / "my_models.py"), "tasks=event-order"),
        *(*words, "--json", "--out", str(tmp_path / "scores")),
    )
    assert code == 0
    (stored,) = (tmp_path / "scores" / "scores").iterdir()
    assert stored.name == "event-order--max-pooled-cnn--64--0.json"
    assert json.loads(output)["records"][0]["accuracy"].keys() == {"64"}


def test_the_certificate_is_the_best_score_without_memory():
    scores = [
        score("window-64", {"1024": 0.3}, 1024, True),
        score("legendre", {"1024": 0.2}, 1024, True),
        score("latch", {"1024": 0.9, "16384": 0.34}),
    ]
    summary = Summary(scores)
    assert summary.certificate("flags", 1024) == (0.3, "window-64")
    assert summary.certificate("flags", 16384) == (0.3, "window-64")
    assert summary.certificate("flags", 256) == (0.125, "chance")
    assert summary.has_memory("flags", "latch", 128, 1024)
    # 0.34 is within two standard errors, 2 √(0.3 · 0.7/400) = 0.046, of 0.3.
    assert not summary.has_memory("flags", "latch", 128, 16384)
    text = summarise(scores).markdown()
    assert "| flags | 30.0 | 90.0 |" in text and "| flags | 30.0 | [34.0] |" in text


def test_the_small_table_comes_first():
    entrants = {name: memory_tasks.ENTRANTS[name] for name in ("bank", "latch", "transformer")}
    plan = list(memory_tasks._plan(("flags", "cups"), entrants, 2, (128, 1024, 16384)))
    assert len(plan) == len(set(plan))
    small = plan[: 2 * 2 * 3]
    assert {(name, length) for _, name, length, _ in small} == {
        ("bank", 1024),
        ("latch", 128),
        ("transformer", 128),
    }
    assert ("flags", "transformer", 16384, 0) not in plan and ("cups", "bank", 128, 0) not in plan
    assert ("cups", "latch", 16384, 1) in plan


def test_a_refusal_is_part_of_the_scores(tmp_path):
    calls = []

    @models.register("stops-early")
    class StopsEarly(WindowPerceptron):
        """A window that refuses its third batch."""

        def run(self, batch, state=None):
            calls.append(batch)
            if len(calls) > 2:
                raise OptionError("this model reads two batches")
            return super().run(batch, state)

    report = run(models=("stops-early",), trained=(128,), out=tmp_path, **SMALL)
    (record,) = report.records
    assert record.refused == "this model reads two batches" and not record.accuracy
    assert "| stops-early | this model reads two batches |" in report.markdown()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"minutes": 0.001}, OptionError, "would have 0.06 CPU seconds"),
        ({"minutes": 0.01, "cpu_seconds": None}, OptionError, "too short: each training"),
        ({"tasks": ("digits",)}, OptionError, "no tests at several lengths"),
        ({"models": ("latsch",)}, UnknownNameError, "latch"),
        ({"models": ("ets",)}, OptionError, "ets"),
    ],
)
def test_impossible_requests_are_refused_before_any_training(tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        run(**{**SMALL, "models": ("latch",), "out": tmp_path / "new", **options})
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"format": 1},
        {"accuracy": [1]},
        {"accuracy": {"x": 1.0}},
        {"accuracy": {"64": 7.0}},
        {"seed": "one"},
        {"chance": None},
        {"task": "of-a-plugin"},
    ],
)
def test_incompatible_files_of_scores_are_named(tmp_path, change):
    path = tmp_path / "a.json"
    values = {name: getattr(score("latch", {"64": 0.5}), name) for name in Score.__annotations__}
    path.write_text(json.dumps({**values, **change}))
    with pytest.raises(RunError, match=r"a\.json"):
        Score.read(path)
