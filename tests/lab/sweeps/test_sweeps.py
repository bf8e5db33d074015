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
from undamped.lab import cli
from undamped.lab.benchmarks.forks import forks
from undamped.lab.cli.sweep_settings import read_sweep
from undamped.lab.files import read_tensors
from undamped.lab.sweeps import Plan, SweepFolder, sweep
from undamped.lab.sweeps.folder import _JournalLock, without_password
from undamped.lab.sweeps.plan import Choices, Range, grid_point, grid_size, read_space
from undamped.lab.sweeps.sweep import _Worker, open_study
from undamped.lab.sweeps.trials import trials_of
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
    worker = processes.Process(target=take_part, args=(path, plan, trials, url))
    worker.start()
    return worker


def run_command(capsys, *words, code=0):
    """Run a command and return its output."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as ended:
        patch.setattr(sys, "argv", ["undamped", *words])
        cli.main()
    assert ended.value.code == code
    return capsys.readouterr()


def weights(folder, number):
    return read_tensors(folder.run(number).path / "model.safetensors")[0]


def assert_same(first, second, trials):
    for number in range(trials):
        actual, expected = weights(first, number), weights(second, number)
        assert all(torch.equal(actual[name], expected[name]) for name in actual)


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
        with pytest.raises(OptionError, match="a step that fits"):
            read_space("x", text)
    else:
        assert read_space("x", text) == expected


@pytest.mark.parametrize("value", ["tanh", "0.5", "../data.csv", "a/..b", 3, 0.5, True])
def test_what_does_not_vary_is_a_value(value):
    assert read_space("x", value) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5..1", "from its lower to its upper end"),
        ("0..1:log", "a range above zero"),
        ("1..x", "a range such as"),
        ("1..", "a range such as"),
        ("1..5:9", "a step that fits"),
        ("a,a", "different choices"),
        ("a,", "two or more"),
    ],
)
def test_what_cannot_be_a_range_is_refused(text, message):
    with pytest.raises(OptionError, match=message):
        read_space("model.dt", text)


def test_words_become_a_plan():
    requested = read_sweep(WORDS, None, 6, "random", "none")
    space = {"train.learning_rate": "1e-3..1e-1:log", "model.bias": "true,false"}
    assert requested.plan == replace(PLAN, space=space)
    assert requested.trials == 6


def test_a_file_says_the_same_as_words(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(
        '[task]\nname = "adding"\nlength = 10\n[model]\nname = "rnn"\nhidden_size = 4\n'
        "[train]\nsteps = 24\nvalidate_every = 4\nbatch_size = 100\n"
        '[sweep]\ntrials = 6\nsampler = "random"\npruner = "none"\n'
        '"train.learning_rate" = "1e-3..1e-1:log"\n[sweep.model]\nbias = [true, false]\n'
    )
    requested = read_sweep([], path, None, None, None)
    assert (requested.plan, requested.trials) == (PLAN, 6)


@pytest.mark.parametrize(
    ("words", "message"),
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
def test_bad_settings_are_refused_before_the_first_trial(words, message):
    with pytest.raises(UndampedError, match=message):
        read_sweep(words, None, None, None, None)


def test_a_grid_is_gone_through_once():
    plan = replace(PLAN, space={"model.bias": "true,false", "model.hidden_size": "2..6:2"})
    assert grid_size(plan) == 6
    points = [grid_point(plan, number) for number in range(6)]
    assert len({tuple(point.values()) for point in points}) == 6
    with pytest.raises(OptionError, match="choices or a range with a step in a grid"):
        grid_size(PLAN)


# A sweep


def test_trials_are_ordinary_runs(undisturbed):
    _, trials = undisturbed
    assert [trial.number for trial in trials] == list(range(6))
    assert {trial.state for trial in trials} == {"finished"}
    assert len({trial.settings["train.learning_rate"] for trial in trials}) == 6
    for trial in trials:
        run = Run.open(trial.run)
        assert run.settings["train"]["learning_rate"] == trial.settings["train.learning_rate"]
        assert run.result["valid"]["mse"] == trial.value
        assert run.model() is not None


def test_best_settings_are_a_file_that_train_takes(undisturbed, tmp_path, capsys):
    folder, trials = undisturbed
    best = min(trials, key=lambda trial: trial.value)
    stored = tomllib.loads((folder.path / "best.toml").read_text())
    assert stored["train"]["learning_rate"] == best.settings["train.learning_rate"]
    command = ["train", "--config", str(folder.path / "best.toml"), "--out", str(tmp_path)]
    report = json.loads(run_command(capsys, *command, "--no-page", "--json").out)
    assert report["result"]["valid"]["mse"] == best.value


def test_more_trials_may_be_wanted_later_and_choose_something_new(undisturbed, tmp_path):
    _, trials = undisturbed
    second = begin(tmp_path / "later")
    assert len(sweep(second, 2)) == 2
    assert len(sweep(second, 3)) == 3
    repeated = sweep(second, 3)
    assert [trial.settings for trial in repeated] == [trial.settings for trial in trials[:3]]
    assert [trial.value for trial in repeated] == [trial.value for trial in trials[:3]]


def test_another_plan_is_refused(undisturbed):
    folder, _ = undisturbed
    with pytest.raises(OptionError, match="has seed = 0, got seed = 1"):
        begin(folder.path, replace(PLAN, seed=1))
    with pytest.raises(OptionError, match="--storage"):
        begin(folder.path, url="postgresql://me@host/x")


def test_what_is_behind_ends_early(tmp_path):
    space = {"train.learning_rate": [1e-2, 2e-2, 3e-2, 1e-9, 2e-9, 3e-9]}
    fixed = {**PLAN.fixed, "train": {**PLAN.fixed["train"], "steps": 60}}
    plan = replace(PLAN, fixed=fixed, space=space, sampler="grid", pruner="median")
    trials = sweep(begin(tmp_path / "early", plan), 6)
    assert trials[-1].state == "stopped early"
    folder = SweepFolder.open(tmp_path / "early")
    assert trials_of(folder, open_study(folder)) == trials  # also from a new process
    settings = Run.open(trials[-1].run).settings
    assert settings["status"] == "interrupted" and settings["steps"] < 60


def test_failures_are_told_and_a_hopeless_sweep_ends(tmp_path):
    plan = replace(PLAN, space={"train.learning_rate": "1e25..1e30:log"})
    with pytest.raises(UndampedError, match="step"):
        sweep(begin(tmp_path / "bad", plan), 5)
    folder = SweepFolder.open(tmp_path / "bad")
    stored = open_study(folder).get_trials()
    assert [trial.state.name for trial in stored] == ["FAIL"] * 3


def test_the_command_shows_tells_and_draws(undisturbed, capsys):
    folder, trials = undisturbed
    report = json.loads(run_command(capsys, "sweep", "show", str(folder.path), "--json").out)
    assert [trial["value"] for trial in report["trials"]] == [trial.value for trial in trials]
    assert set(report["importances"]) == set(PLAN.space)
    page = (folder.path / "sweep.html").read_text()
    for title in ("History", "Importance", "All settings together"):
        assert title in page
    screen = run_command(capsys, "sweep", "show", str(folder.path)).out
    assert "best.toml" in screen and "train.learning_rate" in screen
    refused = run_command(capsys, "sweep", "show", "nowhere", code=2).err
    assert "No such folder: nowhere" in refused and len(refused.strip().splitlines()) == 1


def test_compared_models_are_tuned_alike(tmp_path, capsys):
    words = [word for word in WORDS if ".." not in word and "," not in word]
    command = ["compare", words[0], "rnn", "irnn", *words[2:], "--sweep", "2", "--json"]
    report = json.loads(run_command(capsys, *command, "--out", str(tmp_path)).out)
    for row in report["models"]:
        selected = row["sweep"]["settings"]["train.learning_rate"]
        assert row["sweep"]["trials"] == 2
        assert Run.open(row["runs"][0]).settings["train"]["learning_rate"] == selected
    command = [*command[:4], *words[2:], "rnn.hidden_size=2,3", "--sweep", "2", "--json"]
    report = json.loads(run_command(capsys, *command, "--out", str(tmp_path / "own")).out)
    assert set(report["models"][0]["sweep"]["settings"]) == {"model.hidden_size"}
    assert "nothing to tune" in report["models"][1]["sweep"]["words"]


# Several processes, any of which may die


def test_processes_share_the_work_and_one_that_is_killed_loses_nothing(
    undisturbed, processes, tmp_path
):
    folder = begin(tmp_path / "two")
    victim, second = (process(processes, folder.path, 6) for _ in range(2))
    _kill_while_it_trains(folder, victim)
    second.join()
    assert second.exitcode == 0
    trials = sweep(folder, 6)
    assert [trial.number for trial in trials] == list(range(6))
    assert {trial.state for trial in trials} == {"finished"}
    assert [trial.value for trial in trials] == [trial.value for trial in undisturbed[1]]
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
    assert [trial.number for trial in trials] == [0, 1]
    assert all(set(trial.settings) == set(PLAN.space) for trial in trials)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[0].replace(b"{", b"["), "line 1 is damaged"),
        (lambda lines: lines[0] + b"\xff\xfe\n", "line 2 is damaged"),
        (lambda lines: lines[0] + b"[" * 100_000 + b"\n", "line 2 is damaged"),
        (lambda lines: lines[0].replace(b"op_code", b"op_cude"), "Optuna cannot read it"),
        (lambda lines: lines[0].replace(b"sweep", b"swoop"), "Optuna cannot read it"),
    ],
)
def test_a_damaged_journal_is_refused(tmp_path, change, message):
    folder = begin(tmp_path / "sweep")
    open_study(folder)
    journal = folder.path / "journal.log"
    journal.write_bytes(change(journal.read_bytes().splitlines(keepends=True)))
    with pytest.raises(RunError, match=message):
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
    refused = run_command(capsys, "sweep", *WORDS, "--out", str(tmp_path / "full"), code=2).err
    assert len(refused.strip().splitlines()) == 1 and "No space left" in refused


# Databases


def test_passwords_are_not_kept():
    assert without_password("postgresql://me:secret@host/x") == "postgresql://me:…@host/x"
    assert without_password("postgresql://me@host/x") == "postgresql://me@host/x"


@pytest.mark.process
def test_an_unreachable_database_is_one_sentence(tmp_path):
    url = "postgresql://me:secret@127.0.0.1:1/x"
    with pytest.raises(RunError, match=r"Cannot use the database postgresql://me:…@") as refused:
        sweep(begin(tmp_path / "nobody", url=url), 1, url=url)
    assert "secret" not in str(refused.value)
    with pytest.raises(RunError, match="the database what: Could not parse"):
        open_study(begin(tmp_path / "what", url="what"), "what")


def test_a_grid_is_not_for_several_machines(tmp_path):
    plan, url = (
        replace(PLAN, space={"model.bias": "true,false"}, sampler="grid"),
        "postgresql://x/y",
    )
    with pytest.raises(OptionError, match="A grid is for one machine"):
        sweep(begin(tmp_path / "grid", plan, url), 2, url=url)


@pytest.mark.process
def test_a_trial_without_a_folder_is_found_by_whoever_began_it(undisturbed, tmp_path, monkeypatch):
    """A process may end between the first line in a database and the first on disk."""
    url = f"sqlite:///{tmp_path}/trials.db"
    folder, second = (begin(tmp_path / name / "same", url=url) for name in ("mine", "other"))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(_Worker, "_lock", killed)
        sweep(folder, 2, url=url)
    assert not list((folder.path / "trials").iterdir())
    assert [trial.state for trial in sweep(second, 2, url=url)] == ["running", "finished"]
    trials = sweep(folder, 2, url=url)
    assert [trial.state for trial in trials] == ["finished", "finished"]
    assert [trial.settings for trial in trials] == [trial.settings for trial in undisturbed[1][:2]]


@pytest.fixture(scope="module")
def database():
    """A PostgreSQL of one's own, for as long as the tests need it."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not installed:
        pytest.skip("no PostgreSQL is installed")
    # Not below pytest's folders, into which another user may not look.
    with tempfile.TemporaryDirectory(prefix="undamped-database-") as folder:
        path = Path(folder)
        path.chmod(0o777)
        programs, data = installed[-1].parent, path / "data"
        me = getpass.getuser()
        # Where root's programs are is not on every path.
        switch = shutil.which("runuser") or "/usr/sbin/runuser"
        as_other = [switch, "-u", "postgres", "--"] if me == "root" else []
        user = "postgres" if as_other else me
        quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        initdb = [programs / "initdb", "--no-sync", "--no-locale", "-E", "UTF8", "-A", "trust"]
        subprocess.run([*as_other, *initdb, "-D", data], **quiet)
        options = f"-c listen_addresses='' -c unix_socket_directories={path} -c fsync=off"
        control = [*as_other, programs / "pg_ctl", "-D", data]
        subprocess.run([*control, "-w", "-o", options, "start"], **quiet)
        yield f"postgresql://{user}@/postgres?host={path}"
        subprocess.run([*control, "-w", "-m", "immediate", "stop"], **quiet)


@pytest.mark.process
def test_machines_may_begin_at_the_same_moment(database, tmp_path):
    """Each makes the tables and the study where there are none, and all but one come too late."""

    def joined(number):
        folder = begin(tmp_path / str(number) / "same", url=database)
        return open_study(folder, database).ask().number

    with ThreadPoolExecutor(4) as machines:
        assert sorted(machines.map(joined, range(4))) == list(range(4))


@pytest.mark.process
def test_a_database_serves_as_well(undisturbed, processes, database, tmp_path):
    folder = begin(tmp_path / "shared", url=database)
    victim, second = (process(processes, folder.path, 4, url=database) for _ in range(2))
    _kill_while_it_trains(folder, victim)
    second.join()
    assert second.exitcode == 0
    trials = sweep(folder, 4, url=database)
    assert [trial.number for trial in trials] == list(range(4))
    assert {trial.state for trial in trials} == {"finished"}
    assert_same(folder, undisturbed[0], 4)
