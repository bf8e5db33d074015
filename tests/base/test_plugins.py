"""Members from outside: files given by --with, packages, and what runs remember of them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from registries import isolate

from lab.cli.test_command_line import invoke
from undamped._base import plugins
from undamped._base.errors import OptionError, RunError
from undamped._base.registry import LIBRARY, Source, models, solvers, tasks
from undamped.lab.training import Run, fit

MEMBERS = '''
"""Members of my own."""

import torch
from torch import nn

from undamped.extend import (
    Batch,
    Cell,
    Chance,
    Fraction,
    GeneratedTask,
    PositiveInt,
    Recurrent,
    register_model,
    register_task,
)


class LeakyCell(Cell):
    """Leaky RNN: the state goes a share of the way.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units.
        leak: The share.
    """

    def __init__(
        self, input_size: PositiveInt, hidden_size: PositiveInt, *, leak: Fraction = 0.1
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.leak = leak
        self.read = nn.Linear(input_size, hidden_size)
        self.mix = nn.Linear(hidden_size, hidden_size, bias=False)

    def project(self, x):
        return self.read(x)

    def advance(self, projected, state, constants):
        (h,) = state
        return (h + self.leak * (torch.tanh(projected + self.mix(h)) - h),)


@register_model("leaky")
class LeakyRNN(Recurrent):
    """Stacked leaky layers."""

    cell_class = LeakyCell


@register_task("parity")
class Parity(GeneratedTask):
    """Say whether the number of ones is odd.

    Args:
        length: Steps of a sequence.
        seed: Where the random numbers of the data come from.
    """

    input_size = 1
    output_size = 2
    held_out = {"valid": 16, "test": 16}
    chance = Chance(loss=0.6931, metric=0.5, rule="either")

    def __init__(self, length: PositiveInt = 5, *, seed: int = 0) -> None:
        super().__init__(seed)
        self.length = length

    def draw(self, size, generator):
        bits = torch.randint(2, (self.length, size, 1), generator=generator)
        return Batch(bits.float(), bits.sum((0, 2)) % 2)
'''


@pytest.fixture
def alone(monkeypatch):
    """Forget afterwards what a test enters."""
    isolate(monkeypatch, models, tasks, solvers)
    monkeypatch.setattr(plugins, "_loaded", {})
    monkeypatch.setenv(plugins.VARIABLE, "")


@pytest.fixture
def file(tmp_path, alone):
    path = tmp_path / "my models.py"
    path.write_text(MEMBERS)
    return path


def test_a_file_enters_a_cell_and_a_task(file, tmp_path):
    words = ["parity", "leaky", "model.leak=0.5", "model.hidden_size=4", "train.steps=2"]
    place = ["--with", str(file), "--out", str(tmp_path / "runs"), "--no-page"]
    code, output, message = invoke("train", *words, *place)
    assert code == 0, message
    run = Run.open(tmp_path / "runs" / "parity-leaky-1")
    (source,) = run.settings["outside"]
    assert source["name"] == str(file) and len(source["version"]) == 64
    assert "--with" in output, "the commands that are suggested work"
    code, output, _ = invoke("list", "--json", "--with", str(file))
    assert json.loads(output)["from outside"]["models"] == {"leaky": str(file)}
    code, output, _ = invoke("show", "leaky", "--json", "--with", str(file))
    assert json.loads(output)["source"] == str(file)


@pytest.mark.process
def test_a_run_says_what_it_misses_and_never_loads_it(file, tmp_path):
    """In a fresh process, where nobody has loaded the file."""
    plugins.load_file(file)
    run = fit("leaky", "parity", train={"steps": 2}, out=tmp_path, progress=False)
    file.write_text(file.read_text() + f"\nopen({str(tmp_path / 'was-run')!r}, 'w')\n")
    for verb in ("predict", "resume"):
        if verb == "resume":
            run.update(status="interrupted")
        output = in_fresh_process(verb, str(run.path))
        assert output.returncode == 2 and "Traceback" not in output.stderr
        assert f"which comes from {file}" in output.stderr and "--with" in output.stderr
    assert not (tmp_path / "was-run").exists()
    output = in_fresh_process("predict", str(run.path), "--with", str(file))
    assert output.returncode == 0 and "has changed since the run was made" in output.stderr
    assert (tmp_path / "was-run").exists()


def in_fresh_process(*words, **more):
    environment = {**os.environ, plugins.VARIABLE: "", **more}
    command = [sys.executable, "-m", "undamped", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.mark.process
def test_a_package_enters_members_by_its_entry_point(tmp_path):
    (tmp_path / "leaky_package.py").write_text(MEMBERS)
    (tmp_path / "broken_package.py").write_text("1 / 0\n")
    for name in ("leaky", "broken"):
        info = tmp_path / f"{name}_package-2.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}-package\nVersion: 2.5\n")
        (info / "entry_points.txt").write_text(f"[undamped.members]\nmine = {name}_package\n")
    output = in_fresh_process("list", "--json", PYTHONPATH=str(tmp_path))
    assert output.returncode == 0, output.stderr
    result = json.loads(output.stdout)["from outside"]
    assert result["tasks"] == {"parity": "the package leaky-package 2.5"}
    assert "broken-package 2.5" in output.stderr, "others still work"


def test_a_name_that_is_taken_is_refused(tmp_path, alone):
    path = tmp_path / "mine.py"
    path.write_text(MEMBERS.replace('"parity"', '"copy"'))
    with pytest.raises(
        OptionError, match=r"task 'copy' of .*mine\.py: the name is taken by undamped"
    ):
        plugins.load_file(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("x = 1\n1 / 0\n", "ZeroDivisionError in line 2"),
        ("x = (\n", "SyntaxError in line 1"),
        (None, "No such file"),
    ],
)
def test_a_file_that_does_not_run_is_a_sentence(tmp_path, alone, content, said):
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    code, _, message = invoke("list", "--with", str(path))
    assert code == 2 and said in message and message.startswith(f"--with {path}: ")


def test_a_file_is_loaded_once_and_not_changed_under_way(file):
    assert plugins.load_file(file) == plugins.load_file(file)
    file.write_text(MEMBERS + "\n")
    with pytest.raises(OptionError, match="Restart Python"):
        plugins.load_file(file)


def test_a_member_of_a_program_may_be_defined_again(alone):
    for value in (1, 2):

        @tasks.register("again")
        class Again:
            number = value

    assert tasks["again"].number == 2
    assert tasks.source_of("again") == Source("program", __name__)
    assert tasks.source_of("copy") == LIBRARY


def test_a_run_of_a_program_says_where_its_task_was(alone, tmp_path):
    from toy_members import SpringSlopes

    tasks.register("slopes-here")(SpringSlopes)
    run = fit("node", "slopes-here", train={"steps": 1}, out=tmp_path, progress=False)
    del tasks._entries["slopes-here"]
    with pytest.raises(RunError, match=r"which comes from the module toy_members.*Import toy_memb"):
        Run.open(run.path).task()


PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "extending.md").read_text()


def file_of_the_page(name):
    (text,) = re.findall(rf'^```python title="{name}"\n(.*?)^```', PAGE, re.M | re.S)
    return text


@pytest.mark.process
def test_the_tests_of_the_page_pass(tmp_path):
    for name in ("my_members.py", "test_my_members.py"):
        (tmp_path / name).write_text(file_of_the_page(name))
    source = Path(plugins.__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_my_members.py"]
    environment = {**os.environ, "PYTHONPATH": str(source), plugins.VARIABLE: ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout


@pytest.mark.process
def test_the_page_about_members_of_your_own_is_true(tmp_path):
    """Its file is written and its commands are run, in processes of their own."""
    page, members = PAGE, file_of_the_page("my_members.py")
    (commands,) = re.findall(r"^```console\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "my_members.py").write_text(members)
    lines = ["ab"[i % 2] + "".join(f" {(i * j) % 7}" for j in range(6)) for i in range(12)]
    (tmp_path / "labels.lines").write_text("\n".join(lines))
    ours = Path(plugins.__file__).parents[2]
    inside = {**os.environ, "PYTHONPATH": str(ours), plugins.VARIABLE: ""}
    every = ("leaky", "parity", "ralston", "weight_sizes", "parity-lengths")
    shown = [
        ["show", name, *how, "--with", "my_members.py"]
        for name in every
        for how in ([], ["--json"])
    ]
    program = (
        "import sys\nfrom undamped.lab.cli import app\n"
        f"for words in {[line.split()[1:] for line in commands.splitlines()] + shown!r}:\n"
        "    app(words, standalone_mode=False)\n"
        "import torch, undamped\n"
        "t = torch.linspace(0, 1, 2)\n"
        "y = undamped.odeint(lambda t, y: -y, torch.ones(1), t, method='ralston', "
        "options={'step_size': 0.01})\n"
        "assert abs(y[-1].item() - 0.3679) < 1e-4\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=inside, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    for output in ("ralston", "weight_sizes", "h' = h + λ", "recordings-leaky-1", "% right"):
        assert output in done.stdout, output
