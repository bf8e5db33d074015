"""Recordings that once gave wrong answers without a word: right now, or refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import torch

from undamped._base.errors import DataError
from undamped.lab.data.recordings.findings import look_at
from undamped.lab.data.recordings.labels import sorted_labels
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.estimators import SequenceClassifier
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training.prediction import predict_series
from undamped.models.sequence_model import SequenceModel


def waves(count=24, seed=0):
    random = np.random.default_rng(seed)
    return [random.normal(size=(9, 2)) * (1, 100) for _ in range(count)]


def trained(channels):
    data = SeriesSet.of(waves(), ["a", "b"] * 12, channels=channels)
    task = SeriesTask(data)
    torch.manual_seed(0)
    model = SequenceModel("gru", task.input_size, task.output_size, hidden_size=4).eval()
    return task.preparation, model, data


def test_channels_are_found_by_their_names():
    preparation, model, data = trained(["x", "y"])
    right = np.stack(predict_series(model, preparation, data))
    reversed_channels = SeriesSet.of([values[:, ::-1] for values in waves()], channels=["y", "x"])
    assert np.array_equal(right, np.stack(predict_series(model, preparation, reversed_channels)))
    more = SeriesSet.of(
        [np.c_[values[:, 0], values] for values in waves()], channels=["w", "x", "y"]
    )
    assert np.array_equal(right, np.stack(predict_series(model, preparation, more)))
    nameless = SeriesSet.of(waves())
    assert np.array_equal(right, np.stack(predict_series(model, preparation, nameless)))
    with pytest.raises(DataError, match=r"has the channels a, b, but .* trained on x, y"):
        predict_series(model, preparation, SeriesSet.of(waves(), channels=["a", "b"]))
    with pytest.raises(DataError, match=r"has the channels x, z, but .* trained on x, y"):
        predict_series(model, preparation, SeriesSet.of(waves(), channels=["x", "z"]))


def test_rows_that_are_series_may_have_their_channels_in_any_order(tmp_path):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({f"{name}_{i}": random.normal(size=6) for name in "xy" for i in range(9)})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[sorted(frame, reverse=True)].to_csv(tmp_path / "b.csv", index=False)
    preparation, model, _ = trained(["x", "y"])
    first, second = (
        predict_series(
            model, preparation, read_recordings(tmp_path / name, layout="wide", needs_target=False)
        )
        for name in ("a.csv", "b.csv")
    )
    assert np.array_equal(np.stack(first), np.stack(second))


@pytest.mark.process
def test_classes_have_one_order_in_every_process():
    program = (
        "import json, numpy as np\n"
        "from undamped.lab.data.recordings.labels import sorted_labels\n"
        "print(json.dumps([sorted_labels(np.array(x)) for x in "
        "(['01', '1', '1.0', '2'], ['nan', 'inf', '1', '2'])]))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(outputs) == 1
    assert json.loads(outputs.pop())[0] == ["01", "1", "1.0", "2"]
    assert sorted_labels(np.array([10, 9, 2])) == ["2", "9", "10"]


def blurred_frame():
    random = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "id": np.repeat(np.arange(12), 6),
            "x": 1e9 + random.normal(size=72),
            "z": random.normal(size=72),
            "label": np.repeat(["a", "b"] * 6, 6),
        }
    )


def test_a_signal_upon_a_large_offset_is_refused(tmp_path):
    frame = blurred_frame()
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = read_recordings(tmp_path / "a.csv")
    assert data.blurred == ("x",)
    assert any("'x' has small differences" in warning for warning in look_at(data).warnings)
    with pytest.raises(DataError, match=r"channel 'x' .*7 digits.*Subtract the offset"):
        SeriesTask(data)
    SeriesTask(read_recordings(tmp_path / "a.csv", channels=["z"]))
    frame["x"] -= 1e9
    frame.to_csv(tmp_path / "b.csv", index=False)
    assert read_recordings(tmp_path / "b.csv").blurred == ()

    first, right = np.array([1e9, 0]), np.array([0, 1e9])
    values = frame[["x", "z"]].to_numpy().reshape(12, 6, 2)
    np.savez(tmp_path / "c.npz", X=values + first)
    assert read_recordings(tmp_path / "c.npz").blurred == ("0",)
    assert SeriesSet.of(values + right).blurred == ("1",)
    assert SeriesSet.of(values + right / 1e6).blurred == ()
    values[:, 0] = np.nan
    assert SeriesSet.of(values + right).blurred == ("1",)
    with pytest.raises(DataError, match=r"channel 1' .*7 digits"):
        SequenceClassifier("unicornn", steps=1).fit(values + right, ["a", "b"] * 6)


def test_time_stamps_that_would_be_rounded_are_refused(tmp_path):
    frame = blurred_frame().drop(columns="x")
    frame["time"] = 1_700_000_000_000_000_000 + 300 * np.arange(len(frame))
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(DataError, match=r"column 'time', row 1: double precision cannot represent"):
        read_recordings(tmp_path / "a.csv")


def test_a_list_of_labels_has_one_row_for_each_file(tmp_path):
    for folder in ("p", "q"):
        (tmp_path / folder).mkdir()
        for name in ("1.csv", "2.csv"):
            pd.DataFrame({"x": [1.0, 2.0, 3.0]}).to_csv(tmp_path / folder / name, index=False)
    listed = tmp_path / "labels.csv"
    listed.write_text("file,label\n1.csv,A\n2.csv,B\n")
    with pytest.raises(DataError, match=r"one row for both 'p/1\.csv' and 'q/1\.csv'"):
        read_recordings(tmp_path)
    listed.write_text("file,label\np/1.csv,A\np/1.csv,B\np/2.csv,B\nq/1.csv,A\nq/2.csv,B\n")
    with pytest.raises(DataError, match=r"two rows for 'p/1\.csv'"):
        read_recordings(tmp_path)
    listed.write_text("file,label\np/1.csv,A\np/2.csv,B\nq/1.csv,A\nq/2.csv,B\n")
    assert list(read_recordings(tmp_path).targets) == ["A", "B", "A", "B"]
