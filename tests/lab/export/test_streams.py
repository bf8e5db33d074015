"""Streams: as sure as their beginnings are, the same in any blocks, saved and gone on from."""

import itertools

import numpy as np
import pytest
import torch

import undamped
from lab.export.test_stream_command import invoke, live
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import DataError, ShapeError, UndampedError
from undamped._base.registry import models
from undamped.lab.baselines.bank.early import FULL, PRIOR
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.estimators import SequenceClassifier, SequenceRegressor
from undamped.lab.export import Subject
from undamped.lab.export.live import LiveModel
from undamped.lab.training import fit
from undamped.lab.training.streaming import SampleStream
from undamped.models.for_task import model_for
from undamped.models.irregular.network import TimestampedNetwork
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import StreamingModel
from undamped.nn.recurrent import Recurrent


def bumps(count, seed, steps=128):
    """Return series of noise with a plateau, a rise or a fall that begins after an eighth."""
    random = np.random.default_rng(seed)
    classes, at = random.integers(0, 3, count), np.arange(1, steps + 1)
    series = []
    for kind in classes:
        begin = random.integers(steps // 8, steps // 4)
        end = begin + random.integers(steps // 4, 3 * steps // 4)
        on = (at >= begin) & (at <= end)
        share = (at - begin) / (end - begin)
        level = (np.ones(steps), share, 1 - share)[kind]
        series.append((6 + random.normal()) * on * level + random.normal(size=steps))
    return np.stack(series).astype(np.float32), classes


@pytest.fixture(scope="module")
def classifier():
    return SequenceClassifier("bank", model_options={"oscillators": 300}, random_state=0).fit(
        *bumps(150, 0)
    )


def along(model, series):
    """Return probabilities (samples, series, classes) after each sample."""
    prepared = [model.preparation_.transform(one[:, None]) for one in series]
    x, state, found = torch.from_numpy(np.stack(prepared, 1)), None, []
    with torch.no_grad():
        for sample in x:
            outputs, state = model.model_.step(sample, state)
            found.append(torch.softmax(outputs, 1)[:, model._order])
    return torch.stack(found).numpy()


@pytest.mark.slow
def test_a_stream_is_as_sure_as_it_is_right(classifier):
    series, classes = bumps(200, 1)
    found = along(classifier, series)
    for samples in (2, 6, 13, 32, 64, 128):
        chances = found[samples - 1]
        right = (chances.argmax(1) == classes).mean()
        assert abs(chances.max(1).mean() - right) < 0.12, samples
    assert (found[:7].max(2) < 0.45).all()  # nothing has happened yet
    whole = classifier.predict_proba(series)
    np.testing.assert_allclose(found[-1], whole, atol=2e-6)
    assert (whole.argmax(1) == classes).mean() > 0.9


def test_early_readouts_follow_the_typical_length(classifier):
    early = classifier.model_.early
    assert early.counts.tolist() == [8, 16, 32, 64, 128]
    assert early.mixture(7) == [(PRIOR, 1.0)] and early.mixture(8) == [(0, 1.0)]
    assert early.mixture(12) == [(0, 0.5), (1, 0.5)]
    assert early.mixture(96) == [(3, 0.5), (FULL, 0.5)]
    assert early.mixture(128) == early.mixture(10**6) == [(FULL, 1.0)]
    series, classes = bumps(60, 2)
    cut = [one[: 128 if at % 3 else 40, None] for at, one in enumerate(series)]
    unequal = SequenceClassifier("bank", model_options={"oscillators": 20}, random_state=0)
    assert unequal.fit(cut, classes).model_.early.counts.tolist() == [8, 16, 32, 64, 128]
    short = SequenceClassifier("bank", model_options={"oscillators": 20}, random_state=0)
    assert short.fit(series[:, 30:36], classes).model_.early.counts.tolist() == [-1, 1, 2, 3, 6]


@pytest.mark.slow
def test_numbers_begin_with_their_mean():
    series, _ = bumps(80, 3)
    answers = series.max(1)
    model = SequenceRegressor("bank", model_options={"oscillators": 100}, random_state=0)
    model.fit(series, answers)
    found = list(model.stream(series[0]))
    assert found[0] == pytest.approx(answers.mean(), abs=0.3)
    assert found[-1] == pytest.approx(float(model.predict(series[:1])[0]), abs=1e-4)


def test_features_on_the_way_change_nothing_at_the_end():
    torch.manual_seed(0)
    bank = undamped.lab.baselines.OscillatorBank(TaskShape(2, 3), oscillators=40).dynamics
    bank.thresholds.normal_()
    x, lengths = torch.randn(150, 4, 2), torch.tensor([150, 70, 64, 3])
    snapshots = dict.fromkeys((1, 64, 70, 100))
    batch = Batch(x, lengths=lengths)
    plain, cut = bank.run(batch), bank.run(batch, snapshots=snapshots)
    assert all(torch.equal(a, b) for a, b in zip(plain.pools, cut.pools, strict=True))
    for count, pools in snapshots.items():
        alone = bank.run(Batch(x[:count], lengths=lengths.clamp_max(count))).pools
        assert all(torch.equal(a, b) for a, b in zip(pools, alone, strict=True))


def test_a_bank_saved_without_early_readouts_answers_by_the_one_it_has(classifier):
    model = classifier.model_
    old = {name: part for name, part in model.state_dict().items() if "early" not in name}
    again = undamped.lab.baselines.OscillatorBank(model.shape, oscillators=300)
    again.load_state_dict(old)
    x = torch.randn(5, 1, 1)
    streamed = again.stream()
    streamed.push(x[:, 0])
    torch.testing.assert_close(streamed.outputs(), model(Batch(x)), rtol=1e-4, atol=1e-5)
    assert not again.early.fitted


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["interpolate", "mask"])
@pytest.mark.parametrize("timestamps", [False, True])
def test_the_compiled_stream_of_a_bank_is_its_step(timestamps, missing):
    torch.manual_seed(0)
    prepared = Preparation(
        kind="classification",
        raw_channels=["a", "constant", "b"],
        channels=["a", "b"],
        mean=[1.0, 2.0],
        std=[3.0, 4.0],
        missing=missing,
        timestamps=timestamps,
        typical_gap=0.5,
        classes=["x", "y", "z"],
    )
    shape = TaskShape(2, 3, needs=prepared.needs)
    model = undamped.lab.baselines.OscillatorBank(shape, oscillators=30).double()
    x, targets = torch.randn(40, 30, 2).double(), torch.arange(30) % 3
    model.fit_closed_form([Batch(x + targets.view(1, -1, 1) / 3, targets)])
    model.refit([])
    assert model.early.fitted
    random = np.random.default_rng(0)
    samples = random.normal(size=(300, 3)).astype(np.float32)
    samples[random.random(samples.shape) < 0.2] = np.nan
    times = np.cumsum(random.uniform(0.1, 1.0, 300)) if timestamps else None
    one_by_one, in_blocks = SampleStream(model, prepared), SampleStream(model, prepared)
    causal, state = prepared.stream(), None
    cuts = [0, 1, 3, 30, 31, 300]
    for begin, end in itertools.pairwise(cuts):
        for t in range(begin, end):
            own = None if times is None else times[t : t + 1]
            one_by_one.push(samples[t], None if own is None else own[0])
            row = causal.push(samples[t : t + 1], own)
            dt = None if row.dt is None else torch.from_numpy(row.dt)
            seen = None if row.observed is None else torch.from_numpy(row.observed)
            answer, state = model.step(torch.from_numpy(row.inputs), state, dt, observed=seen)
        in_blocks.push(samples[begin:end], None if times is None else times[begin:end])
        assert torch.equal(one_by_one.outputs(), in_blocks.outputs())
        torch.testing.assert_close(in_blocks.outputs(), answer, rtol=1e-8, atol=1e-8)
    assert one_by_one.steps == in_blocks.steps == 300


def test_a_bad_sample_is_refused_when_it_comes_and_changes_nothing(classifier):
    stream = SampleStream(classifier.model_, classifier.preparation_)
    stream.push([0.5])
    with pytest.raises(DataError, match="infinite"):
        stream.push([float("inf")])
    with pytest.raises(DataError, match="infinite"):
        stream.push([[0.5], [1e300]])
    with pytest.raises(ShapeError, match="1 channels"):
        stream.push([0.5, 0.5])
    stream.push([0.5])
    assert stream.steps == 2


STREAMING = [
    name
    for name in models
    if isinstance(member := models[name], type)
    and issubclass(member, (Recurrent, TimestampedNetwork, StreamingModel))
]


def subject_with(name):
    """Return a small model of a name with a preparation."""
    torch.manual_seed(0)
    prepared = Preparation(
        kind="regression", raw_channels=["a", "b"], channels=["a", "b"], mean=[0, 1], std=[1, 2]
    )
    alone = issubclass(models[name], StreamingModel)
    options = {} if alone else {"hidden_size": 4, "readout": "mean"}
    model = model_for(TaskShape(2, 1, answer="number"), name, options)
    return Subject(model.eval(), prepared)


@pytest.mark.parametrize("name", STREAMING)
def test_a_stream_that_was_saved_goes_on_with_the_same_bits(name, tmp_path):
    subject = subject_with(name)
    samples = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    samples[4, 1] = np.nan
    whole, first, second = LiveModel(subject), LiveModel(subject), LiveModel(subject)
    first.push(samples[:5])
    first.save_state(tmp_path / "state")
    second.load_state(tmp_path / "state")
    for sample in samples:
        whole.push(sample)
    assert torch.equal(second.outputs(), first.outputs())
    second.push(samples[5:])
    assert second.steps == 12 and torch.equal(second.outputs(), whole.outputs())
    assert set(second.state_dict()) == set(whole.state_dict())
    assert second.state_dict()["checksum"] == whole.state_dict()["checksum"]


def test_stamps_gaps_and_times_ahead_are_saved():
    for subject in (
        live("mean", missing="mask", timestamps=True),
        live(kind="forecast", horizon=2, forecast=["b"], timestamps=True, missing="mask"),
    ):
        random = np.random.default_rng(0)
        samples = random.normal(size=(9, 3)).astype(np.float32)
        samples[random.random(samples.shape) < 0.3] = np.nan
        times = np.cumsum(random.uniform(0.1, 1.0, 9))
        whole, first, second = (LiveModel(subject) for _ in range(3))
        whole.push(samples, times)
        first.push(samples[:4], times[:4])
        second.load_state_dict(first.state_dict())
        second.push(samples[4:], times[4:])
        assert torch.equal(second.outputs(), whole.outputs())
        with pytest.raises(DataError, match="later than the previous one"):
            second.push(samples[0], times[0])


def test_states_of_others_and_damaged_ones_are_refused(tmp_path):
    subject = live()
    stream = LiveModel(subject)
    stream.push([1.0, 2.0, 3.0])
    state, before = stream.state_dict(), stream.outputs()
    torch.manual_seed(1)
    model = subject.model
    other = SequenceModel("unicornn", 2, 1, hidden_size=5).eval()
    with pytest.raises(DataError, match="another model"):
        LiveModel(Subject(other, subject.preparation)).load_state_dict(state)
    for change in (
        {"steps": 2},
        {"stream.0": state["stream.0"] + 1},
        {"checksum": "0"},
        {"version": 7},
    ):
        with pytest.raises(DataError, match="stream state"):
            stream.load_state_dict({**state, **change})
    assert stream.steps == 1 and torch.equal(stream.outputs(), before)
    assert model is stream.subject.model
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"nothing")
    with pytest.raises(UndampedError, match="damaged"):
        stream.load_state(damaged)


@pytest.fixture(scope="module")
def bank_run(tmp_path_factory):
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.tasks.series import SeriesTask

    series, classes = bumps(40, 0, steps=32)
    task = SeriesTask(SeriesSet.of(list(series[:, :, None]), targets=list(classes)))
    out = tmp_path_factory.mktemp("runs")
    return fit("bank", task, model_options={"oscillators": 20}, out=out, progress=False)


def test_the_command_goes_on_from_a_state(bank_run, tmp_path):
    lines = [f"{value!r}\n" for value in bumps(1, 5, steps=700)[0][0].tolist()]
    code, out, message = invoke(bank_run.path, "".join(lines), "--json", "--every", "100")
    assert code == 0, message
    state, parts = tmp_path / "state", []
    for part in (lines[:250], lines[250:]):
        words = ("--json", "--every", "100", "--state", str(state))
        code, said, message = invoke(bank_run.path, "".join(part), *words)
        assert code == 0, message
        parts += said.splitlines()
    parts.pop(2)  # the answer after the last sample of the first part
    assert parts == out.splitlines() and len(parts) == 7
    # A line that ends the stream keeps what came before it.
    code, _, message = invoke(bank_run.path, "1\n2\nx\n", "--state", str(tmp_path / "new"))
    assert code == 2 and message.startswith("line 3")
    assert (
        '"step": 3' in invoke(bank_run.path, "3\n", "--json", "--state", str(tmp_path / "new"))[1]
    )
    code, _, message = invoke(bank_run.path, "1\n", "--state", str(tmp_path))
    assert code == 2 and "a folder" in message


def test_a_bad_line_in_a_block_is_named(bank_run):
    text = "1\n2\ninf\n3\n4,5\n6\n"
    code, out, message = invoke(bank_run.path, text, "--json", "--every", "4")
    assert code == 2 and message.startswith("line 3: ") and "infinite" in message and not out
    code, out, message = invoke(bank_run.path, text, "--json", "--every", "2", "--skip")
    assert code == 0 and "line 3: " in message and "line 5: " in message
    assert out == invoke(bank_run.path, "1\n2\n3\n6\n", "--json", "--every", "2")[1]
