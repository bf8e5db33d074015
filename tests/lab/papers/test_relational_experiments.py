"""Experiments about relations: they run, go on where they stopped, and draw; trials are drawn."""

import json

import pytest
import torch
from typer.testing import CliRunner

import undamped
from undamped._base.errors import OptionError, UnknownNameError
from undamped._base.registry import experiments, tasks
from undamped.lab import cli
from undamped.lab.benchmarks.relations import PLAIN, PlainCoRelNet
from undamped.lab.benchmarks.relations import run as bench
from undamped.lab.papers.relational import spurious
from undamped.lab.papers.relational.relations import (
    GAMES_PAPER,
    comparison,
    relational_games,
    relations,
)
from undamped.lab.report.trials import mosaic, some_trials
from undamped.models.for_task import model_for


@pytest.fixture
def small(monkeypatch):
    """Tests of a few trials."""
    for name in ("rmts", "relational-games"):
        monkeypatch.setattr(tasks[name], "held_out", {"valid": 32, "test": 64})


def test_a_grid_goes_on_where_it_stopped(small, tmp_path):
    lines = []
    options = {
        "tasks": ("rmts",), "holdouts": (50, -1), "models": ("CoRelNet+frozen", "unicornn"),
        "steps": 1, "out": str(tmp_path),
    }  # fmt: skip
    with undamped.plain_loops():
        relations(**options, seeds=1)
        assert len(list(tmp_path.glob("rmts-*"))) == 4
        first = relations(
            **options, seeds=2, progress=lambda text, fraction=None: lines.append((text, fraction))
        )
    assert len(list(tmp_path.glob("rmts-*"))) == 8
    assert lines[-1][1] == 1 and lines[-1][0].startswith("8 of 8, rmts m = 95, unicornn")
    repeated = relations(**options, seeds=2)
    assert repeated.to_dict() == first.to_dict() and len(list(tmp_path.glob("rmts-*"))) == 8
    assert [row[0] for row in first.tables[0].rows] == ["rmts, m = 50", "rmts, m = 95"]
    assert "| rmts, m = 95 | 50 |" in first.markdown()
    (figure,) = first.figures().values()
    assert len(figure.axes[0].lines) >= 2
    json.dumps(first.to_dict(), allow_nan=False)


def test_games_stand_beside_the_printed_numbers(small, tmp_path):
    result = relational_games(games=("between",), models=("CoRelNet",), steps=2, out=str(tmp_path))
    assert [record["case"] for record in result.records] == ["hexominoes", "stripes"]
    assert "(96.6)" in result.markdown() and "(93.1)" in result.markdown()
    assert len(GAMES_PAPER) == 9 * 12 and GAMES_PAPER["left-of", "hexominoes", "RN"] == "51.0"


def test_remedies_are_rows_and_encoders_columns(small, tmp_path):
    result = spurious.run(
        encoders=("frozen", "random"), remedies=("as it is", "cosine+temperature 0.3"), steps=2,
        batch_size=4, confirm=2, out=str(tmp_path),
    )  # fmt: skip
    # The best in validation and the frozen encoder without a remedy have a second seed.
    best = result.numbers["best_in_validation"]["rmts"]
    valid = {score["contestant"]: score["valid"][0] for score in result.records}
    assert max(valid.values()) == valid[best]
    seeds = {score["contestant"]: len(score["accuracies"]) for score in result.records}
    assert seeds == {name: 2 if name in (best, "frozen, as it is") else 1 for name in seeds}
    assert len(seeds) == 4 and f"Best in validation: {best}" in result.markdown()
    assert result.to_dict()["best_in_validation"] == {"rmts": best}
    lines = result.markdown().splitlines()
    assert "| remedy | frozen | random |" in lines
    assert any(line.startswith("| cosine, temperature 0.3 | ") for line in lines)
    assert result.figures()


def test_names_that_nobody_knows(tmp_path):
    for run, wrong in (
        (relations, {"tasks": ("rmtss",)}),
        (relations, {"models": ("CoRelNett",)}),
        (spurious.run, {"remedies": ("cosinus",)}),
        (spurious.run, {"tasks": ("rmtss",)}),
        (comparison, {"tasks": ("comparisons",)}),
    ):
        with pytest.raises(UnknownNameError, match="Did you mean"):
            run(**wrong, out=str(tmp_path))
    assert {"relations", "relational-games", "spurious", "comparison"} <= set(experiments)


def test_the_benchmark_runs_and_its_plain_version_is_the_same_network():
    result = bench(rounds=1, quick=True)
    assert (
        result.settings["distinct_images"] <= 5 and PLAIN in result.markdown() and result.figures()
    )
    json.dumps(result.to_dict())
    task = tasks.build("distribution-of-n")
    ours = model_for(task.task_shape, "corelnet", {}).double()
    plain = PlainCoRelNet(9, 4).double()
    with torch.no_grad():
        for mine, its in zip(plain.encoder, ours.encoder.layers, strict=True):
            mine.load_state_dict(its.state_dict())
    plain.decoder.load_state_dict(ours.decoder.state_dict())
    batch = task.batch("test", 0, 3).cast(torch.float64)
    torch.testing.assert_close(plain(batch), ours(batch))


@pytest.mark.parametrize("words", [["rmts", "colours=joint"], ["relational-games", "game=occurs"]])
def test_show_draws_trials(words, tmp_path):
    path = tmp_path / "trials.png"
    output = CliRunner().invoke(cli.app, ["show", *words, "--figure", str(path)])
    assert output.exit_code == 0, output.output
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "Examples of the training split" in output.stdout and "answer: " in output.stdout
    assert set("█▀▄") & set(output.stdout)


def test_trials_are_rows_of_pictures():
    task = tasks.build("identity-rules")
    (trial, _) = some_trials(task, 2)
    assert [len(row) for row in trial.rows] == [3, 2, 4]
    assert trial.answer == task.answer_names[task.batch("train", 0, 2).targets[0]]
    assert mosaic(trial).shape == (3 * 34 + 2, 4 * 34 + 2, 3)
    with pytest.raises(OptionError, match="Copy is not a task of images: its inputs are symbols"):
        some_trials(tasks.build("copy"))


def test_show_says_what_cannot_be_drawn(tmp_path):
    for words in (["copy", "--figure", str(tmp_path / "x.png")], ["copy", "delay=3"]):
        output = CliRunner().invoke(cli.app, ["show", *words])
        assert "Only trials of a task of images can be drawn" in str(output.exception)
    output = CliRunner().invoke(cli.app, ["show", "rmts", "hold=3"])
    assert "has no option 'hold'" in str(output.exception)
