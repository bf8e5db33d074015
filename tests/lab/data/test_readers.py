"""Readers: one function per format, entered by its ending, also from outside."""

import json
import subprocess
import sys

import numpy as np
import pytest
from registries import isolate

from undamped._base.errors import DataError, OptionError
from undamped._base.registry import readers
from undamped.lab.data.recordings.read import is_data_path, read_recordings, read_sequences
from undamped.lab.data.recordings.reader import reads
from undamped.lab.data.recordings.series import SeriesSet


@pytest.fixture
def toy(monkeypatch):
    """A format with one number per line, and a label in the first."""
    isolate(monkeypatch, readers)

    @reads(".toy")
    def read_toy(path):
        blocks = [block.split() for block in path.read_text().split("\n\n")]
        series = [np.array([[float(v)] for v in block[1:]], np.float32) for block in blocks]
        return SeriesSet.of(series, [block[0] for block in blocks], source=str(path))

    return read_toy


def write_toy(path, count=12):
    random = np.random.default_rng(0)
    path.write_text(
        "\n\n".join(
            "\n".join(["ab"[i % 2], *(f"{v:.3f}" for v in random.normal(i % 2, 1, 8))])
            for i in range(count)
        )
    )


def test_every_reader_of_the_house_is_in_one_table():
    assert set(readers) == {
        ".csv", ".parquet", ".pq", ".npz", ".npy", ".ts", ".tsv", ".txt", ".arff",
    }  # fmt: skip
    assert {name for name in readers if readers[name].columns} == {".csv", ".parquet", ".pq"}


def test_a_reader_of_ones_own(tmp_path, toy):
    write_toy(tmp_path / "a.TOY")
    data = read_recordings(tmp_path / "a.TOY")
    assert len(data) == 12 and list(data.targets[:2]) == ["a", "b"]
    assert is_data_path("b.toy")
    with pytest.raises(OptionError, match=r"target=y does not apply to \.toy files"):
        read_recordings(tmp_path / "a.TOY", target="y")
    assert read_recordings(tmp_path / "a.TOY", forecast=True).targets is None
    assert read_sequences(tmp_path / "a.TOY", 1).shape == (8, 12, 1)


@pytest.mark.process
def test_a_reader_from_outside_trains_and_predicts(tmp_path):
    write_toy(tmp_path / "a.toy")
    (tmp_path / "my_reader.py").write_text(
        "import sys\n"
        "import numpy as np\n"
        "from undamped.lab.data.recordings.reader import reads\n"
        "from undamped.lab.data.recordings.series import SeriesSet\n"
        "@reads('.toy')\n"
        "def read_toy(path):\n"
        "    blocks = [block.split() for block in path.read_text().split('\\n\\n')]\n"
        "    series = [np.array([[float(v)] for v in b[1:]], np.float32) for b in blocks]\n"
        "    return SeriesSet.of(series, [b[0] for b in blocks], source=str(path))\n"
        "from undamped.lab.cli import main\n"
        "main()\n"
    )

    def call(*words):
        done = subprocess.run(
            [sys.executable, "my_reader.py", *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    run = call(
        "train", "a.toy", "gru", "train.steps=2", "model.hidden_size=2", "--no-page", "--json"
    )
    assert run["preparation"]["classes"] == ["a", "b"]
    assert len(call("predict", run["run"], "a.toy", "--json")) == 12


def test_plain_sequences(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,4\n5,6\n")
    assert read_sequences(tmp_path / "a.csv", 2).tolist() == [[[1, 2]], [[3, 4]], [[5, 6]]]
    np.save(tmp_path / "b.npy", np.arange(12).reshape(2, 3, 2))
    assert read_sequences(tmp_path / "b.npy", 2).shape == (3, 2, 2)
    (tmp_path / "symbols.csv").write_text("0\n3\n2\n")
    assert read_sequences(tmp_path / "symbols.csv", 4, symbols=True).tolist() == [[0], [3], [2]]
    (tmp_path / "broken.csv").write_text("0.5\n3\n2\n")
    with pytest.raises(DataError, match="must have symbols"):
        read_sequences(tmp_path / "broken.csv", 4, symbols=True)
    np.savez(tmp_path / "c.npz", X=np.zeros((4, 5, 2)))
    assert read_sequences(tmp_path / "c.npz", 2).shape == (5, 4, 2)
    np.savez(tmp_path / "d.npz", X=np.zeros((2, 5, 2)), lengths=np.array([5, 3]))
    with pytest.raises(DataError, match="one length, got 3 to 5 steps"):
        read_sequences(tmp_path / "d.npz", 2)
    for name, message in (("none.csv", "No such file"), ("a.xyz", r"\.xyz")):
        if name != "none.csv":
            (tmp_path / name).write_text("1")
        with pytest.raises(DataError, match=message):
            read_sequences(tmp_path / name, 2)
