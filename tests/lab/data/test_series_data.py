"""Sets of recordings, their honest splits, and the preparation fitted on the training part."""

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from undamped._base.errors import DataError, OptionError, ShapeError, UnknownNameError
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.data.recordings.bands import Bands
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.splits import choose, hash_of, split


def some(count=20, seed=0, **more):
    random = np.random.default_rng(seed)
    series = [random.normal(size=(int(random.integers(5, 12)), 2)) for _ in range(count)]
    return SeriesSet.of(series, targets=np.arange(count) % 2, **more)


def test_set_takes_and_describes():
    data = some(4, groups=list("aabb"))
    part = data.take([2, 0])
    assert part.ids == ["2", "0"]
    assert part.groups is not None and part.groups.tolist() == ["b", "a"]
    assert "4 series" in data.describe() and "2 channels" in data.describe()


def test_set_says_what_does_not_fit():
    with pytest.raises(DataError, match="there are 2 series but 3 targets"):
        SeriesSet([np.zeros((3, 1), np.float32)] * 2, ["a"], np.arange(3))
    with pytest.raises(DataError, match="shape"):
        SeriesSet([np.zeros((3, 2), np.float32)], ["a"])
    with pytest.raises(DataError, match="numbers"):
        SeriesSet.of([[["a"], ["b"]]])
    with pytest.raises(UnknownNameError, match="Did you mean 'pulse'"):
        SeriesSet.of(np.zeros((2, 3, 1)), channels=["pulse"]).select(["puls"])


def test_windows_are_views():
    data = SeriesSet.of([np.arange(10.0)[:, None].astype(np.float32)], targets=["x"])
    cut = data.windows(4, 3)
    assert [values[0, 0] for values in cut.series] == [0, 3, 6]
    assert all(np.shares_memory(values, data.series[0]) for values in cut.series)
    assert cut.ids[1] == "0[3:7]"
    with pytest.raises(DataError, match="a window must have at most 10 steps"):
        data.windows(11, 1)


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(8, 40),
    classes=st.integers(1, 4),
    copied=st.integers(0, 6),
    by=st.sampled_from(["stratified", "group", "time"]),
    seed=st.integers(0, 5),
)
def test_nothing_is_on_both_sides(count, classes, copied, by, seed):
    random = np.random.default_rng(seed)
    series = [random.normal(size=(6, 1)).astype(np.float32) for _ in range(count)]
    for _ in range(copied):
        series[random.integers(count)] = series[random.integers(count)].copy()
    groups = random.integers(0, max(5, count // 2), count)
    data = SeriesSet.of(series, targets=np.arange(count) % classes, groups=groups)
    try:
        parts = split(data, by=by, seed=seed)
    except DataError:
        return  # so much is tied together that a part stays empty
    assigned = np.concatenate(list(parts.values()))
    assert len(set(assigned.tolist())) == len(assigned)
    if by != "time":
        assert sorted(assigned.tolist()) == list(range(count))
    digest = [values.tobytes() for values in series]
    for first, second in (("train", "valid"), ("train", "test"), ("valid", "test")):
        a, b = parts[first], parts[second]
        assert not {digest[i] for i in a} & {digest[i] for i in b}
        if by == "group":
            assert not set(groups[a].tolist()) & set(groups[b].tolist())


def test_stratified_shares_and_seed():
    data = SeriesSet.of(
        np.random.default_rng(0).normal(size=(200, 5, 1)), targets=["a"] * 160 + ["b"] * 40
    )
    parts = split(data)
    assert [len(parts[name]) for name in ("train", "valid", "test")] == [140, 30, 30]
    labels = np.asarray(data.targets)
    assert [(labels[parts[n]] == "b").sum() for n in parts] == [28, 6, 6]
    assert hash_of(split(data)) == hash_of(parts) != hash_of(split(data, seed=1))


def test_time_split_of_windows_leaves_a_gap():
    data = SeriesSet.of([np.random.default_rng(0).normal(size=(100, 1))]).windows(5, 1)
    assert choose(data)[0] == "time"
    parts = split(data, by="time", gap=3)
    assert data.origin is not None
    start = data.origin[:, 1]
    assert start[parts["train"]].max() + 5 <= 70
    assert start[parts["valid"]].min() == 73
    assert start[parts["test"]].min() == 88


def test_windows_of_one_recording_stay_together():
    data = some(12).windows(4, 1)
    parts = split(data)
    assert data.origin is not None
    sides = [set(data.origin[index, 0].tolist()) for index in parts.values()]
    assert not sides[0] & sides[1] and not sides[0] & sides[2] and not sides[1] & sides[2]


def test_given_split_drops_training_copies_of_test_series():
    series = np.random.default_rng(0).normal(size=(12, 4, 1)).astype(np.float32)
    series[0] = series[11]
    data = SeriesSet(
        list(series), ["a"], np.arange(12) % 2, parts=np.array(["train"] * 9 + ["test"] * 3)
    )
    parts = split(data, by="given")
    assert parts["test"].tolist() == [9, 10, 11]
    assert len(parts["valid"]) and 0 not in parts["train"] and 0 not in parts["valid"]


def test_split_says_what_is_wrong():
    with pytest.raises(OptionError, match="sum to 1"):
        split(some(), fractions=(0.5, 0.5, 0.5))
    with pytest.raises(OptionError, match="group"):
        split(some(), by="group")
    with pytest.raises(OptionError, match="gap"):
        split(some(), gap=3)
    with pytest.raises(OptionError, match="has no split"):
        split(some(), by="given")
    with pytest.raises(DataError, match="the test split is empty"):
        split(some(2))


def gappy():
    random = np.random.default_rng(0)
    series = [3 + 2 * random.normal(size=(30, 3)) for _ in range(6)]
    for values in series:
        values[random.random(values.shape) < 0.2] = np.nan
        values[:, 2] = 7.0
    times = [np.cumsum(random.random(30) + 0.1) for _ in range(6)]
    return SeriesSet.of(series, targets=["a", "b"] * 3, channels=["x", "y", "flat"], times=times)


def test_preparation_is_a_plain_standardisation_of_the_training_part():
    data = gappy()
    prepared = Preparation.fit(data.take([0, 1, 2]), kind="classification")
    training = np.concatenate(data.series[:3]).astype(np.float64)
    np.testing.assert_allclose(prepared.mean, np.nanmean(training, 0)[:2], rtol=1e-6)
    np.testing.assert_allclose(prepared.std, np.nanstd(training, 0)[:2], rtol=1e-6)
    assert prepared.channels == ["x", "y"]  # the constant one is left out
    raw = data.series[4]
    out = prepared.transform(raw)
    assert out.dtype == np.float32 and out.shape == (30, 2) and np.isfinite(out).all()
    observed = ~np.isnan(raw[:, 0])
    expected = np.interp(np.arange(30), np.flatnonzero(observed), raw[observed, 0])
    np.testing.assert_allclose(
        out[:, 0], (expected - prepared.mean[0]) / prepared.std[0], atol=1e-5
    )


def test_masked_stream_equals_transform():
    data = gappy()
    prepared = Preparation.fit(data, kind="classification", missing="mask", timestamps=True)
    assert prepared.input_size == 2 and prepared.needs == {"times", "observed"}
    assert data.times is not None
    complete = prepared.prepare(data.series[1], data.times[1])
    stream = prepared.stream()
    ends = [1, 2, len(data.times[1])]  # two samples alone, then all others at once
    parts = [slice(*ends_of) for ends_of in zip([0, *ends], ends, strict=False)]
    rows = [stream.push(data.series[1][part], data.times[1][part]) for part in parts]
    np.testing.assert_array_equal(complete.inputs, np.concatenate([row.inputs for row in rows]))
    np.testing.assert_array_equal(complete.observed, np.concatenate([row.observed for row in rows]))
    np.testing.assert_array_equal(complete.observed, ~np.isnan(data.series[1][:, :2]))
    gaps = np.concatenate([np.diff(times) for times in data.times])
    expected = (data.times[1] - data.times[1][0]) / np.median(gaps)
    np.testing.assert_allclose(complete.times, expected)
    np.testing.assert_allclose(np.cumsum(np.concatenate([row.dt for row in rows])), expected)


def test_gaps_are_filled_along_lines_in_time():
    series = np.array([[0.0], [np.nan], [10.0]])
    data = SeriesSet.of(
        [series, series + 1], targets=[0, 1], times=[np.array([0.0, 9.0, 10.0])] * 2
    )
    prepared = Preparation.fit(data, kind="classification", timestamps=True, standardise=False)
    np.testing.assert_allclose(prepared.transform(series, data.times[0])[:, 0], [0, 9, 10])


def test_preparation_survives_json():
    prepared = Preparation.fit(gappy(), kind="classification", timestamps=True)
    assert Preparation.from_dict(json.loads(json.dumps(prepared.to_dict()))) == prepared


def test_stored_fields_of_earlier_versions_are_read():
    alarm = Alarm("ill", 0.4, 0.95, 1.0, 0.5, (2, 2))
    stored = alarm.to_dict()
    assert Alarm.from_dict(json.loads(json.dumps(stored))) == alarm
    stored["wanted"] = stored.pop("target")
    assert Alarm.from_dict(stored) == alarm
    bands = Bands([0.1, 0.9], [[[-1.0, 1.0]]], 9, mean=[3.0], std=[2.0])
    stored = asdict(bands)
    stored["zero"], stored["one"] = stored.pop("mean"), stored.pop("std")
    assert Bands.from_dict(stored) == bands


def test_answers_are_in_original_labels_and_units():
    data = SeriesSet.of(
        np.random.default_rng(0).normal(size=(6, 5, 2)), targets=[10, 2, 2, 10, 2, 2]
    )
    prepared = Preparation.fit(data, kind="classification")
    assert prepared.classes == ["2", "10"]
    (answer,) = prepared.answer([[0.0, np.log(3.0)]])
    assert answer["label"] == "10"
    assert answer["probabilities"]["10"] == pytest.approx(0.75)
    numbers = Preparation.fit(data, kind="regression")
    encoded = numbers.encode(np.asarray(data.targets))
    assert [a["value"] for a in numbers.answer(encoded[:, None])] == pytest.approx(
        list(data.targets), abs=1e-5
    )
    forecaster = Preparation.fit(data, kind="forecast", horizon=3, forecast=["1"])
    assert forecaster.output_size == 3
    assert forecaster.answer([[0, 0, 0]])[0]["forecast"]["1"] == pytest.approx(
        [forecaster.mean[1]] * 3
    )


def test_preparation_says_what_is_wrong():
    data = gappy()
    with pytest.raises(DataError, match=r"channel 'x'.*only missing"):
        data.series[0][:, 0] = np.nan
        Preparation.fit(data.take([0]), kind="classification")
    prepared = Preparation.fit(gappy(), kind="classification", timestamps=True)
    with pytest.raises(ShapeError, match="3 channels"):
        prepared.transform(np.zeros((4, 1)))
    with pytest.raises(DataError, match="timestamps"):
        prepared.transform(np.zeros((4, 3)))
    with pytest.raises(DataError, match="each later"):
        prepared.transform(np.zeros((3, 3)), np.array([0.0, 1.0, 1.0]))
    with pytest.raises(DataError, match="infinite"):
        prepared.transform(np.full((3, 3), np.inf), np.arange(3.0))
    with pytest.raises(UnknownNameError, match="label 'c'"):
        prepared.encode(np.array(["c"]))
