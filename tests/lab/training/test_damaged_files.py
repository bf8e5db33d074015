"""Damaged files of a run and of a sweep: refused in a sentence, never believed."""

import errno
import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from undamped._base.errors import OptionError, RunError, shortened
from undamped.lab import files
from undamped.lab.files import read_json, read_tensors, write_tensors, write_text
from undamped.lab.report.watch import Watch
from undamped.lab.training import fit, resume
from undamped.lab.training.options import TrainOptions
from undamped.lab.training.run import Run


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run on recordings of two channels."""
    folder = tmp_path_factory.mktemp("damaged")
    rng = np.random.default_rng(0)
    np.savez(folder / "a.npz", X=rng.normal(size=(20, 6, 2)), y=np.arange(20) % 2)
    return fit(
        "gru", "recordings", task_options={"file": str(folder / "a.npz")},
        model_options={"hidden_size": 3}, train={"steps": 2}, out=folder, progress=False,
    )  # fmt: skip


@pytest.fixture
def run(trained):
    """The same run, put back in order after a test."""
    names = ["run.json", "metrics.csv", "model.safetensors", "checkpoints/last.safetensors"]
    before = {name: (trained.path / name).read_bytes() for name in names}
    yield trained
    for name, content in before.items():
        (trained.path / name).write_bytes(content)


def change(run, place, value):
    """Replace an entry of run.json; None removes it."""
    settings = json.loads((run.path / "run.json").read_text())
    *way, last = place.split(".")
    entry = settings
    for name in way:
        entry = entry[name]
    if value is None:
        del entry[last]
    else:
        entry[last] = value
    (run.path / "run.json").write_text(json.dumps(settings))


# Weights


def test_equal_tensors_are_equal_bytes(tmp_path):
    path, contents = tmp_path / "model.safetensors", set()
    for _ in range(8):
        write_tensors(path, {"x": torch.ones(2), "ä\n": torch.ones(3)}, dict.fromkeys("abc😀", "é"))
        contents.add(path.read_bytes())
    assert len(contents) == 1 and read_tensors(path)[1] == dict.fromkeys("abc😀", "é")


def test_any_flipped_bit_is_noticed(tmp_path):
    tensors = {"a": torch.randn(3, 2), "b": torch.tensor(1.5), "c": torch.arange(3)}
    path = tmp_path / "a.safetensors"
    write_tensors(path, tensors, {"undamped": "{}"})
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 5):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(RunError, match="Restore the file from a copy"):
            read_tensors(path)


@pytest.mark.parametrize("name", ["model.safetensors", "checkpoints/last.safetensors"])
def test_predict_and_resume_refuse_changed_numbers(run, name):
    content = bytearray((run.path / name).read_bytes())
    content[-10] ^= 1
    (run.path / name).write_bytes(content)
    run.update(status="interrupted")
    with pytest.raises(RunError, match="its checksum differs"):
        run.model() if name.startswith("model") else resume(run.path, progress=False)


def test_files_of_before_there_were_checksums_are_read(run):
    path = run.path / "model.safetensors"
    tensors, _ = read_tensors(path)
    save_file(tensors, path)
    assert torch.equal(run.model().head.weight, tensors["head.weight"])


def test_old_checkpoints_with_groups_of_the_optimiser_are_resumed(run):
    tensors, metadata = read_tensors(run.checkpoint)
    header = json.loads(metadata["undamped"])
    write_tensors(
        run.checkpoint, tensors, {"undamped": json.dumps(header | {"optimizer_groups": []})}
    )
    run.update(status="interrupted")
    assert resume(run.path, progress=False).result["steps"] == 2


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("progress", {"step": "x"}),
        ("progress", []),
        ("optimizer_state", {"99": {}}),
        ("optimizer_state", {"0": {"other": 1}}),
        ("schedule", {"plateau_factor": []}),
        ("carried", [[]]),
    ],
)
def test_checkpoints_of_another_form(run, part, value):
    tensors, metadata = read_tensors(run.checkpoint)
    header = json.loads(metadata["undamped"]) | {part: value}
    write_tensors(run.checkpoint, tensors, {"undamped": json.dumps(header)})
    change(run, "train.steps", 4)
    run.update(status="interrupted")
    with pytest.raises(RunError, match="is not a checkpoint of undamped"):
        resume(run.path, progress=False)


@pytest.mark.process
def test_a_full_disk_is_an_error_of_the_system(tmp_path):
    program = (
        "import resource, signal, sys, torch\n"
        "from pathlib import Path\n"
        "from undamped.lab.files import write_tensors\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    write_tensors(Path(sys.argv[1]), {'a': torch.zeros(5000)})\n"
        "except OSError as error:\n"
        "    print(error.errno, error.filename)\n"
    )
    path = tmp_path / "a.safetensors"
    ended = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == [str(errno.EFBIG), str(path)]
    assert not list(tmp_path.iterdir())


# run.json and metrics.csv


@pytest.mark.parametrize(
    "std", [[0.0, 0.0], [1.0], [1.0, -1.0], [1.0, float("nan")], "12", [[1], [1]]]
)
def test_scales_that_cannot_be_divided_by(run, std):
    change(run, "preparation.std", std)
    with pytest.raises(RunError, match=r"run.json: preparation.std(: expected| must be)"):
        run.preparation()


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("model", None),
        ("model", []),
        ("model.options", None),
        ("model.options.hidden_size", None),
        ("model.shape", {"input_size": 2}),
        ("model.shape.output_size", -1),
        ("model.shape.input_size", 10**25),
        ("model.shape.input_kind", []),
        ("model.shape.needs", [[]]),
        ("task.name", {}),
        ("task.options.file", None),
        ("outside", [1]),
        ("preparation.mean", None),
        ("preparation.mean", [0.5]),
        ("preparation.channels", ["other", "1"]),
        ("preparation.classes", {"a": 1}),
        ("preparation.alarm", {"threshold": 1}),
        ("train", {"steps": "x"}),
        ("train.batch_size", {}),
        ("seed", "x"),
        ("found", 3),
    ],
)  # fmt: skip
def test_a_run_json_of_another_form(run, place, value):
    change(run, place, value)
    with pytest.raises(RunError):
        opened = Run.open(run.path)
        opened.preparation()
        opened.train_options()
        opened.empty_model()
        opened.task()


def test_what_a_run_says_of_others_is_data(run):
    change(run, "status", "finished")
    settings = run.settings
    run.update(outside=[{"a": 1}, {"kind": "file", "name": 3}])
    run.empty_model()
    run.update(outside=settings.get("outside", []))


def test_deep_nesting_and_long_numbers_in_json(tmp_path):
    path = tmp_path / "a.json"
    for text in ("[" * 100_000, "[" * 500 + "]" * 500, "9" * 5000, '{"a": ' + "1" * 400 + "}"):
        path.write_text(text)
        with pytest.raises(RunError, match="file is damaged"):
            read_json(path)


@pytest.mark.parametrize(
    "text", ["step,a\n1,2,3\n", "step\nnan\n", 'step,a\n1,"2\n', "step\n\0\n", "step,a\n1,x\n"]
)
def test_a_metrics_file_of_another_form(run, text):
    (run.path / "metrics.csv").write_text(text)
    with pytest.raises(RunError, match=r"metrics\.csv is damaged"):
        run.metrics()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.json", "[" * 100_000),
        ("run.json", '{"format": 1, "model": [], "task": 3}'),
        ("run.json", '{"format": 1, "model": {"name": []}}'),
        ("metrics.csv", "step,a\n1,2,3\n"),
    ],
)
def test_the_live_page_of_a_damaged_run_answers(run, name, text):
    (run.path / name).write_text(text)
    with Watch(run.path) as watch:
        state = watch.state()
        assert isinstance(state["title"], str) and state["status"].startswith("damaged")


@pytest.mark.parametrize("port", [70_000, -1])
def test_a_port_that_no_machine_has(tmp_path, port):
    with pytest.raises(RunError, match="a free port"):
        Watch(tmp_path, port=port)


# Messages, options, and what is left behind


def test_messages_quote_a_little_of_a_file():
    text = shortened("a" * 5000 + "b")
    assert len(text) < 350 and text.startswith("aaa") and text.endswith("ab")
    assert "thousands of digits" in shortened(10**6000)


@pytest.mark.parametrize("name", ["learning_rate", "constrained_learning_rate", "weight_decay"])
def test_numbers_that_single_precision_cannot_hold(tmp_path, name):
    with pytest.raises(OptionError, match=f"train.{name} must be"):
        fit("gru", "copy", train={name: 1e38, "steps": 1}, out=tmp_path, progress=False)
    assert TrainOptions(learning_rate=1e30).learning_rate == 1e30


@pytest.mark.process
def test_what_a_killed_process_left_is_removed(tmp_path):
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from undamped.lab.files import write_atomically\n"
        "write_atomically(Path(sys.argv[1]), lambda _: os.kill(os.getpid(), signal.SIGKILL))\n"
    )
    path = tmp_path / "a.txt"
    subprocess.run([sys.executable, "-c", program, str(path)], check=False)
    (left,) = tmp_path.iterdir()
    others = [tmp_path / ".a.txt.swp", tmp_path / ".b.txt.abcdefgh.tmp"]
    for other in others:
        other.write_text("somebody else's")
    seen = []

    def write(temporary):
        write_text(path, "another process")  # while this one writes
        seen.append(temporary.exists())
        temporary.write_text("whole")

    files.write_atomically(path, write)
    assert seen == [True] and path.read_text() == "whole"
    assert not left.exists() and sorted(tmp_path.iterdir()) == sorted([path, *others])


def test_a_run_folder_that_is_removed_while_training(tmp_path):
    def watch(validation, metric):
        shutil.rmtree(tmp_path)
        return False

    with warnings.catch_warnings(), pytest.raises(RunError, match="was removed during training"):
        fit(
            "gru", "copy", train={"steps": 4, "validate_every": 1, "batch_size": 4},
            out=tmp_path, watch=watch, progress=False,
        )  # fmt: skip
    tmp_path.mkdir()
