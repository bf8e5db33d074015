"""Recordings of one's own: tables, arrays and folders, read whole or in pieces."""

import numpy as np
import pandas as pd
import pytest

from undamped._base.errors import DataError, OptionError, UnknownNameError
from undamped.lab.data.recordings.formats.table.read import read_table
from undamped.lab.data.recordings.read import is_data_path, read_recordings


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path / "cache"))


def long_frame(seed=0):
    random = np.random.default_rng(seed)
    rows = []
    for number in range(6):
        for step in range(int(random.integers(4, 9))):
            rows.append(
                {
                    "walk": f"w{number}",
                    "at": step * 0.5,
                    "x": random.normal(),
                    "y": random.normal() if step != 2 else np.nan,
                    "gait": "slow" if number % 2 else "fast",
                    "who": f"p{number // 2}",
                }
            )
    return pd.DataFrame(rows)


NAMES = {"id": "walk", "time": "at", "target": "gait", "group": "who"}


def check_long(data, frame):
    assert data.ids == [f"w{n}" for n in range(6)]
    assert data.channels == ["x", "y"]
    assert data.targets.tolist() == ["fast", "slow"] * 3
    assert data.groups.tolist() == ["p0", "p0", "p1", "p1", "p2", "p2"]
    for name, values, times in zip(data.ids, data.series, data.times, strict=True):
        rows = frame[frame["walk"] == name]
        np.testing.assert_array_equal(values, rows[["x", "y"]].to_numpy(np.float32))
        np.testing.assert_array_equal(times, rows["at"])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_long_tables(suffix, tmp_path):
    frame, path = long_frame(), tmp_path / f"a.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    check_long(read_recordings(path, **NAMES), frame)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_tables_larger_than_memory_are_read_in_pieces(suffix, tmp_path):
    frame, path = long_frame(), tmp_path / f"a.{suffix}"
    frame.to_csv(path, index=False) if suffix == "csv" else frame.to_parquet(path)
    for _ in range(2):  # read, then found in the cache
        data = read_table(path, **NAMES, in_memory=10, rows=7)
        assert isinstance(data.series[0], np.memmap)
        assert np.shares_memory(data.windows(3, 1).series[0], data.series[0])
        check_long(data, frame)
    assert len(list((tmp_path / "cache" / "recordings").iterdir())) == 1
    shuffled = frame.sample(frac=1, random_state=0)
    shuffled.to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(DataError, match="Sort the file first"):
        read_table(tmp_path / "b.csv", **NAMES, in_memory=10, rows=7)


def test_rows_are_sorted_by_series_and_time(tmp_path):
    frame = long_frame()
    frame.sample(frac=1, random_state=0).to_csv(tmp_path / "a.csv", index=False)
    data = read_recordings(tmp_path / "a.csv", **NAMES)
    order = np.argsort(data.ids)
    check_long(data.take(order), frame)
    assert "sorted by time" in " ".join(data.notes)


def test_usual_names_and_dates_are_found(tmp_path):
    frame = pd.DataFrame(
        {
            "id": ["a", "a", "b", "b"],
            "timestamp": ["2024-01-01", "2024-01-02T12:00:00", "2024-01-01", "2024-01-03"],
            "subject": [7, 7, 8, 8],
            "x": [1, 2, 3, 4],
            "label": [0, 0, 1, 1],
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False, sep=";")
    data = read_recordings(tmp_path / "a.csv")
    assert data.columns == {
        "target": "label",
        "id": "id",
        "time": "timestamp",
        "group": "subject",
        "layout": "long",
        "dates": "local",
    }
    assert np.diff(data.times[0]).tolist() == [1.5 * 86400]
    assert data.groups.tolist() == ["7", "8"]
    assert len(data.notes) == 4


def test_targets_per_step(tmp_path):
    frame = long_frame()
    frame["awake"] = (frame["x"] > 0).astype(int)
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = read_recordings(tmp_path / "a.csv", target="awake", id="walk", channels=["x"])
    assert data.stepwise
    np.testing.assert_array_equal(np.concatenate(data.targets), frame["awake"])


def test_one_recording_without_ids(tmp_path):
    pd.DataFrame({"x": np.arange(20.0), "y": 1.0}).to_csv(tmp_path / "a.csv", index=False)
    data = read_recordings(tmp_path / "a.csv", forecast=True)
    assert len(data) == 1 and data.series[0].shape == (20, 2)


def test_wide_tables(tmp_path):
    random = np.random.default_rng(0)
    values = random.normal(size=(5, 10, 2)).astype(np.float32)
    table = {f"{c}_{t}": values[:, t, i] for i, c in enumerate("ab") for t in range(10)}
    frame = pd.DataFrame({**table, "label": list("uvuvu"), "id": range(5)})
    frame.loc[3, [f"{c}_{t}" for c in "ab" for t in (8, 9)]] = np.nan
    frame.to_csv(tmp_path / "a.csv", index=False)
    for memory in (1 << 30, 10):
        data = read_table(tmp_path / "a.csv", in_memory=memory, rows=2)
        assert data.channels == ["a", "b"] and data.targets.tolist() == list("uvuvu")
        np.testing.assert_allclose(data.series[1], values[1], rtol=1e-6)
        assert len(data.series[3]) == 8
    frame["id"] = [0, 1, 1, 2, 3]
    frame.to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(DataError, match=r"id '1' is in 2 rows"):
        read_recordings(tmp_path / "b.csv")


def test_many_numbered_channels_with_repeated_ids_are_steps(tmp_path):
    frame = pd.DataFrame(
        np.random.default_rng(0).normal(size=(40, 9)), columns=[f"ch{i}" for i in range(9)]
    )
    frame["id"] = np.repeat([0, 1], 20)
    frame["label"] = np.repeat(["a", "b"], 20)
    frame.to_csv(tmp_path / "a.csv", index=False)
    data = read_recordings(tmp_path / "a.csv")
    assert [values.shape for values in data.series] == [(20, 9), (20, 9)]


def test_arrays(tmp_path):
    x = np.random.default_rng(0).normal(size=(4, 6, 2))
    np.savez(
        tmp_path / "a.npz",
        X=x,
        y=["a", "b", "a", "b"],
        lengths=[6, 3, 4, 5],
        ids=list("wxyz"),
        groups=[1, 1, 2, 2],
    )
    data = read_recordings(tmp_path / "a.npz")
    assert [len(values) for values in data.series] == [6, 3, 4, 5]
    np.testing.assert_allclose(data.series[1], x[1, :3], rtol=1e-6)
    assert data.ids == list("wxyz") and data.targets.tolist() == ["a", "b", "a", "b"]
    np.save(tmp_path / "b.npy", x.astype(np.float32))
    assert isinstance(read_recordings(tmp_path / "b.npy").series[0], np.memmap)
    np.savez(tmp_path / "c.npz", X=x[:, :, 0], y=np.ones((4, 6)))
    assert read_recordings(tmp_path / "c.npz").stepwise


def test_folder_with_a_class_per_sub_folder(tmp_path):
    for label in ("up", "down"):
        (tmp_path / label).mkdir()
        for number in range(3):
            frame = pd.DataFrame({"x": np.arange(5 + number), "time": np.arange(5 + number)})
            frame.to_csv(tmp_path / label / f"{number}.csv", index=False)
    data = read_recordings(tmp_path)
    assert data.targets.tolist() == ["down"] * 3 + ["up"] * 3
    assert data.channels == ["x"] and data.times is not None
    assert data.ids[0] == "down/0.csv"
    (tmp_path / "up" / "9.csv").write_text("z\n1\n2\n")
    with pytest.raises(DataError, match="has the channels z, but"):
        read_recordings(tmp_path)


def test_folder_with_a_list_of_labels(tmp_path):
    for number in range(3):
        (tmp_path / f"r{number}.csv").write_text("x,y\n1,2\n3,4\n")
    (tmp_path / "labels.csv").write_text("file,label,group\nr0.csv,a,1\nr1,b,1\nr2.csv,a,2\n")
    data = read_recordings(tmp_path)
    assert data.targets.tolist() == ["a", "b", "a"] and data.groups.tolist() == ["1", "1", "2"]
    (tmp_path / "r3.csv").write_text("x,y\n1,2\n3,4\n")
    with pytest.raises(DataError, match="no row for 'r3"):
        read_recordings(tmp_path)


def write(path, content):
    path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content)
    return path


LONG = "id,x,label\na,1,u\na,2,u\nb,3,v\nb,4,v\n"


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("ragged.csv", LONG + "b,5\n", {}, "line 6: 2 fields"),
        ("ragged.csv", LONG + "b,5,v,7\n", {}, "line 6: 4 fields"),
        (
            "text.csv",
            LONG.replace(",3,", ",three,"),
            {},
            "column 'x', row 3: 'three' is not a number",
        ),
        ("inf.csv", LONG.replace(",3,", ",1e99,"), {}, "infinite"),
        ("empty.csv", "", {}, "is empty"),
        ("header.csv", "id,x,label\n", {}, "rows below"),
        ("numbers.csv", "1,2.5\n3,4\n", {}, "column names, got numbers"),
        ("twice.csv", "x,x\n1,2\n", {}, "two columns are named 'x'"),
        ("latin.csv", b"id,x,label\n\xe9,1,u\n", {}, "UTF-8"),
        ("none.csv", LONG, {"channels": []}, "channels is empty"),
        ("unknown.csv", LONG, {"target": "lable"}, "Did you mean 'label'"),
        ("two.csv", LONG, {"target": "id", "id": "id"}, "A column can have one role only"),
        ("noid.csv", LONG.replace("b,3", ",3"), {}, "row 3: the name is missing"),
        ("timestamps.csv", "time,x,y\n0,1,1\n0,2,1\n", {}, "two rows with the timestamp 0"),
        (
            "dates.csv",
            "time,x,y\nmonday,1,1\ntuesday,2,1\n",
            {},
            "'monday' is not a number or an ISO date",
        ),
        ("odd.csv", "time,x,y\n0,1,1\n1,2,1\nnoon,3,1\n", {}, "row 3: 'noon' is not a"),
        ("day.csv", "time,x,y\n2026-01-01,1,1\n7,2,1\n2026-01-03,3,1\n", {}, "row 2: '7' is not a"),
        ("group.csv", "id,x,label,group\na,1,u,1\na,2,u,2\n", {}, "belongs to 2 groups"),
        ("a.parquet", b"PAR1 no such thing PAR1", {}, "Parquet file size"),
        ("a.npz", b"PK\x03\x04 cut off", {}, "it is damaged or not"),
        ("a.npz", b"", {}, "NumPy file"),
        ("a.npz", bytes(range(200)), {}, "it is damaged or not"),
        ("a.npy", b"\x93NUMPY\x01\x00v\x00{'descr'", {}, "NumPy file"),
        ("a.xyz", "1", {}, ".xyz"),
    ],
)
def test_one_sentence_for_bad_files(name, content, options, message, tmp_path):
    path = write(tmp_path / name, content)
    with pytest.raises((DataError, OptionError, UnknownNameError)) as error:
        read_recordings(path, **options)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"lengths": np.array([3, 99])}, "got 99 for series 1"),
        ({"lengths": np.array([3])}, "must have the shape (2,), got (1,)"),
        ({"lengths": np.array([3.0, 3.0])}, "must be integers, got float64"),
        ({"X": np.ones((2, 5), dtype=complex)}, "real and imaginary part as two channels"),
    ],
)
def test_one_sentence_for_bad_arrays(arrays, message, tmp_path):
    np.savez(tmp_path / "a.npz", **{"X": np.zeros((2, 5)), **arrays})
    with pytest.raises(DataError) as error:
        read_recordings(tmp_path / "a.npz")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_missing_dates_in_parquet_are_named(tmp_path):
    times = pd.to_datetime(["2026-01-01", None, "2026-01-03"])
    pd.DataFrame({"time": times, "x": [1, 2, 3]}).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(DataError, match="row 2: 'NaT' is not"):
        read_recordings(tmp_path / "a.parquet", forecast=True)


def test_pickles_are_never_opened(tmp_path):
    class Trap:
        def __reduce__(self):
            return (exec, ("raise SystemExit('opened')",))

    np.savez(tmp_path / "a.npz", X=np.array([Trap()], dtype=object))
    np.save(tmp_path / "b.npy", np.array([Trap()], dtype=object))
    for name in ("a.npz", "b.npy"):
        with pytest.raises(DataError, match="pickled objects"):
            read_recordings(tmp_path / name)


def test_a_failed_copy_leaves_nothing_behind(tmp_path):
    path = write(tmp_path / "a.csv", LONG.replace(",4,", ",four,"))
    with pytest.raises(DataError, match="row 4"):
        read_table(path, in_memory=1, rows=2)
    assert not list((tmp_path / "cache" / "recordings").iterdir())


def test_folders_without_files_and_wrong_options(tmp_path):
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"has no \.csv or \.parquet files"):
        read_recordings(tmp_path / "none")
    with pytest.raises(DataError, match="No such file"):
        read_recordings(tmp_path / "nowhere.csv")
    np.savez(tmp_path / "a.npz", X=np.zeros((2, 3)))
    with pytest.raises(OptionError, match="no named columns"):
        read_recordings(tmp_path / "a.npz", target="y")
    np.savez(tmp_path / "b.npz", Z=np.zeros((2, 3)))
    with pytest.raises(DataError, match="its arrays: Z"):
        read_recordings(tmp_path / "b.npz")


def test_what_looks_like_data(tmp_path):
    assert is_data_path("a.csv") and is_data_path("some/where") and is_data_path("x.TS")
    assert not is_data_path("digits")
