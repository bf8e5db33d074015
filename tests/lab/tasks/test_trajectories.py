"""Trajectories from files: `undamped train flights.csv hnn`, and what is odd about files."""

import csv
import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from undamped._base.errors import DataError, OptionError
from undamped._base.registry import tasks
from undamped.lab import cli
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.physics.trajectory_files import _times
from undamped.lab.training import Run


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """Seven swings of a spring, 25 readings each, columns in a strange order."""
    rows = []
    for flight in range(7):
        phase, size = 0.5 * flight, 0.5 + 0.1 * flight
        for k in range(25):
            angle = 2 * 0.1 * k + phase
            rows.append((f"f{flight}", 0.1 * k, size * np.sin(angle), size * np.cos(angle)))
    path = tmp_path_factory.mktemp("data") / "flights.csv"
    return write(path, ("flight", "t", "q", "p"), rows)


ROLES = ["id=flight", "time=t"]
SHORT = ["train.steps=40", "model.hidden_size=16", "train.batch_size=32"]


@pytest.mark.slow
def test_a_file_is_learnt_scored_followed_and_resumed(flights, tmp_path):
    runner = CliRunner()
    result = runner.invoke(
        cli.app, ["train", str(flights), "hnn", *ROLES, *SHORT, "--out", str(tmp_path), "--no-page"]
    )
    assert result.exit_code == 0, result.output
    assert "Positions: q; momenta: p." in result.output and "readings on: " in result.output
    run = Run.open(tmp_path / "trajectories-hnn-1")
    assert run.result["test"]["mse"] < run.result["chance"]["mse"]
    assert set(run.result["24 readings on"]) == {"loss", "relative_error", "valid_time"}
    out = tmp_path / "states.csv"
    result = runner.invoke(
        cli.app, ["predict", str(run.path), str(flights), "--out", str(out), "--json"]
    )
    assert result.exit_code == 0, result.output
    prediction = json.loads(result.stdout)
    assert prediction["names"] == ["q", "p"] and len(prediction["recordings"]) == 7
    assert prediction["recordings"][0]["states"][0] == pytest.approx([0.0, 0.5], abs=1e-6)
    assert len(out.read_text().splitlines()) == 1 + 7 * 25
    result = runner.invoke(cli.app, ["diagnose", str(run.path), "--out", str(tmp_path / "p.html")])
    assert result.exit_code == 0, result.output


def test_the_note_about_the_split_speaks_of_no_classes(flights):
    note = tasks.build("trajectories", file=str(flights), id="flight", time="t").split_note
    assert "Split" in note and "class" not in note and "stratified" not in note


def test_recordings_stay_whole_and_rates_are_central_differences(flights):
    task = tasks.build("trajectories", file=str(flights), id="flight", time="t")
    owners = {name: {int(i) for i in task.windows[index, 0]} for name, index in task.splits.items()}
    assert not owners["train"] & owners["test"] and not owners["train"] & owners["valid"]
    batch = task.batch("test", 0, 64)
    q, p = batch.inputs.unbind(-1)
    torch.testing.assert_close(
        batch.targets, torch.stack((2 * p, -2 * q), -1), rtol=0.02, atol=0.01
    )
    windows = tasks.build(
        "trajectories", file=str(flights), id="flight", time="t", form="trajectory", window=3
    )
    batch = windows.batch("train", 0, 8)
    assert batch.targets.shape == (3, 8, 2)
    torch.testing.assert_close(
        batch.target_times, torch.tensor([0.1, 0.2, 0.3]).double().unsqueeze(1).expand(3, 8)
    )


def test_one_recording_is_split_by_time_and_velocities_are_made(tmp_path):
    time = np.arange(60) * 0.1
    path = write(tmp_path / "one.csv", ("x",), [[value] for value in np.sin(time)])
    task = tasks.build("trajectories", file=str(path), differences=True, step=0.1)
    assert task.split_record["by"] == "time"
    assert task.state_space.names == ("x", "dx/dt") and task.state_space.kinds[1] == "velocity"
    last = [int(task.windows[index, 1].max()) for index in task.splits.values()]
    first = [int(task.windows[index, 1].min()) for index in task.splits.values()]
    assert last[0] + 2 < first[1] + 1 and last[1] + 2 < first[2] + 1
    x, v = task.batch("train", 0, 30).inputs.unbind(-1)
    torch.testing.assert_close(x.square() + v.square(), torch.ones(len(x)), rtol=0.02, atol=0.02)


def rows_of(*columns):
    return np.stack(columns, 1).tolist()


def test_what_is_odd_about_a_file_is_said(tmp_path, flights):
    time = np.arange(80) * 0.1
    swing, rate = np.sin(time), np.cos(time)

    def build(name, header, rows, **options):
        return tasks.build(
            "trajectories", file=str(write(tmp_path / name, header, rows)), step=0.1, **options
        )

    with pytest.raises(DataError, match=r"an even number of columns, .* got 3 \(a, b, c\)"):
        build("odd.csv", ("a", "b", "c"), rows_of(swing, rate, rate))
    cut = (3 * time + np.pi) % (2 * np.pi) - np.pi
    with pytest.raises(DataError, match=r"jumps of about 2π, .* Set angles=a"):
        build("cut.csv", ("a", "w"), rows_of(cut, np.full_like(time, 3.0)))
    task = build("cut.csv", ("a", "w"), rows_of(cut, 3 + 0 * time), angles=("a",))
    assert any("jumps by a full turn" in note for note in task.notes())
    torch.testing.assert_close(
        task.recordings.states[0][:, 0], torch.from_numpy(3 * time), rtol=1e-4, atol=1e-4
    )
    degrees = np.degrees(cut)
    with pytest.raises(DataError, match=r"angles in radians, got \d+ jumps of about 360"):
        build("degrees.csv", ("a", "w"), rows_of(degrees, rate), angles=("a",))
    task = build("large.csv", ("a", "w"), rows_of(900 * swing, rate), angles=("a",))
    assert any("if these are degrees" in note for note in task.notes())
    assert any("Standard deviations of the coordinates" in note for note in task.notes())
    with pytest.raises(DataError, match=r"task.horizon must be at most \d+, the readings"):
        build("fine.csv", ("q", "p"), rows_of(swing, rate), horizon=60)
    with pytest.raises(DataError, match=r"has no column 'z' \(positions=\). Its columns are q, p"):
        build("fine.csv", ("q", "p"), rows_of(swing, rate), positions=("z",))
    with pytest.raises(OptionError, match=r"task.angles must be some of the positions q"):
        build("fine.csv", ("q", "p"), rows_of(swing, rate), angles=("p",))
    with pytest.raises(DataError, match=r"two rows with the timestamp 0.*with id="):
        tasks.build("trajectories", file=str(flights), time="t", id=None)
    with pytest.raises(DataError, match="must increase from row to row"):
        _times(SeriesSet.of([np.ones((3, 2))], times=[[0.0, 2.0, 1.0]]), None, "a set")


def test_a_bad_file_ends_in_a_sentence_and_leaves_nothing(tmp_path):
    path = write(tmp_path / "odd.csv", ("a", "b", "c"), [(1, 2, 3)] * 9)
    out = tmp_path / "runs"
    result = CliRunner().invoke(cli.app, ["train", str(path), "hnn", "step=0.1", "--out", str(out)])
    assert result.exit_code != 0 and not out.exists()
