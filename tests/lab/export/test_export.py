"""ONNX files: every network, every way to read it out, against PyTorch in onnxruntime."""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, RunError
from undamped._base.registry import models
from undamped.lab import cli
from undamped.lab.data.recordings.preparation import Preparation
from undamped.lab.export import Subject, export_onnx, onnx_file, subject_of
from undamped.lab.export.model import sequence_model, step_model
from undamped.lab.training.run import Run
from undamped.models.sequence_model import SequenceModel
from undamped.nn.recurrent import Recurrent

NETWORKS = [
    name
    for name in models
    if isinstance(models[name], type) and issubclass(models[name], Recurrent)
]
EXPORTED = [name for name in NETWORKS if not models[name].cell_class.memory_plan.state_grows]


def build(name="gru", **options):
    torch.manual_seed(3)
    chosen = {"input_size": 3, "output_size": 4, "hidden_size": 6, "num_layers": 2, **options}
    return SequenceModel(name, **chosen).eval()


def answers(session, **feeds):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def carried(found):
    return {name.removesuffix("_out"): v for name, v in found.items() if name.endswith("_out")}


def close(got, model, x, lengths=None):
    """Within 1e-5 of PyTorch, or within its own rounding where that is larger.

    A network that divides by small numbers, or is drawn with large weights, makes something of
    the last bit; how much is seen by asking PyTorch in double precision.
    """
    with torch.no_grad():
        wanted, state = model.run(Batch(x, lengths=lengths))
        double = copy.deepcopy(model).double()
        exact, exact_state = double.run(Batch(x.double(), lengths=lengths))
    pairs = [(wanted.transpose(0, 1), exact.transpose(0, 1))]
    pairs += zip(parts(state), parts(exact_state), strict=True)
    found = [got["scores"], *carried(got).values()]
    for one, (single, double) in zip(found, pairs, strict=True):
        rounding = onnx_file.difference(single.numpy(), double.numpy())
        assert onnx_file.difference(one, single.numpy()) < max(1e-5, 8 * rounding)


def parts(state):
    return (state,) if isinstance(state, Tensor) else state


@pytest.mark.parametrize("name", sorted({*NETWORKS} - {*EXPORTED}))
def test_networks_that_cannot_be_written_say_so(name):
    with pytest.raises(OptionError, match="undamped stream"):
        sequence_model(Subject(build(name)))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_every_network_answers_as_pytorch_does(name):
    """One file, several lengths and batches, padding, state in and out, single steps."""
    subject = Subject(build(name, readout="every"), classes=())
    session = onnx_file.open_session(sequence_model(subject))
    random = np.random.default_rng(1)
    for steps, batch in ((1, 1), (12, 3), (40, 2)):
        samples = random.standard_normal((batch, steps, 3)).astype(np.float32)
        lengths = random.integers(1, steps + 1, batch)
        for given in (None, lengths):
            feeds = {} if given is None else {"lengths": given}
            padded = samples.copy()
            for i, end in enumerate(() if given is None else given):
                padded[i, end:] = np.nan
            found = answers(session, samples=padded, **feeds)
            x = torch.from_numpy(samples).transpose(0, 1)
            close(found, subject.model, x, None if given is None else torch.tensor(given))
    first = answers(session, samples=samples[:, :13])
    second = answers(session, samples=samples[:, 13:], **carried(first))
    whole = answers(session, samples=samples)
    assert onnx_file.difference(second["scores"], whole["scores"][:, 13:]) < 1e-5
    stepper, state = onnx_file.open_session(step_model(subject)), {}
    for t in range(20):
        found = answers(stepper, samples=samples[:, t], **state)
        state = carried(found)
        assert onnx_file.difference(found["scores"], whole["scores"][:, t]) < 1e-5


@pytest.mark.parametrize("readout", ["last", "every", "mean"])
@pytest.mark.parametrize("name", ["unicornn", "residual-unicornn", "dense-indrnn", "eurnn", "lstm"])
def test_two_directions(name, readout):
    subject = Subject(build(name, bidirectional=True, readout=readout), classes=())
    assert onnx_file.check_sequence(sequence_model(subject), subject) < 1e-5
    with pytest.raises(OptionError, match="bidirectional"):
        step_model(subject)


@pytest.mark.parametrize("readout", ["last", "mean"])
@pytest.mark.parametrize("name", ["unicornn", "residual-indrnn", "eurnn"])
def test_readouts(name, readout):
    subject = Subject(build(name, readout=readout))
    assert onnx_file.check_sequence(sequence_model(subject), subject) < 1e-5
    assert onnx_file.check_step(step_model(subject), subject) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("rnn", {"nonlinearity": "relu"}),
        ("lstm", {"proj_size": 2}),
        ("linoss", {"block": "layer-norm", "method": "imex"}),
        ("indrnn", {"block": "batch-norm", "normalise": True}),
        ("eurnn", {"unitary": False}),
        ("eurnn", {"hidden_size": 130, "capacity": 1, "num_layers": 1}),
        ("eurnn", {"style": "fft", "hidden_size": 8}),
        ("urnn", {"hidden_size": 260, "num_layers": 1}),
        ("exprnn", {"nonlinearity": "tanh"}),
        ("ornn", {"nonlinearity": "modrelu", "reflections": 2}),
        ("unicornn", {"dt": [0.1, 0.3], "alpha": 0.0}),
        ("rellstm", {"recent": 3, "relevant": 2, "screening": "surprise", "attention": "dot"}),
        ("rellstm", {"recent": 3, "relevant": 2, "screening": "learned", "mix": "learned"}),
        ("relrnn", {"recent": 3, "relevant": 2, "screening": "share", "recurrence": "gru"}),
        ("relrnn", {"recent": 2, "relevant": 0, "mix": "sum"}),
    ],
)
def test_options_of_cells(name, options):
    subject = Subject(build(name, **options))
    assert onnx_file.check_sequence(sequence_model(subject), subject) < 1e-5
    assert onnx_file.check_step(step_model(subject), subject) < 1e-5
    structured = [getattr(cell, "structured", True) for cell in subject.network.cells]
    assert all(structured)  # the model is not changed


@pytest.mark.parametrize(
    "options",
    [
        {"input_kind": "symbols", "input_size": 5},
        {"input_kind": "symbols", "input_size": 5, "embedding_size": 2},
        {"input_kind": "pixels"},
    ],
)
@pytest.mark.parametrize("readout", ["last", "every"])
def test_symbols_and_pixels(options, readout):
    subject = Subject(build(readout=readout, **options), classes=())
    model = sequence_model(subject)
    assert onnx_file.check_sequence(model, subject) < 1e-5
    assert onnx_file.check_step(step_model(subject), subject) < 1e-5
    if options["input_kind"] == "symbols":
        from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

        with pytest.raises(InvalidArgument):
            answers(onnx_file.open_session(model), samples=np.array([[5]]))


def test_double_precision():
    subject = Subject(build("unicornn").double())
    assert onnx_file.check_sequence(sequence_model(subject), subject) < 1e-14


def prepared(**changes):
    chosen = {
        "kind": "classification",
        "raw_channels": ["a", "unused", "b"],
        "channels": ["a", "b"],
        "mean": [1000.0, -0.5],
        "std": [0.1, 20.0],
        **changes,
    }
    return Preparation(**chosen)


@pytest.mark.parametrize("readout", ["last", "every", "mean"])
@pytest.mark.parametrize("missing", ["interpolate", "mask"])
@pytest.mark.parametrize("timestamps", [False, True])
def test_raw_samples_are_prepared_inside(missing, timestamps, readout):
    preparation = prepared(
        missing=missing, timestamps=timestamps, typical_gap=0.25, classes=list("wxyz")
    )
    model = build(
        "unicornn",
        readout=readout,
        input_size=preparation.input_size,
        reads=tuple(preparation.needs),
    )
    subject = Subject(model, preparation, tuple("wxyz"))
    # The check draws samples with gaps in them.
    assert onnx_file.check_sequence(sequence_model(subject), subject) < 1e-5
    assert onnx_file.check_step(step_model(subject), subject) < 1e-5


def test_a_channel_that_is_never_there():
    preparation = prepared()
    subject = Subject(build(input_size=2), preparation, classes=())
    samples = np.full((1, 5, 3), np.nan, dtype=np.float32)
    samples[0, 2:4, 0] = 1000.0, 1000.2
    found = answers(onnx_file.open_session(sequence_model(subject)), samples=samples)
    wanted = onnx_file.torch_outputs(subject, samples, None, None)
    assert onnx_file.difference(found["scores"], wanted["scores"]) < 1e-5


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "regression", "target_mean": [500.0], "target_std": [3.0]},
        {"kind": "step-regression", "target_mean": [-1.0], "target_std": [1e-3]},
        {
            "kind": "forecast",
            "horizon": 2,
            "forecast": ["b", "a"],
            "target_mean": [-0.5, 1000.0],
            "target_std": [20.0, 0.1],
        },
    ],
)
def test_numbers_come_in_their_own_units(changes):
    preparation = prepared(**changes)
    model = build(readout=preparation.readout, input_size=2, output_size=preparation.output_size)
    subject = Subject(model, preparation)
    onnx_model = sequence_model(subject)
    assert onnx_file.check_sequence(onnx_model, subject) < 1e-5
    assert onnx_file.check_step(step_model(subject), subject) < 1e-5
    samples, _ = onnx_file.random_samples(subject, 7, 1, np.random.default_rng(0))
    found = answers(onnx_file.open_session(onnx_model), samples=samples)["values"][0]
    outputs = model(torch.from_numpy(preparation.transform(samples[0])).unsqueeze(1))
    rows = outputs.detach().numpy()[:, 0] if preparation.readout == "every" else outputs.detach()
    said = preparation.answer(rows)
    if preparation.kind == "forecast":
        assert said[0]["forecast"]["a"] == pytest.approx(found[:, 1].tolist(), rel=1e-6)
    else:
        assert [row["value"] for row in said] == pytest.approx(found[..., 0].ravel(), rel=1e-6)


def test_the_file_says_what_it_is(tmp_path):
    import onnx

    preparation = prepared(classes=["no", "yes"])
    model = build(input_size=2, output_size=2)
    subject = Subject(model, preparation, ("no", "yes"), "recordings-gru-1")
    written = export_onnx(subject, tmp_path / "m.onnx", step=True)
    assert {file.name for file in written} == {"m.onnx", "m.step.onnx"}
    assert max(written.values()) < 1e-5
    said = {p.key: p.value for p in onnx.load(tmp_path / "m.onnx").metadata_props}
    assert json.loads(said["channels"]) == ["a", "unused", "b"]
    assert json.loads(said["classes"]) == ["no", "yes"]
    assert (said["kind"], said["source"]) == ("classification", "recordings-gru-1")
    assert said["undamped"]


def test_a_file_that_answers_differently_is_not_written(tmp_path):
    with pytest.raises(RunError, match="was not written"):
        export_onnx(Subject(build("lstm")), tmp_path / "m.onnx", tolerance=0.0)
    assert not list(tmp_path.iterdir())


def test_an_operator_that_is_not_known_is_named(monkeypatch):
    subject = Subject(build("rnn"))
    monkeypatch.setattr(type(subject.network.cell(0)), "project", lambda self, x: x.erfinv())
    with pytest.raises(OptionError, match="erfinv"):
        sequence_model(subject)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    tiny = ["model.hidden_size=6", "train.steps=2", "train.batch_size=4"]
    for task in (["adding", "task.length=12"], ["digits", "task.length=20"], ["characters"]):
        result = CliRunner().invoke(
            cli.app, ["train", task[0], "unicornn", *task[1:], *tiny, "--out", str(folder)]
        )
        assert result.exit_code == 0, result.output
    return folder


ALONE = """
import sys
from pathlib import Path
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "undamped", "lightning", "numba", "onnx", "pandas"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
import numpy as np, onnxruntime
options = onnxruntime.SessionOptions()
options.log_severity_level = 3
session = onnxruntime.InferenceSession(sys.argv[1], options)
data = np.load(sys.argv[2])
out = session.run([sys.argv[4]], {"samples": data})[0]
np.save(sys.argv[3], out)
assert not {"torch", "undamped", "numba"} & set(sys.modules)
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "output"), [("adding", "values"), ("digits", "scores"), ("characters", "scores")]
)
def test_a_run_becomes_a_file_that_needs_nothing_of_ours(trained, tmp_path, name, output):
    run, out = trained / f"{name}-unicornn-1", tmp_path / "new" / "m.onnx"
    words = ["export", str(run), "--onnx", "--step", "--out", str(out), "--json"]
    result = CliRunner().invoke(cli.app, words)
    assert result.exit_code == 0, result.output
    written = json.loads(result.stdout)
    assert sorted(written) == [str(out), str(out.with_name("m.step.onnx"))]
    assert max(file["difference"] for file in written.values()) < 1e-5
    subject = subject_of(Run.open(run))
    samples, _ = onnx_file.random_samples(subject, 15, 2, np.random.default_rng(0))
    np.save(tmp_path / "in.npy", samples)
    places = [str(p) for p in (out, tmp_path / "in.npy", tmp_path / "out.npy")]
    subprocess.run([sys.executable, "-c", ALONE, *places, output], check=True)
    wanted = onnx_file.torch_outputs(subject, samples, None, None)[output]
    assert onnx_file.difference(np.load(tmp_path / "out.npy"), wanted) < 1e-5
    assert subject.classes == {"adding": None, "digits": (), "characters": tuple("ehlo")}[name]


def test_export_of_the_command_line(trained, monkeypatch):
    run = trained / "digits-unicornn-1"

    def said(*words):
        return str(CliRunner().invoke(cli.app, ["export", str(run), *words]).exception)

    assert "Add --onnx" in said()
    assert "ends in .onnx" in said("--onnx", "--out", "model.pt")
    assert CliRunner().invoke(cli.app, ["export", str(run), "--onnx"]).exit_code == 0
    assert (run / "model.onnx").is_file()
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'undamped[onnx]'" in said("--onnx")


@pytest.mark.process
def test_the_page_tells_the_truth(trained, tmp_path, monkeypatch, capsys):
    """What the documentation shows runs as it stands, beside NumPy and onnxruntime alone."""
    page = (Path(__file__).parents[3] / "docs" / "deploy.md").read_text(encoding="utf-8")
    sequence, step, ours = re.findall(r"```python\n(.*?)```", page, re.S)
    run = trained / "digits-unicornn-1"
    export_onnx(subject_of(Run.open(run)), tmp_path / "model.onnx", step=True)
    shutil.copytree(run, tmp_path / "runs" / run.name)
    refuse = ALONE.partition("import numpy")[0]
    for program, said in ((sequence, "UnICORNN"), (step, "[[0.")):
        words = [sys.executable, "-c", refuse + program]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert said in done.stdout
    monkeypatch.chdir(tmp_path)
    exec(ours, {})
    assert "'probabilities'" in capsys.readouterr().out
