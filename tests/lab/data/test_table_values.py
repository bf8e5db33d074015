"""What people write into tables: large exponents, quotes, decimal commas, dates, holes."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from undamped._base.errors import DataError, OptionError
from undamped.lab.cli.predict_recordings import read_for
from undamped.lab.data.recordings.findings import look_at
from undamped.lab.data.recordings.formats.table.read import read_table
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.tasks.recordings import Recordings
from undamped.lab.tasks.series_windows import irregular
from undamped.lab.training import Run, fit
from undamped.lab.training.prediction import predict_series, windows_of


def read(tmp_path, text, **options):
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    return read_recordings(path, **options)


def notes_of(data):
    return " ".join(data.notes)


@pytest.mark.parametrize("word", ["0.81e5574076640326", "1e4294967297", "1E+2147483648", "1e400"])
def test_exponents_beyond_all_numbers_are_refused(word, tmp_path):
    table = f"x,label\n1,a\n2,b\n1,a\n{word},b\n"
    with pytest.raises(DataError, match="row 4: the number is infinite"):
        read(tmp_path, table)
    pd.DataFrame({"x": ["1", word], "label": ["a", "b"]}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match="row 2: the number is infinite"):
        read_recordings(tmp_path / "t.parquet")


def test_tiny_exponents_are_zero(tmp_path):
    data = read(tmp_path, "x,label\n1,a\n1e-4294967297,b\n")
    assert data.series[0].tolist() == [[1], [0]]


@pytest.mark.parametrize(
    "table",
    ["x,label\n1,a\n1\x00234,b\n", 'x,label\n1,"a"\n1\x00234,b\n', 'x,label\n1,"a\n\x00 b"\n2,b\n'],
)
def test_nul_bytes_are_refused(table, tmp_path):
    with pytest.raises(DataError, match="NUL byte"):
        read(tmp_path, table)


def test_quotes_hide_no_rows(tmp_path):
    head = 'x,y,note,label\n1,2,"a\nb",p\n3,4,c,q\n'
    assert read(tmp_path, f"{head}7,8,d,p\n").series[0].tolist() == [[1, 2], [3, 4], [7, 8]]
    with pytest.raises(DataError, match=r"line 5: 1 fields, but there are 4"):
        read(tmp_path, f"{head}5\n7,8,d,p\n")
    for rest in ('3,c",p\n4,d,q\n', "3,c,p\n4,d,q\n"):  # closed two rows later, or never
        with pytest.raises(DataError, match="line 2: a quoted field does not end in its row"):
            read(tmp_path, f'x,note,label\n1,"a,p\n2,b,q\n{rest}')
    with pytest.raises(DataError, match=r"line 3: 3 fields, but there are 2"):
        read(tmp_path, 'x,label\n1,"a"\n2,"b",c\n')


def test_the_index_of_a_frame_is_a_column(tmp_path):
    frame = pd.DataFrame({"id": [4, 4, 7, 7], "x": [1.0, 2, 3, 4], "label": list("aabb")})
    frame.set_index("id").to_parquet(tmp_path / "t.parquet")
    data = read_recordings(tmp_path / "t.parquet")
    assert data.ids == ["4", "7"]
    assert data.channels == ["x"]


def test_damaged_metadata_of_a_frame_does_no_harm(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"x": [1.0, 2.0], "label": ["a", "b"]})
    for damaged in (b"\xff{", b"{}", b'{"index_columns": [{"kind": 3}], "columns": []}'):
        pq.write_table(table.replace_schema_metadata({"pandas": damaged}), tmp_path / "t.parquet")
        assert read_recordings(tmp_path / "t.parquet").series[0].tolist() == [[1], [2]]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_decimal_commas(mark, tmp_path):
    # The dots of the dates are no decimal points.
    rows = ["time;acc x;n;state", "31.12.2024 23:59;-0,8769;1;a", "01.01.2025 00:00;1,5e1;2;b"]
    data = read(tmp_path, "\n".join(rows).replace(";", mark) + "\n", target="state")
    np.testing.assert_allclose(data.series[0], [[-0.8769, 1], [15, 2]], rtol=1e-6)
    assert np.diff(data.times[0]).tolist() == [60]
    assert "decimal commas" in notes_of(data)
    with pytest.raises(DataError, match=r"row 1: '1.234,5' is not a number"):
        read(tmp_path, "x;y\n1.234,5;1\n1,5;2\n")
    quoted = 'x,z\n"1,5",2\n"2,5",3\n'
    with pytest.raises(DataError, match="Give decimal=, if"):
        read(tmp_path, quoted)
    with pytest.raises(DataError, match=r"'1,234.5' is not a number"):
        read(tmp_path, 'x,z\n"1,234.5",2\n"2,345.5",3\n')
    assert read(tmp_path, quoted, decimal=",").series[0].tolist() == [[1.5, 2], [2.5, 3]]


def test_long_names_are_shortened_in_messages(tmp_path):
    name = "y" * 5000
    for text in (f"x,{name}\n1,2\n2,two\n", f"id,time,x\n{name},1,1\n{name},1,2\n"):
        with pytest.raises(DataError, match="yyy … yyy") as caught:
            read(tmp_path, text)
        assert len(str(caught.value)) < 1000


def test_words_for_missing_values(tmp_path):
    words = ["n/a", "N/A", "--", "-", "NA", "null", "#N/A", ""]
    table = "x,y,state\n" + "".join(f"{word},1,a\n" for word in words) + "2,1,b\n-999,1,b\n"
    data = read(tmp_path, table, target="state")
    assert np.isnan(data.series[0][:8, 0]).all()
    assert data.series[0][8:, 0].tolist() == [2, -999]
    data = read(tmp_path, table.replace("#N/A", "gone"), target="state", na=["gone", "-999"])
    assert np.isnan(data.series[0][:, 0]).sum() == 9
    with pytest.raises(DataError, match="Give na=gone if it means a missing value"):
        read(tmp_path, "x\n1\ngone\n", needs_target=False)
    frame = pd.DataFrame({"x": ["1", "gone"], "y": [-999.0, 3.0]})
    frame.to_parquet(tmp_path / "t.parquet")
    data = read_recordings(tmp_path / "t.parquet", na=["gone", "-999"], needs_target=False)
    np.testing.assert_array_equal(data.series[0], [[1, np.nan], [np.nan, 3]])


def test_targets_with_words_for_missing_ones_are_numbers(tmp_path):
    data = read(tmp_path, "x,y\n1,0.5\n2,n/a\n3,2.5\n4,3.5\n")
    np.testing.assert_array_equal(data.targets[0], [0.5, np.nan, 2.5, 3.5])


def seconds(*dates):
    return [pd.Timestamp(date, tz="UTC").timestamp() for date in dates]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dates", "expected", "note"),
    [
        (["31/12/2024", "01/01/2025"], ["2024-12-31", "2025-01-01"], "read as day/month/year."),
        (["12/31/2024", "1/1/2025"], ["2024-12-31", "2025-01-01"], "read as month/day/year."),
        (["3.2.2024", "4.2.2024"], ["2024-02-03", "2024-02-04"], "read as day.month.year."),
        (["3/2/2024", "3/3/2024"], ["2024-03-02", "2024-03-03"], "set dayfirst=true if"),
        (["31-12-24 5:07", "01-01-25 5:07"], ["2024-12-31 5:07", "2025-01-01 5:07"], "day-month"),
        (["1/31/2024 11:00 PM", "2/1/2024 1:30 AM"], ["2024-01-31 23:00", "2024-02-01 1:30"], ""),
        (["Jan 2008", "May 2008"], ["2008-01-01", "2008-05-01"], ""),
        (["May 2008", "June 2008"], ["2008-05-01", "2008-06-01"], ""),
        (["2008-Jan", "2008-Feb"], ["2008-01-01", "2008-02-01"], ""),
        (["5 Jan 2008", "6 Jan 2008"], ["2008-01-05", "2008-01-06"], ""),
        (["Jan 5, 2008", "Jan 6, 2008"], ["2008-01-05", "2008-01-06"], ""),
    ],
)
def test_ways_to_write_dates(dates, expected, note, tmp_path):
    table = "when;x\n" + "".join(f"{date};1\n" for date in dates)
    data = read(tmp_path, table, needs_target=False)
    assert data.times[0].tolist() == seconds(*expected)
    assert "Column 'when' holds dates and is used as time." in notes_of(data)
    assert note in notes_of(data)


def test_which_comes_first_the_day_or_the_month(tmp_path):
    table = "time,x\n3/2/2024,1\n3/3/2024,1\n"
    data = read(tmp_path, table, needs_target=False, dayfirst=True)
    assert data.times[0].tolist() == seconds("2024-02-03", "2024-03-03")
    assert "dayfirst" not in notes_of(data)
    # The first of every month, or twelve days of January in every year?
    months = [f"1/{1 + month % 12}/{2020 + month // 12}" for month in range(30)]
    data = read(tmp_path, "time,x\n" + "".join(f"{m},1\n" for m in months), needs_target=False)
    assert data.times[0].tolist() == seconds(*pd.date_range("2020-01-01", periods=30, freq="MS"))
    with pytest.raises(DataError, match="is not a date like those of the other rows"):
        read(tmp_path, "time,x\n31/12/2024,1\n1/13/2025,1\n", needs_target=False)
    with pytest.raises(DataError, match=r"row 1: '31/12/2024' is not .*month/day/year"):
        read(tmp_path, "time,x\n31/12/2024,1\n1/1/2025,1\n", needs_target=False, dayfirst=False)


def test_later_files_are_read_in_the_order_of_the_first(tmp_path):
    data = read(tmp_path, "time,x\n31/12/2024,1\n1/1/2025,1\n", needs_target=False)
    assert data.columns["dayfirst"] is True
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "a.csv").write_text("time,x\n31/1/2024,1\n1/2/2024,1\n")
    (tmp_path / "f" / "b.csv").write_text("time,x\n1/2/2024,1\n2/2/2024,1\n")
    with pytest.raises(DataError, match=r"day first in a.csv, month first in b.csv"):
        read_recordings(tmp_path / "f")
    data = read_recordings(tmp_path / "f", dayfirst=True)
    assert data.times[1].tolist() == seconds("2024-02-01", "2024-02-02")


def test_the_first_rows_decide_how_dates_are_read(tmp_path):
    (tmp_path / "t.csv").write_text("time,x\n3/2/2024,1\n3/3/2024,1\n13/3/2024,1\n14/3/2024,1\n")
    with pytest.raises(DataError, match=r"row 3: '13/3/2024' is not .*month/day/year"):
        read_table(tmp_path / "t.csv", needs_target=False, rows=2)
    (tmp_path / "t.csv").write_text("time,x\n2024-01-01,1\n2024-01-02,1\n5,1\n6,1\n")
    with pytest.raises(DataError, match=r"row 3: '5' is not a date, as the rows before"):
        read_table(tmp_path / "t.csv", needs_target=False, rows=2)


def test_a_date_that_does_not_move_on_is_no_time(tmp_path):
    rows = [f"{i},2024-01-0{i + 1},{step},{i % 2}\n" for i in range(4) for step in range(5)]
    data = read(tmp_path, "id,recorded,x,label\n" + "".join(rows))
    assert data.times is None
    assert "Text columns that are left out: recorded." in data.notes


def test_repeated_time_timestamps(tmp_path):
    table = "id,time,x,y\n" + "".join(
        f"{name},{date},{x},{y}\n"
        for name, date, x, y in [
            ("a", "2024-03-31 01:00", 1, 1),
            ("a", "2024-03-31 02:00", 2, ""),
            ("a", "2024-03-31 02:00", 5, 3),
            ("b", "2024-03-31 02:00", 7, 1),
        ]
    )
    message = r"series 'a'.*the timestamp 2024-03-31 02:00:00.*duplicates=first or"
    with pytest.raises(DataError, match=message):
        read(tmp_path, table, needs_target=False)
    data = read(tmp_path, table, needs_target=False, duplicates="first")
    np.testing.assert_array_equal(data.series[0], [[1, 1], [2, np.nan]])
    data = read(tmp_path, table, needs_target=False, duplicates="mean")
    np.testing.assert_array_equal(data.series[0], [[1, 1], [3.5, 3]])
    assert data.series[1].tolist() == [[7, 1]]
    assert "Rows with a repeated timestamp are averaged: 1." in data.notes


@pytest.mark.parametrize(
    ("dates", "unit"),
    [
        (pd.date_range("2024-01-01", periods=60, freq="D"), "days"),
        (pd.date_range("2024-03-30", periods=60, freq="h"), "hours"),
        (pd.date_range("2020-01-01", periods=60, freq="MS"), "months"),
        (pd.date_range("2020-01-31", periods=60, freq="MS") - pd.Timedelta(days=1), "months"),
        (pd.date_range("2020-01-01", periods=60, freq="QS"), "quarters"),
        (pd.date_range("2024-01-01", periods=60, freq="W"), "weeks"),
        (pd.bdate_range("2024-01-01", periods=60), "working days"),
    ],
)
def test_missing_dates_are_missing_values(dates, unit, tmp_path):
    frame = pd.DataFrame({"x": np.arange(60.0)}, index=pd.Index(dates, name="day"))
    frame.drop(dates[[5, 20, 21]]).to_csv(tmp_path / "t.csv")
    data = read_recordings(tmp_path / "t.csv", forecast=True)
    expected = np.arange(60.0)
    expected[[5, 20, 21]] = np.nan
    np.testing.assert_array_equal(data.series[0][:, 0], expected)
    assert data.times[0].tolist() == seconds(*dates)
    assert f"3 of 60 {unit} are missing and become missing values." in data.notes
    assert not irregular(data)
    assert read_recordings(tmp_path / "t.csv", needs_target=False).series[0].shape == (57, 1)


def test_distances_of_dates_are_said_in_days_and_hours(tmp_path):
    dates = [*pd.date_range("2024-01-01", periods=9), pd.Timestamp("2024-01-11 12:00")]
    pd.DataFrame({"time": dates, "x": 1.0}).to_csv(tmp_path / "t.csv", index=False)
    facts = " ".join(look_at(read_recordings(tmp_path / "t.csv", needs_target=False)).facts)
    assert "Timestamps are 1 day apart; 11.1% are not, the largest gap is 60 hours." in facts


def test_what_is_on_no_grid_stays_as_it_is(tmp_path):
    random = np.random.default_rng(0)
    uneven = pd.to_datetime(np.cumsum(random.integers(1000, 100_000, 40)), unit="s")
    few = pd.date_range("2024-01-01", periods=100, freq="D")[random.permutation(100)[:40]]
    for dates in (uneven, few.sort_values()):
        pd.DataFrame({"time": dates, "x": 1.0}).to_csv(tmp_path / "t.csv", index=False)
        data = read_recordings(tmp_path / "t.csv", forecast=True)
        assert len(data.series[0]) == 40
        assert irregular(data)


def test_a_first_line_of_values_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"has values such as 0.5"):
        read(tmp_path, "0.5,0.1,0.7,0.3,0.2,ok\n1,2,3,4,5,ok\n1,2,3,4,6,bad\n")
    with pytest.raises(DataError, match=r"has values such as -0.5"):
        read(tmp_path, "-0.5,0.1,ok\n1,2,ok\n2,3,bad\n")
    for names in ("0.5,0.6,0.7,0.8,0.9", "3,1,5,2,4", "2003,2002,2001,2000,1999"):
        assert read(tmp_path, f"{names},label\n1,2,3,4,5,ok\n1,2,3,4,6,bad\n").channels


def test_options_of_tables_are_refused_elsewhere(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.ones((3, 5, 1)))
    for options in ({"na": ["-1"]}, {"decimal": ","}, {"duplicates": "mean"}, {"dayfirst": True}):
        with pytest.raises(OptionError, match=next(iter(options))):
            read_recordings(tmp_path / "a.npz", **options)


def test_folders_are_read_as_tables_are(tmp_path):
    for label in ("ok", "bad"):
        (tmp_path / "f" / label).mkdir(parents=True)
        for number in range(2):
            text = "time;x\n1.2.2024;1,5\n2.2.2024;gone\n"
            (tmp_path / "f" / label / f"{number}.csv").write_text(text)
    data = read_recordings(tmp_path / "f", na=["gone"])
    assert [values[0, 0] for values in data.series] == [1.5] * 4
    assert np.diff(data.times[0]).tolist() == [86400]


def one_long_recording(steps=2400, segment=100):
    random = np.random.default_rng(0)
    state = (np.arange(steps) // segment) % 2
    wave = np.sin(np.arange(steps) * np.where(state, 0.3, 0.9)) + 0.3 * random.normal(size=steps)
    return pd.DataFrame({"u": wave, "state": np.where(state, "slow", "fast")})


def test_one_long_recording_is_cut_into_labelled_windows(tmp_path):
    frame = one_long_recording()
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Recordings(str(tmp_path / "t.csv"), target="state")
    assert task.kind == "classification" and task.split_record["by"] == "time"
    assert len(task.series_set) == 60 and set(task.series_set.lengths) == {40}
    for (_, start), label in zip(task.series_set.origin, task.series_set.targets, strict=True):
        assert label == frame["state"][start : start + 40].mode()[0]
    assert "60 windows of 40 steps, each with its commonest label" in " ".join(task.notes())
    assert task.preparation.each_window and task.preparation.window == 40
    with pytest.raises(OptionError, match="windows of 40 steps"):
        task.preparation.stream()
    steps = Recordings(str(tmp_path / "t.csv"), target="state", kind="steps")
    assert steps.kind == "steps" and len(steps.series_set) == 60
    assert not steps.preparation.each_window
    windowed = Recordings(
        str(tmp_path / "t.csv"), target="state", kind="classification", window=100, stride=50
    )
    assert len(windowed.series_set) == 47 and windowed.preparation.window == 100
    stepwise = Recordings(str(tmp_path / "t.csv"), target="state", window=100)
    assert stepwise.kind == "steps"


def test_every_window_of_a_long_recording_has_an_answer(tmp_path):
    frame = one_long_recording()
    frame.to_csv(tmp_path / "t.csv", index=False)
    options = {"file": str(tmp_path / "t.csv"), "target": "state"}
    run = fit("bank", "recordings", task_options=options, out=tmp_path, progress=False)
    assert run.result["test"]["accuracy"] == 1
    prepared = Run.open(run.path).preparation()
    new = read_for(run, prepared, tmp_path / "t.csv").take([0])
    cut = dataclasses.replace(new, series=[new.series[0][:1990]])
    (outputs,) = predict_series(run.model(), prepared, cut)
    windows = windows_of(1990, prepared)
    assert len(outputs) == len(windows) == 50
    assert windows[-1] == slice(1950, 1990)
    labels = [answer["label"] for answer in prepared.answer(outputs)]
    truth = [frame["state"][window].mode()[0] for window in windows]
    assert np.mean(np.array(labels) == truth) > 0.9


def test_numbers_per_step_become_their_mean(tmp_path):
    frame = one_long_recording().assign(load=np.linspace(0, 1, 2400))
    frame.loc[:79, "load"] = np.nan
    frame.drop(columns="state").to_csv(tmp_path / "t.csv", index=False)
    task = Recordings(str(tmp_path / "t.csv"), target="load")
    assert task.kind == "regression" and len(task.series_set) == 58
    expected = frame["load"][80:120].mean()
    np.testing.assert_allclose(task.series_set.targets[0], expected)


def test_classes_that_training_never_sees_are_warned_about(tmp_path):
    frame = one_long_recording()
    frame.loc[2200:, "state"] = "broken"
    frame.to_csv(tmp_path / "t.csv", index=False)
    task = Recordings(str(tmp_path / "t.csv"), target="state")
    assert "Warning: Classes that are missing in the training split: broken." in task.notes()


def test_a_parquet_file_that_holds_fewer_rows_than_it_counts_is_refused(tmp_path, monkeypatch):
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pd.DataFrame({"x": [1.0, 2.0, 3.0], "label": ["a", "b", "a"]}).to_parquet(path)
    real = parquet.ParquetFile.iter_batches
    monkeypatch.setattr(
        parquet.ParquetFile, "iter_batches", lambda self, **how: list(real(self, batch_size=2))[:1]
    )
    with pytest.raises(DataError, match="its header counts 3 rows, but it has 2"):
        read_recordings(path, target="label")
