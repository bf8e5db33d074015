"""The command line: what it says, what it leaves behind, and what it does with bad input."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from undamped._base.errors import UndampedError
from undamped._base.registry import models, tasks
from undamped.lab import cli
from undamped.lab.catalogue import REGISTRIES
from undamped.lab.cli.verbs.catalogue import FAMILIES, STARTERS, family_of
from undamped.lab.training.progress import fitting

TINY = ["task.length=6", "model.hidden_size=4", "train.steps=3", "train.batch_size=4"]


def invoke(*words):
    """Run the command line in this process; return exit code, output and message."""
    result = CliRunner().invoke(cli.app, list(words), catch_exceptions=True)
    if isinstance(result.exception, UndampedError):
        return 2, result.stdout, str(result.exception)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.output


def ok(*words):
    code, out, message = invoke(*words)
    assert code == 0, message
    return out


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    ok("train", "adding", "gru", *TINY, "--out", str(folder))
    return folder / "adding-gru-1"


def test_version():
    assert re.fullmatch(r"undamped \d+\.\d+\.\d+\S*, torch \d\S+\n", ok("--version"))


def test_progress_in_a_pipe_is_a_line_for_each_validation(tmp_path):
    long = ["task.length=8", *TINY[1:], "train.learning_rate=0.001"]
    words = ["train", "adding", "residual-unicornn", *long, "--no-page", "--out", str(tmp_path)]
    result = CliRunner(env={"COLUMNS": "40"}).invoke(cli.app, words)
    steps = [line for line in result.stderr.splitlines() if ": step " in line]
    assert steps and all("|grad|" in line for line in steps)
    assert re.search(r": step 1/3, 33 %, \d+:\d\d left, valid \S+, loss \S+, mse \S+, ", steps[0])


def test_fields_of_the_progress_line_that_do_not_fit_are_left_out():
    fields = ["valid 0.5", "loss 1.25", "|grad| 3"]
    assert fitting(fields, 40) == "valid 0.5  loss 1.25  |grad| 3"
    assert fitting(fields, 20) == "valid 0.5  loss 1.25"
    assert fitting(fields, 5) == ""


def test_list_names_everything():
    out = ok("list", "--all")
    for name in [*models, *tasks]:
        assert name in out
    assert set(json.loads(ok("list", "--json"))["models"]) == set(models)


def test_list_is_one_screen():
    lines = ok("list").splitlines()
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    assert any(line.startswith(f"{len(models)} models") for line in lines)
    for kind, names in STARTERS.items():
        assert set(names) <= set(REGISTRIES[kind])


def test_list_selects_by_kind_words_and_purpose():
    assert set(json.loads(ok("list", "solver", "--json"))) == {"solvers"}
    out = json.loads(ok("list", "models", "--for", "forecast", "--json"))["models"]
    local = {"ets", "theta", "mstl", "croston", "tsb"}  # of statsforecast
    assert set(out) == {"ridge-lags", "seasonal-naive", "combination", *local}
    out = json.loads(ok("list", "--for", "irregular", "--json"))["models"]
    assert {"ode-rnn", "gru-d", "latent-ode"} <= set(out) and not {"hnn", "lstm"} & set(out)
    assert {"hnn", "hgn"} <= set(json.loads(ok("list", "--for", "physics", "--json"))["models"])
    assert "unicornn" in json.loads(ok("list", "--for", "streaming", "--json"))["models"]
    assert "models: orthogonal and unitary" in ok("list", "models", "ORTHOGONAL")
    assert "Nothing matches" in ok("list", "models", "nosuchword")


def test_every_model_of_the_library_has_a_family():
    assert {family_of(name) for name in models.index} == set(FAMILIES)
    assert family_of("of-a-plugin") == "others"


def test_runs_are_listed_with_their_scores(trained, tmp_path):
    [row] = json.loads(ok("runs", str(trained.parent), "--json"))
    result = json.loads((trained / "run.json").read_text())["result"]
    assert row["run"] == str(trained) and row["status"] == "finished"
    assert (row["metric"], row["score"]) == ("mse", result["test"]["mse"])
    assert "adding" in ok("runs", str(trained.parent))
    assert "no runs" in ok("runs", str(tmp_path))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "run.json").write_text("{")
    assert "damaged" in ok("runs", str(tmp_path))
    settings = {"task": {"name": "[red]"}, "model": {"name": "a\x1b[2J"}, "status": "finished"}
    (tmp_path / "x" / "run.json").write_text(json.dumps(settings))
    printed = ok("runs", str(tmp_path))
    assert "[red]" in printed and "\x1b[2J" not in printed
    code, _, message = invoke("runs", str(tmp_path / "none"))
    assert code == 2 and "No such folder" in message


def test_open_shows_the_page_of_a_run(tmp_path, monkeypatch):
    addresses = []
    monkeypatch.setattr("webbrowser.open", addresses.append)
    assert invoke("open", str(tmp_path))[0] == 2
    page = tmp_path / "report.html"
    page.touch()
    assert ok("open", str(tmp_path)).strip() == str(page)
    assert addresses == [page.as_uri()]


def test_env_has_versions_and_machine():
    facts = json.loads(ok("env", "--json"))
    assert facts["undamped"] and facts["torch"] and facts["cores"] and "python: " in ok("env")


def test_help_has_three_forms():
    texts = {ok("help", "show"), ok("show", "-h"), ok("show", "--help")}
    assert len(texts) == 1 and "undamped show" in texts.pop()
    assert invoke("help", "nosuch")[0] == 2
    assert "fetch" in ok("help", "data")


def test_the_seed_is_an_option_as_well(tmp_path):
    words = ("adding", "gru", *TINY, "--no-page", "--out", str(tmp_path), "--json")
    assert json.loads(ok("train", *words, "--seed", "3"))["seed"] == 3
    assert invoke("train", *words, "--seed", "-1")[0] == 2


def test_shells_complete_names(monkeypatch):
    environment = {
        "_UNDAMPED_COMPLETE": "complete_bash",
        "COMP_WORDS": "undamped train unico",
        "COMP_CWORD": "2",
    }
    done = CliRunner().invoke(cli.app, [], env=environment, prog_name="undamped")
    assert done.stdout.split() == ["unicornn"]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*models, *tasks])
def test_show_explains_everything(name):
    out = ok("show", name)
    page = json.loads(ok("show", name, "--json"))
    assert page["summary"] and page["reference"]
    assert all(option["name"] in out for option in page["options"][:1])
    if page["kind"] == "model":
        assert page["equation"]
        assert page.get("promise") or not hasattr(models[name], "cell_class")


def test_show_wraps_paragraphs_once_and_options_as_prose_on_a_narrow_terminal():
    runner = CliRunner(env={"COLUMNS": "60"})
    lines = [
        line.rstrip() for line in runner.invoke(cli.app, ["show", "unicornn"]).stdout.split("\n")
    ]
    start = lines.index("Symbols")
    assert all(len(line) > 45 for line in lines[start + 1 : start + 4])
    option = lines.index("    alpha (1.0; a number ≥ 0)")
    assert lines[option + 1] == "        Restoring force α."


@pytest.mark.parametrize(
    "words", [("list",), ("list", "models"), ("show", "unicornn"), ("show", "copy", "--json")]
)
def test_list_and_show_do_not_import_torch(words):
    program = (
        "import sys; from undamped.lab.cli import app\n"
        "try: app()\nexcept SystemExit: pass\n"
        "print('torch imported:', 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    assert done.stdout.endswith("torch imported: False\n"), done.stderr


def test_train_ends_with_a_screen_worth_reading(tmp_path):
    out = ok("train", "adding", "gru", *TINY, "--baseline", "lstm", "--out", str(tmp_path))
    for word in ("chance level", "gru", "lstm", "parameters", "Trained in", "Run:"):
        assert word in out
    assert "What to try next" in out and "undamped compare adding gru" in out
    assert (tmp_path / "adding-lstm-1" / "run.json").exists()


def test_scores_are_printed_before_the_page_is_made(tmp_path, monkeypatch):
    words = ["train", "adding", "gru", *TINY, "--out", str(tmp_path)]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0
    lines = [line for line in done.stderr.splitlines() if "page" in line]
    assert lines[0] == "Writing the page (Ctrl-C skips it)" and len(lines) < 6, "no short stages"
    assert done.stdout.index("chance level") < done.stdout.index("Page: ")

    def stopped(runs, seconds=None):
        raise KeyboardInterrupt

    assert CliRunner().invoke(cli.app, [*words, "--page", "short"]).exit_code == 2
    monkeypatch.setattr("undamped.lab.cli.verbs.report.write_page", stopped)
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 0 and "chance level" in done.stdout
    assert "Write it later: undamped report" in done.stderr


def test_train_json(tmp_path):
    said = json.loads(
        ok("train", "adding", "gru", *TINY, "seed=4", "--json", "--out", str(tmp_path))
    )
    assert said["status"] == "finished" and said["seed"] == 4
    assert said["task"]["options"]["length"] == 6


def test_config_file_and_command_line(tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text(
        'seed = 9\n[task]\nname = "adding"\nlength = 7\n[model]\nname = "gru"\nhidden_size = 5\n'
        "[train]\nsteps = 2\nbatch_size = 4\n"
    )
    said = json.loads(ok("train", "--config", str(config), "train.steps=3", "--json",
                         "--out", str(tmp_path)))  # fmt: skip
    assert said["seed"] == 9 and said["model"]["options"]["hidden_size"] == 5
    assert said["result"]["steps"] == 3, "the command line wins"
    assert said["task"]["options"]["length"] == 7


@pytest.mark.slow
def test_compare(tmp_path):
    words = ["compare", "adding", "gru", "unicornn", *TINY, "unicornn.dt=0.2", "--seeds", "2"]
    said = json.loads(ok(*words, "--json", "--out", str(tmp_path)))
    assert [row["model"] for row in said["models"]] == ["gru", "unicornn"]
    row = said["models"][1]
    assert len(row["test"]["scores"]) == 2 and row["test"]["std"] >= 0
    assert row["parameters"] > 0 and row["seconds"] > 0 and row["peak_memory_bytes"] > 1e6
    assert said["chance"]["mse"] == pytest.approx(1 / 6)
    out = ok(*words, "--out", str(tmp_path), "--figure", str(tmp_path / "curves.png"))
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "±" in out and "peak memory" in out


def test_compare_over_several_delays(tmp_path):
    out = ok("compare", "transfer-copy", "gru", "task.delay=3", "task.test_delays=3,5",
             "model.hidden_size=4", "train.steps=2", "--out", str(tmp_path))  # fmt: skip
    assert "delay 5" in out


def test_predict_on_the_test_part(trained):
    assert "the naive baseline has" in ok("predict", str(trained))
    said = json.loads(ok("predict", str(trained), "--json"))
    assert len(said["examples"]) == 4 and "mse" in said


def test_predict_on_files(trained, tmp_path):
    array = np.random.default_rng(0).random((3, 9, 2)).astype(np.float32)
    np.save(tmp_path / "many.npy", array)
    many = json.loads(ok("predict", str(trained), str(tmp_path / "many.npy"), "--json"))
    assert len(many) == 3
    np.savetxt(tmp_path / "one.csv", array[1], delimiter=",", header="number,mark", comments="")
    one = json.loads(ok("predict", str(trained), str(tmp_path / "one.csv"), "--json"))
    assert one[0]["answer"] == pytest.approx(many[1]["answer"], abs=1e-5)


def test_a_character_model_goes_on_with_a_text(tmp_path):
    ok("train", "characters", "gru", "model.hidden_size=32", "train.steps=150",
       "train.learning_rate=0.02", "--out", str(tmp_path))  # fmt: skip
    run = str(tmp_path / "characters-gru-1")
    said = json.loads(ok("predict", run, "--prompt", "h", "--length", "4", "--temperature", "0.05",
                         "--json"))  # fmt: skip
    assert said["text"] == "ello"
    assert "h" in ok("predict", run)


BAD = {
    "unknown model": (["train", "copy", "lstmm"], "Did you mean 'lstm'"),
    "unknown task": (["train", "coppy"], "Did you mean 'copy'"),
    "misspelt option": (["train", "copy", "lstm", "model.hiden_size=3"], "'hidden_size'"),
    "misspelt train option": (["train", "copy", "lstm", "train.lerning_rate=3"], "'learning_rate'"),
    "misspelt part": (["train", "copy", "lstm", "modle.hidden_size=3"], "Did you mean"),
    "negative size": (["train", "copy", "lstm", "model.hidden_size=-3"], "integer in [1"),
    "text for a number": (["train", "copy", "lstm", "train.steps=many"], "an integer"),
    "negative delay": (["train", "copy", "lstm", "task.delay=-1"], "an integer ≥ 1"),
    "bad seed": (["train", "copy", "lstm", "seed=x"], "an integer"),
    "bad choice": (["train", "copy", "rnn", "model.nonlinearity=gelu"], "'tanh', 'relu'"),
    "missing text file": (["train", "characters", "gru", "task.file=no.txt"], "No such file"),
    "missing config": (["train", "--config", "no.toml"], "No such file"),
    "missing run": (["resume", "no-run"], "No such run folder"),
    "missing run to predict": (["predict", "no-run"], "No such run folder"),
    "three names": (["train", "copy", "lstm", "gru"], "undamped compare"),
    "no model to compare": (["compare", "copy"], "at least one model"),
    "settings of another": (["compare", "copy", "lstm", "gru.dropout=0.1"], "Add gru"),
    "resume and settings": (["train", "copy", "--resume", "x"], "cannot be combined"),
    "resume elsewhere": (["train", "--resume", "x", "--out", "y"], "cannot be combined"),
    "resume and watch": (["train", "--resume", "x", "--watch"], "cannot be combined"),
    "resume without a page": (["train", "--resume", "x", "--no-page"], "cannot be combined"),
    "a page and no page": (["train", "--page", "full", "--no-page"], "contradict"),
    "a model twice": (["compare", "copy", "lstm", "gru", "lstm"], "'lstm' is listed twice"),
    "bad picture of runs": (["report", "x", "--figure", "x.foo"], ".png or .svg"),
    "a folder for a page": (["diagnose", "lstm", "--out", "."], "is a folder"),
    "unknown to show": (["show", "unicron"], "Did you mean 'unicornn'"),
    "two budgets": (["train", "copy", "lstm", "train.steps=2", "train.seconds=1"], "Only one of"),
    "bad picture": (["compare", "copy", "lstm", "--figure", "x.pdf"], ".png or .svg"),
    "short digits": (["train", "digits", "lstm", "task.length=3"], "8"),
    "a condition without any": (
        ["train", "density", "ffjord", "model.context_size=2"],
        "without a condition",
    ),
    "the same to diagnose": (["diagnose", "ffjord", "model.context_size=2"], "without a condition"),
    "damping beyond one": (["train", "annuli", "hbnode", "model.damping=2"], "< scale = 1"),
    "absurd size": (["train", "copy", "gru", "model.hidden_size=99999999"], "10,000,000]"),
    "absurd depth": (["train", "copy", "gru", "model.num_layers=99999999"], "10,000]"),
    "task option alone": (["train", "copy", "unicornn", "delay=3"], "Did you mean 'task.delay'"),
    "model option alone": (["train", "copy", "lstm", "hidden_siz=3"], "'model.hidden_size'"),
    "train option alone": (["compare", "copy", "lstm", "steps=3"], "'train.steps'"),
    "nothing like it": (["train", "copy", "lstm", "zzz=3"], "undamped show NAME"),
    "nothing like a part": (["train", "copy", "lstm", "zzz.zzz=3"], "Choose one of"),
    "unknown experiment": (["reproduce", "anuli"], "Did you mean 'annuli'"),
    "unknown benchmark": (["bench", "recurent"], "Did you mean 'recurrent'"),
    "another's option": (["compare", "copy", "lstm", "model.dt=0.1"], "lstm has no option"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD, ids=str)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, tmp_path, monkeypatch):
    words, expected = BAD[case]
    monkeypatch.chdir(tmp_path)
    code, out, message = invoke(*words)
    assert code == 2 and out == ""
    assert expected in message
    assert "\n" not in message.strip()
    assert list(tmp_path.iterdir()) == []


def test_main_prints_the_sentence_and_exits_with_2(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["undamped", "train", "copy", "lstmm"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    assert re.fullmatch(r"Unknown model 'lstmm'\. Did you mean 'lstm'\?\n", said.err)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
    ],
)
def test_too_little_memory_is_one_sentence(error, monkeypatch, capsys):
    def fail(*_):
        raise error

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    assert ended.value.code == 2 and said.out == ""
    assert re.fullmatch(r"There is not enough memory .*\n", said.err)


def test_other_runtime_errors_are_not_called_a_lack_of_memory(monkeypatch):
    def fail(*_):
        raise RuntimeError("a defect")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        cli.main()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_unwritable_folder(tmp_path):
    tmp_path.chmod(0o500)
    code, _, message = invoke("train", "adding", "gru", *TINY, "--out", str(tmp_path / "runs"))
    assert code == 2 and "Cannot write to the folder" in message


def test_a_file_where_a_folder_belongs(tmp_path):
    (tmp_path / "runs").write_text("in the way")
    code, _, message = invoke("train", "adding", "gru", *TINY, "--out", str(tmp_path / "runs"))
    assert code == 2 and "Cannot write to the folder" in message
    code, _, message = invoke("train", "adding", "gru", *TINY, "--out", "/proc/nowhere")
    assert code == 2 and "Cannot write to the folder" in message


def test_bad_config_files(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("[model\n")
    code, _, message = invoke("train", "--config", str(bad))
    assert code == 2 and "TOML" in message
    bad.write_text("[modell]\nhidden_size = 3\n")
    code, _, message = invoke("train", "--config", str(bad))
    assert code == 2 and "Did you mean" in message


def test_bad_data_files(trained, tmp_path):
    class Evil:
        def __reduce__(self):
            return (os.system, ("touch owned",))

    np.save(tmp_path / "objects.npy", np.array([Evil()], dtype=object), allow_pickle=True)
    np.save(tmp_path / "narrow.npy", np.zeros((5, 1)))
    np.save(tmp_path / "empty.npy", np.zeros((0, 2)))
    np.save(tmp_path / "gaps.npy", np.full((5, 2), np.nan))
    (tmp_path / "cut.npy").write_bytes((tmp_path / "narrow.npy").read_bytes()[:40])
    (tmp_path / "ragged.csv").write_text("1,2\n3\n")
    (tmp_path / "words.csv").write_text("a,b\n1,two\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "data.xyz").write_text("1,2\n")
    for file in sorted(tmp_path.iterdir()):
        code, out, message = invoke("predict", str(trained), str(file))
        assert code == 2 and out == "", file
        assert file.name in message and "\n" not in message.strip(), message
    code, _, message = invoke("predict", str(trained), str(tmp_path / "missing.npy"))
    assert code == 2 and "No such file" in message
    code, _, message = invoke("predict", str(trained), "--prompt", "x")
    assert code == 2 and "character model" in message


def test_a_table_is_put_between_its_markers(tmp_path):
    from undamped.lab.cli.verbs.experiments import fill_table

    page = tmp_path / "page.md"
    page.write_text("before\n<!-- bench ode -->\nold\n<!-- end -->\nafter\n")
    for _ in range(2):
        fill_table(page, "ode", "| new |\n")
    assert page.read_text() == "before\n<!-- bench ode -->\n| new |\n<!-- end -->\nafter\n"
    code, _, message = invoke("bench", "unicornn", "--table", str(page))
    assert code == 2 and "<!-- bench unicornn -->" in message
    code, _, message = invoke("reproduce", "annuli", "epoch=3")
    assert code == 2 and "Did you mean 'epochs'" in message


def test_damaged_run(trained, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    (copy / "model.safetensors").write_bytes(b"not tensors")
    code, _, message = invoke("predict", str(copy))
    assert code == 2 and "file is damaged" in message
    (copy / "run.json").write_text("{")
    code, _, message = invoke("resume", str(copy))
    assert code == 2 and "file is damaged" in message


def undamped_process(words, *, shell="", **environment):
    """Run a command in a shell of its own; return exit code, output and messages."""
    command = f"{shlex.join([sys.executable, '-m', 'undamped', *words])} {shell}"
    ended = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        capture_output=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


@pytest.mark.process
def test_output_that_nobody_reads_is_no_failure():
    assert undamped_process(["list"], shell="| head -n 1")[::2] == (0, b"")
    code, _, told = undamped_process(["--version"], shell="> /dev/full")
    assert code == 2 and b"No space left" in told and b"Traceback" not in told


@pytest.mark.process
def test_terminals_without_our_letters_show_their_numbers():
    code, shown, told = undamped_process(["show", "unicornn"], PYTHONIOENCODING="ascii")
    assert (code, told) == (0, b"") and rb"\u" in shown
    code, shown, _ = undamped_process(["show", "unicornn", "--json"], PYTHONIOENCODING="ascii")
    assert code == 0 and json.loads(shown.decode("ascii"))["name"] == "unicornn"


@pytest.mark.process
def test_a_training_that_ctrl_c_stops_says_so_to_the_shell(tmp_path):
    words = ["train", "copy", "rnn", "train.steps=1000000", "--out", str(tmp_path), "--no-page"]
    with subprocess.Popen(
        [sys.executable, "-m", "undamped", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        while not list(tmp_path.glob("*/checkpoints/last.safetensors")):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        shown, _ = process.communicate()
    assert process.returncode == 130 and b"Continue: undamped resume" in shown
