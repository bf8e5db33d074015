"""With the core packages alone: all layers, solvers and models; the rest says what it needs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from undamped._base.packages import CORE, LAB

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORTED_AS = {"scikit-learn": "sklearn", "pillow": "PIL"}

BLOCK = """
import sys, warnings
from importlib.machinery import PathFinder
warnings.simplefilter("ignore")
real = PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in BLOCKED else real(name, path, target)
PathFinder.find_spec = find_spec
"""


def blocked():
    extras = [line for extra in PROJECT["optional-dependencies"].values() for line in extra]
    names = {re.split(r"[\[><= ]", line)[0] for line in [*PROJECT["dependencies"], *extras]}
    return {IMPORTED_AS.get(name, name) for name in names} - {
        *CORE,
        "undamped",
        "mpmath",
    }  # torch brings that


def run(code):
    source = f"BLOCKED = {blocked()!r}\n{BLOCK}\n{code}"
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)


LAYERS = """
from contextlib import nullcontext
import torch, undamped
from undamped.models.physics.base import MotionModel
from undamped.nn.recurrent import Recurrent
from undamped.models.relational.base import RelationalModel
from undamped.models.task_model import TaskModel
from undamped.models.irregular.network import TimestampedNetwork
from undamped._base.options import options_of
from undamped._base.registry import models, solvers
from undamped.ode import LinearRotating

def train(module, loss):
    step = torch.optim.SGD(module.parameters(), lr=0.01)
    before = [p.detach().clone() for p in module.parameters()]
    loss().backward()
    step.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, module.parameters()))

torch.manual_seed(0)
for name, home in models.index.items():
    if home.startswith("undamped.lab."):
        continue
    if issubclass(models[name], Recurrent):
        net = undamped.build(name, input_size=3, hidden_size=4)
        # Compiling every kernel takes minutes; two stand for all.
        with nullcontext() if name in ("unicornn", "cornn") else undamped.plain_loops():
            train(net, lambda: net(torch.randn(6, 2, 3))[0].square().mean())
        net.step(torch.randn(2, 3))
    elif issubclass(models[name], TaskModel):
        shape = models[name].example_shape()
        net = models[name](shape)
        if issubclass(models[name], MotionModel):
            train(net, lambda: net(torch.randn(5, shape.input_size)).square().mean())
        elif issubclass(models[name], RelationalModel):
            train(net, lambda: net(torch.rand(5, 2, 3, 8, 8)).square().mean())
    elif issubclass(models[name], TimestampedNetwork):
        net = models[name](3, 4)
        with undamped.plain_loops():
            train(net, lambda: net(torch.randn(5, 2, 3))[0].square().mean())
    else:
        known = options_of(models[name])
        sizes = {"input_size": 4, "output_size": 2, "hidden_size": 3}
        net = undamped.build(name, **{k: v for k, v in sizes.items() if k in known})
        x = torch.randn(5, 4)
        train(net, lambda: (net.log_prob(x) if name == "ffjord" else net(x)).square().mean())
weight = torch.randn(2, 2, requires_grad=True)
for name in solvers:
    fixed = {"options": {"step_size": 0.1}}
    how = {"rtol": 1e-3, "atol": 1e-3} if solvers[name]().adaptive else fixed
    field, times, start = lambda t, y: y @ weight, torch.tensor([0.0, 1.0]), torch.ones(1, 2)
    if solvers[name].rotates:
        field = LinearRotating(lambda t: t * (weight - weight.mT))
    path = undamped.odeint(field, start, times, method=name, **how)
    path[-1].sum().backward()
from undamped.ode.fields import PerceptronField
ode = undamped.NeuralODE(PerceptronField(2, 4))
train(ode, lambda: ode(torch.randn(5, 2)).square().mean())
import tempfile, pathlib
from safetensors.torch import load_file, save_file
path = pathlib.Path(tempfile.mkdtemp()) / "model.safetensors"
save_file(ode.state_dict(), path)
ode.load_state_dict(load_file(path))
"""


@pytest.mark.process
def test_every_layer_solver_and_model_runs_on_the_core():
    output = run(LAYERS)
    assert output.returncode == 0, output.stderr[-2000:]


ANALYSIS = """
import torch, undamped
net = undamped.nn.LSTM(3, 4)
x = torch.randn(30, 2, 3)
with undamped.plain_loops():
    assert "radient" in undamped.analysis.gradient_flow(net, x).sentence
undamped.analysis.fisher_memory(0.5 * torch.eye(3).numpy(), torch.ones(3).numpy())
try:
    undamped.analysis.gradient_flow(net, x).plot()
except ImportError as error:
    assert "pip install 'undamped[lab]'" in str(error)
"""


@pytest.mark.process
def test_analysis_runs_on_the_core():
    output = run(ANALYSIS)
    assert output.returncode == 0, output.stderr[-2000:]


@pytest.mark.process
@pytest.mark.parametrize("package", ["lab", "lab.training", "lab.cli", "lab.estimators"])
def test_the_workbench_says_what_to_install(package):
    output = run(f"import undamped.{package}")
    last = output.stderr.strip().splitlines()[-1]
    assert last.startswith("undamped._base.errors.MissingPackageError: undamped.lab needs scipy")
    assert last.endswith("pip install 'undamped[lab]'")


@pytest.mark.process
@pytest.mark.parametrize("words", [["train"], ["--help"]])
def test_the_command_line_says_it_in_one_sentence(words):
    start = "import runpy; runpy.run_module('undamped', run_name='__main__')"
    output = run(f"sys.argv = ['undamped', *{words!r}]\n{start}")
    assert output.returncode == 2
    assert output.stderr.count("\n") == 1
    assert "pip install 'undamped[lab]'" in output.stderr


@pytest.mark.process
def test_an_estimator_says_what_to_install():
    output = run("import undamped; undamped.SequenceClassifier")
    assert "pip install 'undamped[lab]'" in output.stderr.splitlines()[-1]


def test_the_packages_of_the_library_and_of_the_workbench_are_declared():
    def named(lines):
        names = (re.split("[><=]", line)[0] for line in lines)
        return [IMPORTED_AS.get(name, name) for name in names]

    assert named(PROJECT["dependencies"]) == list(CORE)
    assert named(PROJECT["optional-dependencies"]["lab"]) == list(LAB)


def test_one_word_brings_everything():
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(re.fullmatch(r"undamped\[(.*)\]", everything)[1].split(","))
    # Triton takes a gigabyte, and is of use to those who have a GPU.
    assert named == set(extras) - {"all", "dev", "docs", "gpu"}


def test_the_oldest_versions_are_the_promised_ones():
    lines = (ROOT / "constraints-lowest.txt").read_text().splitlines()
    pinned = dict(line.split("==") for line in lines if line and not line.startswith("#"))
    lines = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["lab"]]
    promised = dict(line.split(">=") for line in lines)
    assert pinned.keys() == promised.keys()
    for name, version in promised.items():
        assert f"{pinned[name]}.".startswith(f"{version}."), name
