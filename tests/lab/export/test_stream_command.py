"""`undamped stream`: what comes out of the pipe is what `predict` would say."""

import json
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from undamped._base.errors import OptionError, UndampedError
from undamped.lab import cli
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.data.recordings.prepared import batch_of
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.export import Subject
from undamped.lab.export.live import LiveModel, SampleLines
from undamped.lab.files import read_json, write_json
from undamped.lab.training.prediction import predict_series
from undamped.lab.training.run import Run
from undamped.models.sequence_model import SequenceModel


def invoke(run, text, *words):
    """Feed a text to the stream; return exit code, output and messages."""
    result = CliRunner().invoke(cli.app, ["stream", str(run), *words], input=text)
    if isinstance(result.exception, UndampedError):
        return 2, result.stdout, str(result.exception)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def answers(run, text, *words):
    code, out, message = invoke(run, text, "--json", *words)
    assert code == 0, message
    return [json.loads(line) for line in out.splitlines()]


def csv(samples):
    return "".join(",".join(repr(float(v)) for v in row) + "\n" for row in samples)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of each kind of input, and one that stands for recordings."""
    folder = tmp_path_factory.mktemp("runs")
    tiny = ["model.hidden_size=6", "train.steps=2", "train.batch_size=4", "--out", str(folder)]
    for words in (
        ["adding", "gru", "task.length=12"],
        ["digits", "unicornn", "task.length=12"],
        ["characters", "lstm"],
        ["digits", "unicornn", "task.length=12", "model.bidirectional=true"],
    ):
        result = CliRunner().invoke(cli.app, ["train", *words, *tiny])
        assert result.exit_code == 0, result.output
    preparation = Preparation(
        kind="classification",
        raw_channels=list("abcdefgh"),
        channels=list("abcdefgh"),
        mean=[0.5] * 8,
        std=[2.0] * 8,
        classes=[f"digit {i}" for i in range(10)],
    )
    recordings = folder / "recordings"
    (folder / "digits-unicornn-1").rename(recordings)
    settings = read_json(recordings / "run.json")
    write_json(recordings / "run.json", {**settings, "preparation": preparation.to_dict()})
    return folder


@pytest.mark.process
def test_numbers(runs):
    """Line by line the answer so far, to rounding that of the sequence so far."""
    run = runs / "adding-gru-1"
    samples = np.random.default_rng(0).random((30, 2)).astype(np.float32)
    model = Run.open(run).model()
    found = answers(run, csv(samples))
    for t, row in enumerate(found):
        assert row["step"] == t + 1
        with torch.no_grad():
            wanted = float(model(torch.from_numpy(samples[: t + 1]).unsqueeze(1)))
        assert row["answer"] == pytest.approx(wanted, abs=1e-6)
    assert [row["step"] for row in answers(run, csv(samples), "--every", "13")] == [13, 26, 30]
    assert invoke(run, "0.5,1\n\n")[1] == f"{answers(run, '[0.5, 1]')[0]['answer']:.7g}\n"


@pytest.mark.slow
def test_recordings_exactly(runs):
    run = Run.open(runs / "recordings")
    samples = np.random.default_rng(0).normal(size=(25, 8)).astype(np.float32)
    (row,) = answers(run.path, csv(samples), "--every", "1000")
    prepared = run.preparation()
    with torch.no_grad():
        outputs = run.model()(torch.from_numpy(prepared.transform(samples)).unsqueeze(1))
    assert row == {"step": 25, **prepared.answer(outputs.numpy())[0]}
    words = invoke(run.path, csv(samples), "--every", "1000")[1]
    assert words == f"{row['label']} {max(row['probabilities'].values()):.3f}\n"


def test_columns_by_name_and_gaps(runs):
    run = Run.open(runs / "recordings")
    samples = np.random.default_rng(1).normal(size=(5, 8)).astype(np.float32)
    samples[3, 2] = np.nan
    rows = [[None if np.isnan(v) else float(v) for v in row] for row in samples]
    order = [3, 0, 1, 2, 7, 6, 5, 4]
    lines = ["note," + ",".join("abcdefgh"[i] for i in order)]
    lines += ["0," + ",".join("" if r[i] is None else repr(r[i]) for i in order) for r in rows]
    named = answers(run.path, "\n".join(lines))
    objects = [{**dict(zip("abcdefgh", row, strict=True)), "more": 0} for row in rows]
    assert answers(run.path, "\n".join(map(json.dumps, objects))) == named
    assert answers(run.path, "\n".join(map(json.dumps, rows))) == named
    prepared = run.preparation()
    causal = prepared.stream()
    features = np.stack([causal.push(row[None]).inputs[0] for row in samples])
    with torch.no_grad():
        outputs = run.model()(torch.from_numpy(features).unsqueeze(1))
    assert named[-1] == {"step": 5, **prepared.answer(outputs.numpy())[0]}


def test_text(runs):
    run = runs / "characters-lstm-1"
    found = answers(run, "hel\nlo\n")
    assert len(found) == 5 and set(found[0]["probabilities"]) == set("ehlo")
    opened = Run.open(run)
    scores = opened.model()(opened.task().encode("hello").unsqueeze(1))[:, 0]
    for row, score in zip(found, scores, strict=True):
        wanted = torch.softmax(score, -1).tolist()
        assert list(row["probabilities"].values()) == pytest.approx(wanted, abs=1e-6)
    code, out, message = invoke(run, "he\nhx\n")
    assert code == 2 and len(out.splitlines()) == 2
    assert message.startswith("line 2: ") and "'x'" in message


@pytest.mark.process
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("1,2,3", "got 3"),
        ("1,x", "'x'"),
        ("1,", "missing"),
        ("1,inf", "infinite"),
        ("[1, 2", "JSON"),
        ('{"a": 1}', "no names"),
        ("[1, true]", "'True'"),
        ("[1, [2]]", "'[2]'"),
        ("[" * 5000, "JSON"),
        ("1," + "0" * (1 << 21), "bytes"),
        ("\udcff", "UTF-8"),
    ],
)
def test_bad_lines(runs, line, said):
    run = runs / "adding-gru-1"
    text = f"0.1,0\n{line}\n0.2,1\n".encode(errors="surrogateescape")
    code, out, message = invoke(run, text)
    assert code == 2 and len(out.splitlines()) == 1
    assert message.startswith("line 2: ") and said in message and "\n" not in message
    code, out, message = invoke(run, text, "--skip")
    assert code == 0 and out == invoke(run, "0.1,0\n0.2,1\n")[1]
    assert message.startswith("line 2: ") and message.count("\n") == 1


def test_recordings_say_what_is_wrong(runs):
    run = runs / "recordings"
    for text, said in (
        ("a,b,c\n", "'d'"),
        ('{"a": 1}', "'b'"),
        (",".join("abcdefgh") + "\n1,2\n", "8 columns"),
        ("1,2,3,4,5,6,7,inf\n", "infinite"),
    ):
        code, out, message = invoke(run, text)
        assert (code, out) == (2, "") and said in message and message.startswith("line ")


def test_two_directions_are_refused(runs):
    code, _, message = invoke(runs / "digits-unicornn-2", csv(np.zeros((2, 8))))
    assert code == 2 and "bidirectional" in message


def live(readout="last", name="unicornn", **changes):
    torch.manual_seed(0)
    chosen = {
        "kind": "regression",
        "raw_channels": ["a", "constant", "b"],
        "channels": ["a", "b"],
        "mean": [1.0, 2.0],
        "std": [3.0, 4.0],
        "target_mean": [100.0],
        "target_std": [10.0],
        **changes,
    }
    prepared = Preparation(**chosen)
    model = SequenceModel(
        name,
        prepared.input_size,
        prepared.output_size,
        hidden_size=5,
        readout=readout,
        reads=tuple(prepared.needs | ({"target_times"} if prepared.at_times else set())),
    ).eval()
    return Subject(model, prepared)


@pytest.mark.parametrize("name", ["unicornn", "sru"])
@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_times_gaps_and_means(name, missing):
    """All at once: timestamps, missing values, a running mean, original units."""
    subject = live("mean", name, missing=missing, timestamps=True, typical_gap=0.5)
    random = np.random.default_rng(0)
    samples = random.normal(size=(12, 3)).astype(np.float32)
    if missing == "mask":
        samples[random.random(samples.shape) < 0.3] = np.nan
    times = np.cumsum(random.uniform(0.1, 1.0, 12))
    stream = LiveModel(subject)
    for row, time in zip(samples, times, strict=True):
        stream.push(row, time)
    batch = batch_of([subject.preparation.prepare(samples, times)])
    wanted = subject.preparation.answer(subject.model(batch).detach().numpy())[0]
    assert stream.answer()["value"] == pytest.approx(wanted["value"], rel=1e-6)


def test_a_stream_forecasts_by_time():
    subject = live(
        kind="forecast",
        horizon=2,
        forecast=["b"],
        timestamps=True,
        missing="mask",
        typical_gap=0.5,
    )
    samples = np.array([[1.0, 0, np.nan], [2.0, 0, 7.0]], dtype=np.float32)
    times = np.array([3.0, 4.0])
    stream = LiveModel(subject)
    for row, time in zip(samples, times, strict=True):
        stream.push(row, time)
    series_set = SeriesSet.of([samples], channels=["a", "constant", "b"], times=[times])
    (outputs,) = predict_series(subject.model, subject.preparation, series_set)
    wanted = subject.preparation.answer(outputs)[0]["forecast"]["b"]
    assert stream.answer()["forecast"]["b"] == pytest.approx(wanted, rel=1e-5)
    assert len(wanted) == 2


def test_times_are_read_as_numbers_or_dates():
    subject = live(timestamps=True)
    assert SampleLines(subject).read("7,1,2,3") == [([1.0, 2.0, 3.0], 7.0)]
    lines = SampleLines(subject, "when")
    assert lines.read("a,when,b") == []
    assert lines.read("1,1970-01-02,3") == [([1.0, 3.0], 86400.0)]
    assert lines.read('{"a": 1, "b": null, "when": "1970-01-01T00:01Z"}')[0][1] == 60.0
    with pytest.raises(UndampedError, match="ISO"):
        lines.read("1,,3")


def test_a_stream_without_samples():
    with pytest.raises(UndampedError, match="before its first sample"):
        LiveModel(live()).answer()
    subject = Subject(SequenceModel("gru", 3, 2, hidden_size=4, bidirectional=True))
    with pytest.raises(OptionError, match="bidirectional"):
        LiveModel(subject)


@pytest.mark.slow
def test_memory_does_not_grow():
    import tracemalloc

    stream = LiveModel(Subject(SequenceModel("unicornn", 2, 1, hidden_size=4), classes=None))
    lines = SampleLines(stream.subject)
    tracemalloc.start()
    for step in range(3000):
        for sample, time in lines.read("0.25,0.75"):
            stream.push(sample, time)
            stream.answer()
        if step == 1000:
            before = tracemalloc.get_traced_memory()[0]
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000


@pytest.mark.process
def test_each_answer_comes_at_once_and_interrupts_are_quiet(runs):
    # A suite in the background inherits that Ctrl-C is ignored; at a terminal it is not.
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from undamped.lab.cli import main; main()"
    )
    words = [sys.executable, "-c", code, "stream", str(runs / "adding-gru-1")]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        process.stdin.write(b"0.5,1\n")
        process.stdin.flush()
        assert float(process.stdout.readline())  # before the input has ended
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b""


@pytest.mark.process
def test_a_closed_input_is_told(runs):
    program = "import sys; sys.stdin = None; from undamped.lab.cli import main; main()"
    words = [sys.executable, "-c", program, "stream", str(runs / "adding-gru-1")]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("Standard input is closed")


@pytest.mark.process
def test_a_closed_pipe_is_quiet(runs, tmp_path):
    (tmp_path / "in.csv").write_text("0.5,1\n" * 5000)
    words = [sys.executable, "-m", "undamped", "stream", str(runs / "adding-gru-1")]
    pipe = subprocess.PIPE
    with (
        (tmp_path / "in.csv").open("rb") as samples,
        subprocess.Popen(words, stdin=samples, stdout=pipe, stderr=pipe) as process,
    ):
        process.stdout.readline()
        process.stdout.close()
        assert process.wait() == 0
        assert process.stderr.read() == b""
