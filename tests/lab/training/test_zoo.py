"""The zoo: every entry loads, has its checksums, and reaches its recorded score."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import undamped
from undamped._base.errors import OptionError, RunError, UnknownNameError
from undamped._base.registry import models
from undamped.lab import cli
from undamped.lab.training import Run, zoo_runs
from undamped.lab.training.zoo_runs import copy_run, differences, find, load, pack
from undamped.lab.zoo import FILES, ZOO, zoo_folder, zoo_index

INDEX = zoo_index()
every = pytest.mark.parametrize("name", INDEX)
POINTS = "annuli-node"  # the smallest entry


def invoke(*words):
    result = CliRunner().invoke(cli.app, list(words))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


@pytest.fixture
def zoo(tmp_path):
    """A copy of the zoo with one entry."""
    folder = tmp_path / "zoo"
    shutil.copytree(ZOO / POINTS, folder / POINTS)
    (folder / "index.json").write_text(json.dumps({POINTS: INDEX[POINTS]}))
    return folder


def test_the_zoo_is_small():
    assert len(INDEX) >= 20
    files = {path.relative_to(ZOO).as_posix() for path in ZOO.rglob("*") if path.is_file()}
    assert files == {"index.json", *(f"{name}/{file}" for name in INDEX for file in FILES)}
    assert sum((ZOO / file).stat().st_size for file in files) < 5_000_000
    assert not set(INDEX) & {*models, "check"}  # 'undamped diagnose NAME' is not ambiguous


@every
def test_an_entry_is_what_its_run_says(name):
    entry, run = INDEX[name], load(name)
    settings, result = run.settings, run.result
    assert name == f"{entry['task']}-{entry['model']}"
    assert (settings["task"]["name"], settings["model"]["name"]) == (entry["task"], entry["model"])
    assert entry["command"] == settings["command"] and settings["status"] == "finished"
    assert entry["command"].startswith(f"undamped train {entry['task']} {entry['model']} ")
    assert entry["cpu_seconds"] == result["cpu_seconds"] <= 120
    trainable = [p for p in run.model().parameters() if p.requires_grad]
    assert entry["parameters"] == sum(p.numel() for p in trainable)
    assert entry["bytes"] == sum((ZOO / name / file).stat().st_size for file in FILES) < 100_000
    for split, scores in entry["scores"].items():
        assert scores.items() <= result[split].items()
    ((metric, chance),) = entry["chance"].items()
    assert result["chance"][metric] == chance
    assert run.metrics()[-1]["step"] == result["steps"]
    assert "/" not in entry["command"]  # no folder of the machine it was trained on


@every
def test_a_part_of_the_test_data_has_the_recorded_score(name):
    assert differences(name, part=True) == []


def test_the_score_is_the_fraction_of_correct_answers():
    run = load("flags-latch")
    task = run.task().test_tasks()["256 steps"]
    batch = task.batch("test", 0, 64)
    with torch.no_grad():
        answers = run.model()(batch).argmax(-1)
    (score,) = INDEX["flags-latch"]["part"]["256 steps"].values()
    assert (answers == batch.targets).double().mean().item() == pytest.approx(score, abs=1e-12)


def test_another_score_is_a_sentence(zoo):
    index = zoo_index(zoo)
    index[POINTS]["part"]["test"]["accuracy"] = 0.5
    (zoo / "index.json").write_text(json.dumps(index))
    (sentence,) = differences(POINTS, part=True, zoo=zoo)
    assert sentence == f"{POINTS}: accuracy on 'test' is 1, but the zoo has 0.5."
    assert differences(POINTS, tolerance=2, part=True, zoo=zoo) == []


@pytest.mark.parametrize("file", FILES)
def test_a_changed_or_missing_file_is_refused(zoo, file):
    path = zoo / POINTS / file
    assert zoo_folder(POINTS, zoo) == zoo / POINTS
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="do not match their checksums"):
        zoo_folder(POINTS, zoo)
    path.unlink()
    with pytest.raises(RunError, match="do not match their checksums"):
        zoo_folder(POINTS, zoo)


@pytest.mark.parametrize(
    "name", ["", ".", "..", f"../_zoo/{POINTS}", f"{POINTS}/", f"./{POINTS}", str(ZOO / POINTS)]
)
def test_a_path_is_not_a_name(name):
    with pytest.raises(UnknownNameError, match="entry of the zoo"):
        load(name)


def test_a_name_is_accepted_in_place_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert undamped.load(POINTS).path == Run.open(POINTS).path == ZOO / POINTS
    assert Run.open(Path(POINTS)).output_folder == Path()
    copy = copy_run(POINTS, "runs")
    assert copy.path == Path("runs/annuli-node-1") and copy.output_folder == copy.path
    assert copy.settings == load(POINTS).settings
    copy.path.rename(POINTS)  # a folder of the user has priority
    assert Run.open(POINTS).path == Path(POINTS)


def test_find_compares_settings():
    assert find("flags", "latch", {}) == "flags-latch"
    options = {"seed": 0, "task.length": 128, "task.test_lengths": (256, 1024, 4096, 16384)}
    assert find("flags", "latch", {**options, "train.goal": 1.0}) == "flags-latch"
    with pytest.raises(OptionError, match="Entries of 'latch' on 'flags': flags-latch"):
        find("flags", "latch", {"seed": 1})
    with pytest.raises(OptionError, match="Entries of 'lstm' on 'flags': none"):
        find("flags", "lstm", {})


def test_pack(tmp_path):
    run, zoo = copy_run(POINTS, tmp_path), tmp_path / "zoo"
    pack(run.path, POINTS, INDEX[POINTS]["about"], zoo=zoo)
    assert zoo_index(zoo) == {POINTS: INDEX[POINTS]}
    assert differences(POINTS, zoo=zoo) == []
    for name in ("../annuli", "Annuli", "a/b"):
        with pytest.raises(OptionError, match="letters, digits and hyphens"):
            pack(run.path, name, "About.", zoo=zoo)
    run.update(result=None, status="interrupted")
    with pytest.raises(RunError, match="is not finished"):
        pack(run.path, "other", "About.", zoo=zoo)


def test_the_command_lists_and_describes():
    code, out = invoke("zoo")
    assert code == 0 and all(name in out for name in INDEX)
    assert json.loads(invoke("zoo", "--json")[1]) == INDEX
    code, out = invoke("zoo", POINTS)
    assert INDEX[POINTS]["command"] in out and "100.0 % (chance 50.0 %)" in out
    with pytest.raises(UnknownNameError, match=f"Did you mean '{POINTS}'"):
        invoke("zoo", "check", "annuli-nod")


def test_the_command_measures_again(monkeypatch):
    assert invoke("zoo", "check", POINTS) == (0, f"{POINTS}: all scores agree\n")
    monkeypatch.setattr(zoo_runs, "differences", lambda name, _: [f"{name}: other"])
    assert invoke("zoo", "check", POINTS) == (1, f"{POINTS}: other\n")
    code, out = invoke("zoo", "check", "--json")
    assert code == 1 and json.loads(out) == {name: [f"{name}: other"] for name in INDEX}


def test_commands_accept_a_name_and_leave_the_zoo_unchanged(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in ZOO.rglob("*")}
    assert json.loads(invoke("predict", POINTS, "--json")[1])["accuracy"] == 1
    assert invoke("report", POINTS, "--figure", "curve.svg")[0] == 0
    assert invoke("export", "event-order-latch", "--onnx", "--step")[0] == 0
    assert invoke("diagnose", POINTS, "--instrument", "confusion")[0] == 0
    words = ("train", "annuli", "node", "--from-zoo", "--no-page")
    assert json.loads(invoke(*words, "--json")[1])["run"] == "runs/annuli-node-1"
    with pytest.raises(OptionError, match="trains nothing"):
        invoke(*words, "--baseline", "resnet")
    with pytest.raises(OptionError, match="needs a task and a model"):
        invoke("train", "--from-zoo")
    assert {path.name for path in tmp_path.iterdir()} == {
        *("curve.svg", "diagnosis.html", "model.onnx", "model.step.onnx", "runs")
    }
    assert {path: path.stat().st_mtime_ns for path in ZOO.rglob("*")} == before
