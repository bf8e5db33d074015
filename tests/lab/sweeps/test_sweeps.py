"""Sweeps: what varies, who does what, and that nothing is lost whoever dies when."""

import getpass
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from undamped._base.errors import OptionError, RunError, UndampedError
from undamped._base.files import read_tensors
from undamped.lab import cli
from undamped.lab.benchmarks.forks import forks
from undamped.lab.cli.sweep_settings import read_sweep
from undamped.lab.sweeps import Plan, SweepFolder, sweep
from undamped.lab.sweeps.samplers import grid_point, grid_size
from undamped.lab.sweeps.space import Choices, Range, read_space
from undamped.lab.sweeps.storage import _JournalLock, without_password
from undamped.lab.sweeps.sweep import _Worker, open_study
from undamped.lab.training import Run

pytestmark = pytest.mark.usefixtures("all_held_out")

PLAN = Plan(
    "adding",
    "rnn",
    {
        "task": {"length": 10},
        "model": {"hidden_size": 4},
        "train": {"steps": 24, "validate_every": 4, "batch_size": 100},
    },
    {"train.learning_rate": "1e-3..1e-1:log", "model.bias": [True, False]},
    sampler="random",
    pruner="none",
)
WORDS = [
    "adding", "rnn", "task.length=10", "model.hidden_size=4", "train.steps=24",
    "train.validate_every=4", "train.batch_size=100", "train.learning_rate=1e-3..1e-1:log",
    "model.bias=true,false",
]  # fmt: skip


def begin(path, plan=PLAN, url=None):
    return SweepFolder.join(path, plan, "mse", False, url)


def take_part(path, plan, trials, url):
    """Be a process of a sweep."""
    torch.set_num_threads(1)
    sweep(begin(path, plan, url), trials, url=url)


@pytest.fixture(scope="module")
def processes():
    """Processes that begin at once, since everything is imported."""
    return forks()


def process(processes, path, trials, plan=PLAN, url=None):
    """Start one."""
    one = processes.Process(target=take_part, args=(path, plan, trials, url))
    one.start()
    return one


def said(capsys, *words, code=0):
    """Return what a command prints."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["undamped", *words])
        cli.main()
    assert ended.value.code == code
    return capsys.readouterr()


def weights(folder, number):
    return read_tensors(folder.run(number).path / "model.safetensors")[0]


def assert_same(first, second, trials):
    for number in range(trials):
        one, other = weights(first, number), weights(second, number)
        assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, all_held_out):
    folder = begin(tmp_path_factory.mktemp("sweep") / "one")
    return folder, sweep(folder, 6)


# What varies


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.01..0.5:log", Range(0.01, 0.5, None, True)),
        ("1e-4..1e-1", Range(1e-4, 1e-1)),
        ("-3..3", Range(-3, 3)),
        ("16..128:16", Range(16, 128, 16)),
        ("0..1:0.25", None),
        ("0.0..1:0.25", Range(0.0, 1.0, 0.25)),
        ("tanh,relu", Choices(("tanh", "relu"))),
        ("32, 64,0.5,true", Choices((32, 64, 0.5, True))),
    ],
)
def test_ranges_and_choices_are_read(text, expected):
    if expected is None:
        with pytest.raises(OptionError, match="a distance that fits"):
            read_space("x", text)
    else:
        assert read_space("x", text) == expected


@pytest.mark.parametrize("value", ["tanh", "0.5", "../data.csv", "a/..b", 3, 0.5, True])
def test_what_does_not_vary_is_a_value(value):
    assert read_space("x", value) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5..1", "begins with its smaller end"),
        ("0..1:log", "ends above zero"),
        ("1..x", "a range such as"),
        ("1..", "a range such as"),
        ("1..5:9", "fits between"),
        ("a,a", "different choices"),
        ("a,", "two or more"),
    ],
)
def test_what_cannot_be_a_range_is_refused(text, said):
    with pytest.raises(OptionError, match=said):
        read_space("model.dt", text)


def test_words_become_a_plan():
    asked = read_sweep(WORDS, None, 6, "random", "none")
    space = {"train.learning_rate": "1e-3..1e-1:log", "model.bias": "true,false"}
    assert asked.plan == replace(PLAN, space=space)
    assert asked.trials == 6


def test_a_file_says_the_same_as_words(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(
        '[task]\nname = "adding"\nlength = 10\n[model]\nname = "rnn"\nhidden_size = 4\n'
        "[train]\nsteps = 24\nvalidate_every = 4\nbatch_size = 100\n"
        '[sweep]\ntrials = 6\nsampler = "random"\npruner = "none"\n'
        '"train.learning_rate" = "1e-3..1e-1:log"\n[sweep.model]\nbias = [true, false]\n'
    )
    asked = read_sweep([], path, None, None, None)
    assert (asked.plan, asked.trials) == (PLAN, 6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["adding", "rnn"], "at least one range or list of choices"),
        (["adding", "model.hidden_size=4,8"], "a task and a model"),
        (["adding", "rnn", "model.width=4,8"], "hidden_size|width"),
        (["adding", "rnn", "lstm.hidden_size=4,8"], "lstm"),
        (["adding", "rnn", "model.hidden_size=-4..8"], "hidden_size"),
        (["adding", "rnn", "train.optimizer=adam,sgdd"], "optimizer"),
        (["adding", "rnn", "model.hidden_size=4,8", "model.nonsense=1"], "nonsense"),
    ],
)
def test_bad_settings_are_refused_before_the_first_trial(words, said):
    with pytest.raises(UndampedError, match=said):
        read_sweep(words, None, None, None, None)


def test_a_grid_is_gone_through_once():
    plan = replace(PLAN, space={"model.bias": "true,false", "model.hidden_size": "2..6:2"})
    assert grid_size(plan) == 6
    points = [grid_point(plan, number) for number in range(6)]
    assert len({tuple(point.values()) for point in points}) == 6
    with pytest.raises(OptionError, match="since all of them are tried"):
        grid_size(PLAN)


# A sweep


def test_trials_are_ordinary_runs(undisturbed):
    _, trials = undisturbed
    assert [one.number for one in trials] == list(range(6))
    assert {one.state for one in trials} == {"finished"}
    assert len({one.settings["train.learning_rate"] for one in trials}) == 6
    for one in trials:
        run = Run.open(one.run)
        assert run.settings["train"]["learning_rate"] == one.settings["train.learning_rate"]
        assert run.result["valid"]["mse"] == one.value
        assert run.model() is not None


def test_best_settings_are_a_file_that_train_takes(undisturbed, tmp_path, capsys):
    folder, trials = undisturbed
    best = min(trials, key=lambda one: one.value)
    stored = tomllib.loads((folder.path / "best.toml").read_text())
    assert stored["train"]["learning_rate"] == best.settings["train.learning_rate"]
    command = ["train", "--config", str(folder.path / "best.toml"), "--out", str(tmp_path)]
    told = json.loads(said(capsys, *command, "--no-page", "--json").out)
    assert told["result"]["valid"]["mse"] == best.value


def test_more_trials_may_be_wanted_later_and_choose_something_new(undisturbed, tmp_path):
    _, trials = undisturbed
    other = begin(tmp_path / "later")
    assert len(sweep(other, 2)) == 2
    assert len(sweep(other, 3)) == 3
    again = sweep(other, 3)
    assert [one.settings for one in again] == [one.settings for one in trials[:3]]
    assert [one.value for one in again] == [one.value for one in trials[:3]]


def test_another_plan_is_refused(undisturbed):
    folder, _ = undisturbed
    with pytest.raises(OptionError, match="seed = 0, got seed = 1"):
        begin(folder.path, replace(PLAN, seed=1))
    with pytest.raises(OptionError, match="--storage"):
        begin(folder.path, url="postgresql://me@host/x")


def test_what_is_behind_ends_early(tmp_path):
    space = {"train.learning_rate": [1e-2, 2e-2, 3e-2, 1e-9, 2e-9, 3e-9]}
    fixed = {**PLAN.fixed, "train": {**PLAN.fixed["train"], "steps": 60}}
    plan = replace(PLAN, fixed=fixed, space=space, sampler="grid", pruner="median")
    trials = sweep(begin(tmp_path / "early", plan), 6)
    assert trials[-1].state == "stopped early"
    settings = Run.open(trials[-1].run).settings
    assert settings["status"] == "interrupted" and settings["steps"] < 60


def test_failures_are_told_and_a_hopeless_sweep_ends(tmp_path):
    plan = replace(PLAN, space={"train.learning_rate": "1e25..1e30:log"})
    with pytest.raises(UndampedError, match="step"):
        sweep(begin(tmp_path / "bad", plan), 5)
    folder = SweepFolder.open(tmp_path / "bad")
    found = open_study(folder).get_trials()
    assert [one.state.name for one in found] == ["FAIL"] * 3


def test_the_command_shows_tells_and_draws(undisturbed, capsys):
    folder, trials = undisturbed
    told = json.loads(said(capsys, "sweep", "show", str(folder.path), "--json").out)
    assert [one["value"] for one in told["trials"]] == [one.value for one in trials]
    assert set(told["importances"]) == set(PLAN.space)
    page = (folder.path / "sweep.html").read_text()
    for title in ("How the best came about", "What mattered", "All settings together"):
        assert title in page
    shown = said(capsys, "sweep", "show", str(folder.path)).out
    assert "best.toml" in shown and "train.learning_rate" in shown
    refused = said(capsys, "sweep", "show", "nowhere", code=2).err
    assert "no such folder" in refused and len(refused.strip().splitlines()) == 1


def test_compared_models_are_tuned_alike(tmp_path, capsys):
    words = [word for word in WORDS if ".." not in word and "," not in word]
    command = ["compare", words[0], "rnn", "irnn", *words[2:], "--sweep", "2", "--json"]
    told = json.loads(said(capsys, *command, "--out", str(tmp_path)).out)
    for row in told["models"]:
        chosen = row["sweep"]["settings"]["train.learning_rate"]
        assert row["sweep"]["trials"] == 2
        assert Run.open(row["runs"][0]).settings["train"]["learning_rate"] == chosen
    own = ["compare", "adding", "rnn", "irnn", *words[2:], "rnn.hidden_size=2,3", "--sweep", "2"]
    told = json.loads(said(capsys, *own, "--json", "--out", str(tmp_path / "own")).out)
    assert set(told["models"][0]["sweep"]["settings"]) == {"model.hidden_size"}
    assert "nothing to tune" in told["models"][1]["sweep"]["words"]


# Several processes, any of which may die


def test_processes_share_the_work_and_one_that_is_killed_loses_nothing(
    undisturbed, processes, tmp_path
):
    folder = begin(tmp_path / "two")
    victim, other = (process(processes, folder.path, 6) for _ in range(2))
    _kill_while_it_trains(folder, victim)
    other.join()
    assert other.exitcode == 0
    trials = sweep(folder, 6)
    assert [one.number for one in trials] == list(range(6))
    assert {one.state for one in trials} == {"finished"}
    assert [one.value for one in trials] == [one.value for one in undisturbed[1]]
    assert sum(1 for _ in folder.path.glob("trials/*/*/run.json")) == 6
    assert_same(folder, undisturbed[0], 6)


def _kill_while_it_trains(folder, victim):
    """Wait until there is something to lose, and a moment more."""
    while victim.is_alive() and not any(folder.path.glob("trials/*/*/checkpoints/last*")):
        time.sleep(0.01)
    time.sleep(random.Random(0).random() / 5)
    victim.kill()
    victim.join()


def test_a_trial_that_was_begun_and_never_trained_is_taken_up(undisturbed, tmp_path):
    folder = begin(tmp_path / "begun")
    study = open_study(folder)
    study.ask()  # somebody began it, and ended before choosing anything
    trials = sweep(folder, 2)
    assert [one.number for one in trials] == [0, 1]
    assert all(set(one.settings) == set(PLAN.space) for one in trials)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda lines: lines[0].replace(b"{", b"["), "a damaged line 1"),
        (lambda lines: lines[0] + b"\xff\xfe\n", "a damaged line 2"),
        (lambda lines: lines[0] + b"[" * 100_000 + b"\n", "a damaged line 2"),
        (lambda lines: lines[0].replace(b"op_code", b"op_cude"), "Optuna cannot follow"),
        (lambda lines: lines[0].replace(b"sweep", b"swoop"), "Optuna cannot follow"),
    ],
)
def test_a_damaged_journal_is_refused(tmp_path, change, told):
    folder = begin(tmp_path / "sweep")
    open_study(folder)
    journal = folder.path / "journal.log"
    journal.write_bytes(change(journal.read_bytes().splitlines(keepends=True)))
    with pytest.raises(RunError, match=told):
        open_study(folder)


def test_a_damaged_sweep_json_is_refused(tmp_path):
    folder = begin(tmp_path / "sweep")
    stored = json.loads((folder.path / "sweep.json").read_text())
    for changed in (
        {"plan": []},
        {"plan": {}},
        {"plan": stored["plan"] | {"fixed": {"task": 1}}},
        {"plan": stored["plan"] | {"sampler": "dice"}},
        {"metric": None},
        {"higher_is_better": "no"},
    ):
        (folder.path / "sweep.json").write_text(json.dumps(stored | changed))
        with pytest.raises(RunError, match=r"sweep\.json"):
            SweepFolder.open(folder.path).plan  # noqa: B018


@pytest.mark.parametrize("half", ['{"ha', '{"ha' + 3_000_000 * "x"])
def test_half_a_line_in_the_journal_is_cut_off(tmp_path, half):
    journal = tmp_path / "journal.log"
    journal.write_text('{"whole": 1}\n' + half)
    lock = _JournalLock(journal)
    lock.acquire()
    lock.release()
    assert journal.read_text() == '{"whole": 1}\n'


def test_a_full_disk_is_one_sentence(tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(28, "No space left on device", "journal.log")

    monkeypatch.setattr("optuna.storages.journal.JournalFileBackend.append_logs", full)
    refused = said(capsys, "sweep", *WORDS, "--out", str(tmp_path / "full"), code=2).err
    assert len(refused.strip().splitlines()) == 1 and "No space left" in refused


# Databases


def test_passwords_are_not_kept():
    assert without_password("postgresql://me:secret@host/x") == "postgresql://me:…@host/x"
    assert without_password("postgresql://me@host/x") == "postgresql://me@host/x"


def test_an_unreachable_database_is_one_sentence(tmp_path):
    url = "postgresql://me:secret@127.0.0.1:1/x"
    with pytest.raises(RunError, match=r"a database at postgresql://me:…@") as refused:
        sweep(begin(tmp_path / "nobody", url=url), 1, url=url)
    assert "secret" not in str(refused.value)
    with pytest.raises(RunError, match="a database at what, got Could not parse"):
        open_study(begin(tmp_path / "what", url="what"), "what")


def test_a_grid_is_not_for_several_machines(tmp_path):
    plan, url = (
        replace(PLAN, space={"model.bias": "true,false"}, sampler="grid"),
        "postgresql://x/y",
    )
    with pytest.raises(OptionError, match="grid, whose points"):
        sweep(begin(tmp_path / "grid", plan, url), 2, url=url)


def test_a_trial_without_a_folder_is_found_by_whoever_began_it(undisturbed, tmp_path, monkeypatch):
    """A process may end between the first line in a database and the first on disk."""
    url = f"sqlite:///{tmp_path}/trials.db"
    folder, other = (begin(tmp_path / name / "same", url=url) for name in ("mine", "other"))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_Worker, "_lock", killed)
        sweep(folder, 2, url=url)
    assert not list((folder.path / "trials").iterdir())
    assert [one.state for one in sweep(other, 2, url=url)] == ["running", "finished"]
    trials = sweep(folder, 2, url=url)
    assert [one.state for one in trials] == ["finished", "finished"]
    assert [one.settings for one in trials] == [one.settings for one in undisturbed[1][:2]]


@pytest.fixture(scope="module")
def database():
    """A PostgreSQL of one's own, for as long as the tests need it."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("no PostgreSQL is installed")
    # Not below pytest's folders, into which another user may not look.
    with tempfile.TemporaryDirectory(prefix="undamped-database-") as folder:
        place = Path(folder)
        place.chmod(0o777)
        programs, data = found[-1].parent, place / "data"
        me = getpass.getuser()
        # Where root's programs are is not on every path.
        switch = shutil.which("runuser") or "/usr/sbin/runuser"
        as_other = [switch, "-u", "postgres", "--"] if me == "root" else []
        user = "postgres" if as_other else me
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        initdb = [programs / "initdb", "--no-sync", "--no-locale", "-E", "UTF8", "-A", "trust"]
        subprocess.run([*as_other, *initdb, "-D", data], **quiet)
        options = f"-c listen_addresses='' -c unix_socket_directories={place} -c fsync=off"
        control = [*as_other, programs / "pg_ctl", "-D", data]
        subprocess.run([*control, "-w", "-o", options, "start"], **quiet)
        yield f"postgresql://{user}@/postgres?host={place}"
        subprocess.run([*control, "-w", "-m", "immediate", "stop"], **quiet)


def test_machines_may_begin_at_the_same_moment(database, tmp_path):
    """Each makes the tables and the study where there are none, and all but one come too late."""

    def joined(number):
        folder = begin(tmp_path / str(number) / "same", url=database)
        return open_study(folder, database).ask().number

    with ThreadPoolExecutor(4) as machines:
        assert sorted(machines.map(joined, range(4))) == list(range(4))


def test_a_database_serves_as_well(undisturbed, processes, database, tmp_path):
    folder = begin(tmp_path / "shared", url=database)
    victim, other = (process(processes, folder.path, 4, url=database) for _ in range(2))
    _kill_while_it_trains(folder, victim)
    other.join()
    assert other.exitcode == 0
    trials = sweep(folder, 4, url=database)
    assert [one.number for one in trials] == list(range(4))
    assert {one.state for one in trials} == {"finished"}
    assert_same(folder, undisturbed[0], 4)
