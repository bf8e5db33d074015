"""Diagnosis, remedies, the page as text, runs, and the live page."""

import json
import math
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
import torch
from member_groups import OF_VECTORS
from torch import nn

import undamped
from undamped._base.errors import OptionError, RunError, UndampedError
from undamped._base.options import options_of
from undamped._base.registry import instruments, models
from undamped.analysis.gradient_flow import summarise
from undamped.lab import report
from undamped.lab.cli.progress import stages
from undamped.lab.cli.verbs.diagnose import page_target
from undamped.lab.cli.verbs.report import write_page
from undamped.lab.report import ModelReport, Remedy, Score
from undamped.lab.report.diagnose import _OutOfTimeError, _time_limit, examine, probe_of
from undamped.lab.report.model_report import in_order
from undamped.lab.report.page import embedded, headline
from undamped.lab.report.remedies import Commands, remedies
from undamped.lab.report.watch import Watch
from undamped.lab.training.run import Run


@pytest.fixture(autouse=True)
def loops_of_pytorch():
    """Instruments see the same numbers either way, and nobody waits for a compiler."""
    with undamped.plain_loops():
        yield


def flow(norms, name="model"):
    norms = np.asarray(norms, dtype=float)
    return summarise(norms[None, :, None], np.arange(len(norms)), 0.01, "states", name)


def big_report(index):
    rng = np.random.default_rng(index)
    steps = np.arange(1000)
    return ModelReport(
        name=f"run {index}",
        verdict="gradients reach 1000 of 1000 steps",
        results={"gradient_flow": flow(np.exp(-0.01 * index * (999 - steps)))},
        curve=[
            {"step": int(s), "train_loss": rng.random(), "valid_loss": rng.random(),
             "valid_accuracy": rng.random()}
            for s in steps
        ],
        options={"model": {"name": "unicornn", "options": {"dt": 0.1}}},
    )  # fmt: skip


class UserClass(nn.Module):
    """Neither a state nor an input_size."""

    def __init__(self):
        super().__init__()
        self.mix = nn.Conv1d(4, 4, 3, padding=2)

    def forward(self, x):
        return self.mix(x.permute(1, 2, 0))[..., : len(x)].permute(2, 0, 1)


@pytest.mark.parametrize(
    ("model", "through"),
    [
        (nn.LSTM(4, 6), "states"),
        (nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 1, enable_nested_tensor=False),
         "inputs"),
        (UserClass(), "inputs"),
        (undamped.models.SequenceModel("gru", 4, 2, hidden_size=5), "states"),
    ],
    ids=["lstm", "transformer", "user", "model"],
)  # fmt: skip
def test_diagnose_reads_anything(model, through):
    torch.manual_seed(0)
    result = report.diagnose(model, torch.randn(60, 3, 4), name="it")
    assert result.results["gradient_flow"].through == through
    assert "60 steps" in result.verdict
    assert "<h2" in report.page([result])


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in models if hasattr(models[name], "cell_class")])
def test_diagnose_every_registered_recurrent_model(name):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=2, hidden_size=8)
    result = report.diagnose(net, torch.randn(60, 2, 2), compare=False)
    assert result.name == name
    assert result.results["gradient_flow"].through == "states"
    assert np.isfinite(result.results["gradient_flow"].norms).all()
    assert result.results["gradient_flow"].norms[-1] > 0
    json.dumps(result.results["gradient_flow"].to_dict(), allow_nan=False)
    assert result.results["gradient_flow"].plot().data
    assert "spectrum" in result.results
    promised = net.cell_class.promises
    assert ("promises" in result.results) == bool(promised)
    assert not promised or len(result.results["promises"].measurements) == len(promised)
    assert result.results["cost"].parameters == sum(
        p.numel() for p in net.parameters() if p.requires_grad
    )
    assert "recall" in result.results


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_VECTORS)
def test_diagnose_every_registered_model_of_continuous_depth(name):
    torch.manual_seed(0)
    # A density answers with points and their densities; its points are followed.
    answer = {"output_size": 3} if "output_size" in options_of(models[name]) else {}
    # Pictures are square; four by four pixels are enough.
    features = 16 if "colours" in options_of(models[name]) else 2
    known = options_of(models[name])
    steps = known.get("step_size")  # fixed steps have no tolerance
    small = {"hidden_size": 6} | ({"tolerance": 1e-2} if not (steps and steps.default) else {})
    small = {key: value for key, value in small.items() if key in known}
    model = models.build(name, input_size=features, **answer, **small)
    x = torch.randn(5, features)
    before = model(x) if answer else model(x).base
    result = report.diagnose(model, x)
    assert result.results["gradient_flow"].length > 5
    assert (result.results["gradient_flow"].norms > 0).all()
    assert "points in depth" in result.verdict
    torch.testing.assert_close(model(x) if answer else model(x).base, before)
    page = report.page([result])
    assert "<h2" in page
    assert ("ode_gradients" in result.results) == (name not in ("resnet", "stable-residual"))
    assert ("Four gradient methods, in numbers" in page) == ("ode_gradients" in result.results)


def test_verdict_names_an_lstm_of_the_same_size():
    torch.manual_seed(0)
    result = report.diagnose(undamped.nn.UnICORNN(2, 8), 200)
    assert result.verdict.startswith(
        "gradients reach 200 of 200 steps; an LSTM of this size reaches"
    )
    assert result.tone == "good"


def test_needs_inputs_where_no_size_is_known():
    with pytest.raises(OptionError, match="Give inputs"):
        report.diagnose(UserClass())


def test_remedies_name_the_change_and_its_command():
    vanishing, exploding = flow(0.5 ** np.arange(100)[::-1]), flow(1.5 ** np.arange(100)[::-1])
    steady = flow(np.ones(1000))
    plain = Commands("undamped diagnose", "unicornn")
    small = remedies(undamped.nn.UnICORNN(1, 4, dt=0.0005), steady, model="unicornn")
    assert "Δt is too small for 1000 steps" in small[0].advice
    assert plain.apply(small[0]).startswith("undamped diagnose unicornn model.dt=")
    large = remedies(undamped.nn.UnICORNN(1, 4, dt=1.0, alpha=100.0), steady, model="unicornn")
    assert "Δt is too large" in large[0].advice
    for module, name in ((nn.LSTM(1, 4), ""), (undamped.nn.RNN(1, 4), "rnn")):
        result = remedies(module, vanishing, model=name)
        assert any(r.model == "unicornn" for r in result)
        assert any("within 7 steps" in r.advice for r in result)
    clip = remedies(nn.RNN(1, 4), exploding, model="rnn")
    training = Commands("undamped train copy", "rnn")
    assert any(training.apply(r) == "undamped train copy rnn train.clip=1" for r in clip)
    assert not plain.apply(clip[0])
    assert not remedies(nn.LSTM(1, 4), steady)
    given = ["task.delay=5", "model.hidden_size=4", "model.forget_bias=2", "model.dt=0.0005"]
    other = remedies(nn.LSTM(1, 4), vanishing, model="lstm")[0]
    command = Commands("undamped diagnose", "lstm", given[:3]).apply(other)
    assert command == "undamped diagnose unicornn task.delay=5 model.hidden_size=4"
    command = Commands("undamped diagnose", "unicornn", given).apply(small[0])
    assert command.startswith("undamped diagnose unicornn task.delay=5 model.hidden_size=4")
    assert command.count("model.dt=") == 1 and "0.0005" not in command


@pytest.mark.parametrize(
    ("name", "vanish", "explode"),
    [
        ("lstm", ["unicornn"], ["unicornn"]),
        ("rnn", ["unicornn", "rnn-orth"], ["unicornn"]),
        ("irnn", ["unicornn", "rnn-orth"], []),
        ("rnn-orth", ["unicornn"], []),
        ("exprnn", ["unicornn"], []),
        ("residual-unicornn", [], []),
    ],
)
def test_cells_that_remember_advise_themselves_to_their_family(name, vanish, explode):
    net = undamped.build(name, input_size=1, hidden_size=4)
    curves = {
        "vanish": flow(0.5 ** np.arange(100)[::-1]),
        "explode": flow(1.5 ** np.arange(100)[::-1]),
    }
    for kind, expected in (("vanish", vanish), ("explode", explode)):
        result = remedies(net, curves[kind], model=name)
        assert [r.model for r in result if r.model] == expected


def test_suggested_step_heals_the_complaint():
    steady = flow(np.ones(1000))
    for dt, alpha in ((0.0005, 1.0), (1.0, 100.0)):
        net = undamped.nn.UnICORNN(1, 4, dt=dt, alpha=alpha)
        (result,) = remedies(net, steady, model="unicornn")
        better = float(result.setting.rpartition("=")[2])
        assert not remedies(undamped.nn.UnICORNN(1, 4, dt=better, alpha=alpha), steady)


def test_headline_puts_the_farthest_first_and_explosions_last():
    far = ModelReport("far", "x", results={"gradient_flow": flow(np.ones(100))})
    near = ModelReport("near", "y", results={"gradient_flow": flow(0.5 ** np.arange(100)[::-1])})
    wild = ModelReport("wild", "z", results={"gradient_flow": flow(2.0 ** np.arange(100)[::-1])})
    assert headline([wild, near, far]) == (
        "far: gradients reach 100 of 100 steps; near reaches 7; wild explodes."
    )


class Collector(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.outside = [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.outside += [v for k, v in attributes if k in ("src", "href") and v[0] != "#"]


def test_nothing_in_a_name_becomes_markup():
    nasty = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    result = replace(
        big_report(0),
        name=nasty,
        verdict=nasty,
        remedies=[Remedy(nasty, command=nasty)],
        command=nasty,
        path=nasty,
        options={nasty: nasty},
        versions={nasty: nasty},
        score=Score(nasty, 0.5),
    )
    text = report.page([result], title=nasty)
    parsed = Collector()
    head, _, rest = text.partition('<script type="application/json" id="data">')
    data, _, program = rest.partition("</script>")
    parsed.feed(head)
    assert "script" not in parsed.tags
    assert "img" not in parsed.tags
    assert parsed.outside == []
    assert "<" not in data
    assert json.loads(data)["plots"][0]["traces"][0]["name"].startswith("&lt;/script&gt;")
    assert program.count("<script>") >= 2
    assert nasty not in text


def test_json_in_a_script_stays_there():
    assert "<" not in embedded({"a": "</script>"})
    assert json.loads(embedded({"a": "<\u2028>"})) == {"a": "<\u2028>"}


def test_ten_runs_of_a_thousand_points_fit_in_a_megabyte(tmp_path):
    path = report.write(tmp_path / "deep" / "page.html", [big_report(i) for i in range(10)])
    assert path.stat().st_size < 1_000_000
    assert [p.name for p in path.parent.iterdir()] == ["page.html"]


def test_same_names_are_told_apart_and_nothing_is_refused():
    text = report.page([big_report(1), big_report(1)])
    assert "run 1 (2)" in text
    with pytest.raises(OptionError, match="at least one"):
        report.page([])
    assert "Nothing was measured" in report.page([ModelReport("bare")])


@pytest.fixture
def run(tmp_path):
    made = Run.create(tmp_path, "adding-lstm")
    options = {"hidden_size": 6}
    made.update(
        status="finished",
        command="undamped train adding lstm",
        seed=0,
        task={"name": "adding", "options": {"length": 30, "seed": 0}},
        model={"name": "lstm", "options": options, "parameters": 10},
        train={"steps": 2},
        versions={"torch": "2"},
        result={"test": {"mse": 0.2, "loss": 0.2}},
    )
    row = {"train_loss": 1.0, "valid_loss": 0.5, "valid_mse": 0.5}
    made.write_metrics([{"step": step, **row} for step in (1, 2)])
    torch.manual_seed(0)
    made.save_model(made.empty_model())
    return made


def test_a_run_becomes_a_report(run):
    from undamped.lab.report.runs import report_run

    result = report_run(run.path, compare=False)
    assert result.score.value == 0.2
    assert result.score.chance == pytest.approx(1 / 6, abs=0.01)
    assert result.curve[0]["valid_loss"] == 0.5
    assert result.command == "undamped train adding lstm"
    assert result.results["gradient_flow"].length == 30
    text = report.page([result])
    assert "undamped train adding lstm" in text
    assert "Training: loss" in text
    (run.path / "model.safetensors").unlink()
    assert report_run(run, compare=False).verdict.startswith("not trained yet")


def test_the_score_beside_the_baseline_is_the_verdict_and_health_a_note():
    from undamped.lab.report.runs import _judged_by_score

    exploding = flow(2.0 ** np.arange(100)[::-1])
    measured = ModelReport(
        "it",
        "gradients explode: over 100 steps they outgrow every bound",
        "bad",
        results={"gradient_flow": exploding},
    )
    good = _judged_by_score(measured, Score("accuracy", 0.875, 0.375), "")
    assert good.verdict == "test accuracy 87.5 %, naive baseline 37.5 %" and good.tone == "good"
    assert [(note.text, note.tone) for note in good.notes] == [(measured.verdict, "neutral")]
    assert headline([good]) == "it: test accuracy 87.5 %, naive baseline 37.5 %."
    text = report.page([good])
    assert text.index("87.5 %") < text.index("Gradients explode: over 100 steps")
    poor = _judged_by_score(measured, Score("mse", 0.3, 0.2, higher_is_better=False), "")
    assert (
        poor.verdict == "test mse 0.3, no better than the naive baseline 0.2" and poor.tone == "bad"
    )
    other = replace(good, name="other", score=Score("accuracy", 0.9, 0.375))
    assert (
        headline([good, other]) == "other: test accuracy 90.0 %; it 87.5 %; naive baseline 37.5 %."
    )
    assert good.to_dict()["notes"] == [measured.verdict]


def trained_settings(best, steps, **train):
    return {
        "task": {"name": "adding", "options": {"length": 30}},
        "model": {"name": "unicornn", "options": {"dt": 0.53}},
        "train": train,
        "result": {"best_step": best, "steps": steps},
    }


def curve_of(losses, every=10):
    return [{"step": every * (i + 1), "train_loss": loss} for i, loss in enumerate(losses)]


def test_overfitting_is_said_with_what_stops_it():
    from undamped.lab.report.runs import _judged_by_score, _overfitting

    falling = curve_of(0.5 ** np.arange(20))
    result = _overfitting(trained_settings(20, 200), falling)
    assert "validation was best at step 20 of 200" in result
    judged = _judged_by_score(ModelReport("it"), Score("mse", 0.1, 0.2, False), result)
    assert judged.notes[0].text == result
    commands = Commands("undamped train adding", "unicornn", ["task.length=30"])
    (remedy,) = commands.add_to(judged).remedies
    assert remedy.command == "undamped train adding unicornn task.length=30 train.patience=10"
    assert "train.patience" in remedy.advice
    assert not _overfitting(trained_settings(150, 200), falling)  # best near the end
    assert not _overfitting(trained_settings(20, 200), curve_of(np.ones(20)))  # it only stalls
    assert not _overfitting(trained_settings(20, 200, patience=50), falling)
    assert not _overfitting(trained_settings(0, 1), [])


def test_advice_that_is_taken_already_is_not_given():
    from undamped.lab.report.runs import _applied

    exploding = flow(2.0 ** np.arange(100)[::-1])
    task = undamped.lab.tasks.build("adding", length=30)
    assert _applied(trained_settings(1, 1), task) == set()
    assert _applied(trained_settings(1, 1, clip=1.0), task) == {"train.clip"}

    class Suggesting(type(task)):
        def suggest(self, model):
            return {"model": {"dt": 0.53}}

    assert _applied(trained_settings(1, 1), Suggesting(length=30)) == {"model.dt"}
    advice = remedies(undamped.nn.UnICORNN(1, 4, dt=0.5), exploding, model="unicornn")
    settings = {remedy.setting.partition("=")[0] for remedy in advice}
    assert {"train.clip", "model.dt"} <= settings
    commands = Commands("undamped train adding", "unicornn")
    judged = ModelReport("it", remedies=advice)
    assert not commands.add_to(judged, {"train.clip", "model.dt"}).remedies


def test_promises_that_were_not_measured_are_not_denied():
    model = undamped.models.HNN(1)
    x = torch.randn(4, 2)
    result = report.diagnose(model, x, measured=["cost"])
    assert result.verdict == "promises were not measured in this call"
    assert report.diagnose(model, x, measured=["promises"]).verdict.startswith("promises hold: ")


def test_selected_instruments_do_not_replace_the_page_of_a_run(run):
    from typer.testing import CliRunner

    from undamped.lab.cli import app

    page = run.path / "report.html"
    for verb in ("diagnose", "report"):
        page.write_text("all of it")
        done = CliRunner().invoke(app, [verb, str(run.path), "--instrument", "gradient_flow"])
        assert done.exit_code == 0, done.output
        assert page.read_text() == "all of it"
        assert "gradient" in (run.path / "diagnosis.html").read_text()
        (run.path / "diagnosis.html").unlink()


@pytest.mark.slow
def test_command_line_writes_pages(run, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from undamped.lab.cli import app

    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    done = runner.invoke(app, ["report", str(run.path), str(run.path), "--out", "both.html"])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "both.html").is_file()
    words = ["diagnose", "unicornn", "task.delay=15", "model.hidden_size=6", "--no-memory"]
    done = runner.invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    assert done.stderr.startswith("Measuring\n")
    shown = json.loads(done.stdout)["models"][0]
    assert shown["retention"]["kind"] == "accuracy"
    assert shown["attention"] is None and "no attention" in shown["left_out"]["attention"]
    answer = json.loads(done.stdout)
    assert answer["models"][0]["gradient_flow"]["verdict"] == "steady"
    assert len(answer["models"][0]["gradient_flow"]["norms"]) == 35
    assert (tmp_path / "diagnosis.html").is_file()
    done = runner.invoke(app, ["diagnose", "lstm", "--steps", "50", "--no-memory"])
    assert "gradients vanish" in done.output
    done = runner.invoke(app, ["diagnose", str(run.path), "--no-memory"])
    assert (run.path / "report.html").is_file()
    done = runner.invoke(app, ["diagnose", "lstm", "gru"])
    assert isinstance(done.exception, OptionError)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["hbnode", "resnet"])
def test_training_on_points_ends_in_a_page_too(model, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from undamped.lab.cli import app

    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["train", "annuli", model, "train.steps=2"])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "runs" / f"annuli-{model}-1" / "report.html").read_text(encoding="utf-8")
    assert "points in depth" in page
    done = CliRunner().invoke(app, ["diagnose", f"runs/annuli-{model}-1"])
    row = re.search(r"adjoint +dopri5 +\S*e-\d", done.output)
    assert (row is not None) == (model == "hbnode")
    done = CliRunner().invoke(app, ["diagnose", f"runs/annuli-{model}-1", "--json"])
    ways = json.loads(done.stdout)["models"][0]["ode_gradients"]
    assert (ways is None) == (model == "resnet")
    assert ways is None or ways["ways"]["adjoint"]["error"] < 0.1


def fetch(url, host=None):
    request = urllib.request.Request(url, headers={"Host": host} if host else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return answer.read().decode()


def test_watch_serves_the_curves_and_stops_cleanly(run):
    before = threading.active_count()
    with Watch(run.path) as watch:
        state = json.loads(fetch(watch.url + "state.json"))
        assert state["status"] == "finished"
        assert state["title"] == "lstm on adding"
        assert state["rows"][0]["valid_loss"] == 0.5
        assert "live.js" in fetch(watch.url)
        assert "fetch" in fetch(watch.url + "live.js")
        with pytest.raises(urllib.error.HTTPError):
            fetch(watch.url + "../run.json")
        with pytest.raises(urllib.error.HTTPError):  # a name that another site points here
            fetch(watch.url, host="evil.example:80")
        port = int(watch.url.rsplit(":", 1)[1].strip("/"))
        with pytest.raises(RunError, match="free port"):
            Watch(run.path, port=port)
    watch.stop()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    deadline = time.monotonic() + 5
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_watch_waits_for_a_run_that_has_not_begun(tmp_path):
    with Watch(tmp_path) as watch:
        assert watch.state()["status"] == "waiting"
    with pytest.raises(RunError, match="run folder"):
        Watch(tmp_path / "nowhere")


def test_training_writes_its_page_and_serves_a_live_one(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from undamped.lab.cli import app

    monkeypatch.chdir(tmp_path)
    words = ["train", "copy", "lstm", "task.delay=5", "model.hidden_size=4", "train.steps=2"]
    done = CliRunner().invoke(app, [*words, "--watch"])
    assert done.exit_code == 0, done.output
    page = tmp_path / "runs" / "copy-lstm-1" / "report.html"
    assert "undamped" in page.read_text(encoding="utf-8")
    assert "Live page: http://127.0.0.1:" in done.stderr
    port = int(done.stderr.partition("127.0.0.1:")[2].partition("/")[0])
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    done = CliRunner().invoke(app, [*words, "--no-page"])
    assert not (tmp_path / "runs" / "copy-lstm-2" / "report.html").exists()


@pytest.fixture
def make_slow(monkeypatch):
    """Instruments take a minute from the call of this function on."""

    def replace_measurements():
        for name in ("gradient_flow", "cost"):
            monkeypatch.setattr(instruments[name], "measure", lambda probe: time.sleep(60))

    return replace_measurements


def test_measurements_end_with_their_time(make_slow):
    probe = probe_of(undamped.nn.GRU(2, 4), torch.randn(20, 3, 2))
    full = examine(probe, seconds=600)
    make_slow()
    late = examine(probe, seconds=0)
    assert not full.pending and "gradient_flow" in full.results
    # Instruments that do not apply are known without a measurement.
    assert set(late.pending) | set(late.results) == set(full.results)
    assert {"gradient_flow", "cost"} <= set(late.pending)
    assert list(full.results) == in_order([full]), "the cheap ones come first only in time"


def test_a_time_limit_ends_a_loop_and_leaves_no_alarm():
    handler = signal.getsignal(signal.SIGALRM)
    with pytest.raises(_OutOfTimeError), _time_limit(0.02):
        while True:
            pass
    with _time_limit(60):
        pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is handler
    finished = []

    def elsewhere():  # only the main thread gets signals
        with _time_limit(0.01):
            time.sleep(0.05)
            finished.append("in time")
        with pytest.raises(_OutOfTimeError), _time_limit(-1):
            finished.append("late")

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert finished == ["in time"]


def test_a_page_names_what_was_not_measured(run, make_slow):
    complete = write_page([run], math.inf).read_text(encoding="utf-8")
    assert "not measured yet" not in complete
    make_slow()
    page = write_page([run, run], 0.0).read_text(encoding="utf-8")
    assert page.count("not measured yet: ") == 2
    assert f"<code>undamped diagnose {run.path}</code>" in page


def test_a_page_does_not_replace_one_that_has_more(run):
    result = {"gradient_flow": flow([1.0, 2.0])}
    small, large = ModelReport("a"), ModelReport("a", results=result)
    page, beside = run.path / "report.html", run.path / "diagnosis.html"
    assert page_target(run.path, [small], None) == page, "there is none"
    assert page_target(run.path, [large], ["gradient_flow"]) == beside
    report.write(page, [large, large])
    assert page_target(run.path, [large], None) == beside, "the second model would be lost"
    assert page_target(run.path, [large, small], None) == beside, "a result would be lost"
    assert page_target(run.path, [large, large, small], None) == page
    page.write_text("by hand", encoding="utf-8")
    assert page_target(run.path, [small], None) == page


def test_stages_in_a_pipe_are_lines_for_long_ones(capsys):
    with stages("Title", delay=0.4) as stage:
        for index in range(20):
            stage(f"short {index}")
        stage("long")
        time.sleep(1.0)
    with stages("Next", delay=0.4) as stage:
        stage("last")
    time.sleep(0.6)
    assert capsys.readouterr().err.splitlines() == ["Title", "Title: long", "Next"]


def test_command_line_draws_the_curves_of_runs_of_one_task(run, tmp_path):
    from typer.testing import CliRunner

    from undamped._base.errors import OptionError
    from undamped.lab.cli import app

    run.write_metrics([{"step": n, "seconds": float(n), "valid_mse": 1 / n} for n in (1, 2, 3)])
    picture = tmp_path / "curves.png"
    words = ["report", str(run.path), str(run.path), "--figure", str(picture)]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert not (run.path / "report.html").exists()
    output = CliRunner().invoke(app, [*words, "--json"]).stdout
    assert json.loads(output) == {"figure": str(picture)}
    other = Run.create(tmp_path, "copy-lstm")
    other.update(**{**run.settings, "task": {"name": "copy", "options": {}}})
    words = ["report", str(run.path), str(other.path), "--figure", str(picture)]
    assert isinstance(CliRunner().invoke(app, words).exception, OptionError)


def test_command_line_draws_what_one_instrument_finds(run, tmp_path):
    from typer.testing import CliRunner

    from undamped.lab.cli import app

    picture = tmp_path / "retention.svg"
    words = ["report", str(run.path), str(run.path), "--figure", str(picture), "--instrument"]
    done = CliRunner().invoke(app, [*words, "retention"])
    assert done.exit_code == 0, done.output
    assert "read from the state" in picture.read_text(encoding="utf-8")
    assert not (run.path / "report.html").exists()
    for wrong in (["attention"], ["retention", "--instrument", "cost"], ["retentoin"]):
        failed = CliRunner().invoke(app, [*words, *wrong]).exception
        assert isinstance(failed, UndampedError)
    assert "retention" in str(failed)  # the nearest name
