"""Recordings that do not fit into memory stay on disk, and give the same batches."""

import hashlib
import json
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from limited_memory import LIMIT

from undamped._base.errors import DataError
from undamped.lab.data.recordings.formats.arrays import read_arrays
from undamped.lab.data.recordings.on_disk import mapped_from
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.data.recordings.series import BLOCK, SeriesSet, fingerprint, time_slices
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training.batches import batches


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path / "cache"))


# No array is small enough to be read at once, and a few numbers are copied at a time.
IN_PIECES = {"in_memory": 10, "block": 7}


def write_arrays(path, kind, dtype):
    random = np.random.default_rng(0)
    x = (100 * random.normal(size=(5, 11, 3))).astype(dtype)
    y, times = random.integers(0, 2, (5, 11)), np.arange(55.0).reshape(5, 11)
    if kind == "npy":
        np.save(path, x)
    else:
        write = np.savez if kind == "stored" else np.savez_compressed
        write(path, X=x, y=y, times=times, lengths=[11, 3, 4, 5, 6])
    return path


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("kind", ["npy", "stored", "compressed"])
def test_array_files_stay_on_disk(tmp_path, kind, dtype):
    path = write_arrays(tmp_path / ("a.npy" if kind == "npy" else "a.npz"), kind, dtype)
    plain_data = read_recordings(path)
    for _ in range(2):  # copied, then found in the cache
        large = read_arrays(path, **IN_PIECES)
        assert large.on_disk and "read in blocks" in large.notes[0]
        assert large.series[0].dtype == np.float32
        for mine, theirs in zip(large.series, plain_data.series, strict=True):
            np.testing.assert_array_equal(mine, theirs)
        for name in ("targets", "times"):
            mine, theirs = getattr(large, name), getattr(plain_data, name)
            assert (mine is None) == (theirs is None)
            for first, second in zip(mine or (), theirs or (), strict=True):
                assert mapped_from(first) is not None
                np.testing.assert_array_equal(first, second)


def test_rounding_is_noticed_in_pieces(tmp_path):
    x = np.zeros((2, 9, 2))
    x[..., 1] = 1e9 + np.arange(9)
    np.save(tmp_path / "a.npy", x)
    assert read_arrays(tmp_path / "a.npy", **IN_PIECES).blurred == ("1",)


def test_long_series_are_read_in_blocks():
    array = np.arange(60.0, dtype=np.float32).reshape(20, 3)
    blocks = [array[steps] for steps in time_slices(array, 7)]
    assert [len(block) for block in blocks] == [2] * 10
    np.testing.assert_array_equal(np.concatenate(blocks), array)
    long = np.random.default_rng(0).normal(size=(BLOCK + 9, 1)).astype(np.float32)
    digest = hashlib.sha256(repr(long.shape).encode() + long.tobytes()).digest()
    assert fingerprint(long) == digest
    sizes = [len(block) for block in SeriesSet.of([long]).each_block()]
    assert sizes == [BLOCK, 9]


def test_what_cannot_be_read_in_pieces_is_refused(tmp_path):
    np.save(tmp_path / "turned.npy", np.asfortranarray(np.ones((4, 5, 2))))
    with pytest.raises(DataError, match="C order"):
        read_arrays(tmp_path / "turned.npy", **IN_PIECES)
    path = write_arrays(tmp_path / "cut.npz", "compressed", np.float64)
    with zipfile.ZipFile(path) as archive:
        header = archive.read("X.npy")[:140]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header)
    with pytest.raises(DataError, match="it is damaged or not"):
        read_arrays(path, **IN_PIECES)
    assert not list((tmp_path / "cache").rglob("*"))


def test_archives_that_would_fill_the_disk_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, X=np.zeros((2, 500_000, 1), np.float32))
    with pytest.raises(DataError, match=r"from 4\.0 kB to 4\.0 MB, .* UNDAMPED_UNPACK_GB"):
        read_arrays(path, **IN_PIECES)
    assert not list((tmp_path / "cache").rglob("*"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000))
    monkeypatch.setenv("UNDAMPED_UNPACK_GB", "0.1")
    with pytest.raises(DataError, match=r"has 1\.0 MB free"):
        read_arrays(path, **IN_PIECES)
    monkeypatch.undo()
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("UNDAMPED_UNPACK_GB", "a lot")
    with pytest.raises(DataError, match="a number of gigabytes"):
        read_arrays(path, **IN_PIECES)
    monkeypatch.setenv("UNDAMPED_UNPACK_GB", "0.1")
    assert len(read_arrays(path, **IN_PIECES).series) == 2
    monkeypatch.delenv("UNDAMPED_UNPACK_GB")
    assert len(read_arrays(path, **IN_PIECES).series) == 2  # the copy is there


def test_objects_in_the_cache_are_never_opened(tmp_path):
    path = write_arrays(tmp_path / "a.npz", "compressed", np.float64)
    values = read_arrays(path, **IN_PIECES).series[0]
    (meta,) = [
        file
        for file in (tmp_path / "cache" / "recordings").glob("*/columns.json")
        if json.loads(file.read_text())["shapes"]["values"][1] == [165]
    ]
    columns = json.loads(meta.read_text())
    for shapes in ({"values": ["|O", [8]]}, {"values": [["a", "|O"], [8]]}, {"values": 3}, [1]):
        meta.write_text(json.dumps({**columns, "shapes": shapes}))
        restored = read_arrays(path, **IN_PIECES).series[0]  # copied anew
        np.testing.assert_array_equal(restored, values)
        assert json.loads(meta.read_text()) == columns


def test_a_folder_larger_than_memory_stays_on_disk(tmp_path):
    for label in ("up", "down"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(2):
            lines = "\n".join(f"{step},{number}" for step in range(6))
            (tmp_path / "data" / label / f"{number}.csv").write_text(f"x,y\n{lines}\n")
    assert not read_recordings(tmp_path / "data", in_memory=1000).on_disk
    assert read_recordings(tmp_path / "data", in_memory=50).on_disk  # of 24 bytes and more each


@pytest.mark.slow
def test_another_process_is_sent_the_place_and_not_the_numbers(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(3, 50_000, 2)).astype("f4"))
    task = SeriesTask(read_recordings(tmp_path / "a.npy"), horizon=4, window=1000, stride=1000)
    sent = pickle.dumps(task)
    assert len(sent) < 300_000 < task.series_set.nbytes
    restored = pickle.loads(sent)
    assert restored.series_set.on_disk
    for split in ("train", "test"):
        first, second = (whose.batch(split, 1, 8) for whose in (task, restored))
        assert all(a is b or (a == b).all() for a, b in zip(first, second, strict=True))


def test_batches_made_ahead_are_those_made_when_asked_for(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(2, 300, 1)).astype("f4"))
    task = SeriesTask(read_recordings(tmp_path / "a.npy"), horizon=2, window=5)
    for rank, world_size in ((0, 1), (1, 2)):
        prefetched, plain = (batches(task, 8, 3, rank, world_size, workers) for workers in (3, 0))
        for _ in range(12):
            first, second = next(prefetched), next(plain)
            assert (first.inputs == second.inputs).all() and (first.targets == second.targets).all()
        prefetched.close()


@pytest.mark.process
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is limited by Linux")
def test_training_needs_less_memory_than_its_file_has(tmp_path):
    """The system refuses more than 80 MB beyond what a process has before it sees the data."""
    program = [
        sys.executable,
        str(Path(__file__).parents[2] / "support" / "limited_memory.py"),
        str(tmp_path),
    ]
    # A thread that cannot be started for want of memory would be waited for without end.
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["refused"] and report["size"] > 2 * LIMIT
    assert report["grown"] < report["size"]  # pages of the file included
    assert report["sequences_per_second"] > 0 and 0 < report["waiting_for_data"] <= 1
    assert report["samples_per_second"] == pytest.approx(
        64 * report["sequences_per_second"], rel=0.01
    )
