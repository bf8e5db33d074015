"""Public names: made of the registries on demand, and told to editors by stubs."""

import importlib
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import LIBRARY, Registry, models
from undamped.lab.catalogue import STUBS, stub_text


def fresh(code: str) -> str:
    """Run a program in a process where nothing is loaded yet."""
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.returncode == 0, output.stderr
    return output.stdout


SOURCE = Path(undamped.__file__).parent.parent
REMEDY = "run 'python -m undamped.lab.catalogue'"


@pytest.mark.parametrize("package", STUBS)
def test_stubs_are_what_the_command_writes(package):
    path = SOURCE.joinpath(*package.split("."), "__init__.pyi")
    assert path.read_text(encoding="utf-8") == stub_text(package), REMEDY


def test_a_stub_follows_a_class_to_another_file():
    text = stub_text("undamped.nn")
    elsewhere = models.index | {"lstm": "undamped.nn.elsewhere:LSTM"}
    elsewhere["new"] = "undamped.nn.elsewhere:New"
    del elsewhere["gru"]
    lines = stub_text("undamped.nn", {"models": elsewhere}).splitlines()
    assert "from undamped.nn.elsewhere import LSTM as LSTM" in lines
    assert "from undamped.nn.elsewhere import New as New" in lines
    assert not [line for line in lines if line.endswith(" as GRU")]
    assert len(set(lines) - set(text.splitlines())) == 2 and len(lines) == len(text.splitlines())


@pytest.mark.process
def test_the_index_is_what_the_command_writes():
    written = (SOURCE / "undamped" / "_index.json").read_text(encoding="utf-8")
    program = "from undamped.lab.catalogue import index_text; print(index_text(), end='')"
    assert written == fresh(program), REMEDY


def test_the_catalogue_is_what_the_command_writes():
    written = (SOURCE / "undamped" / "_catalogue.jsonl").read_text(encoding="utf-8")
    program = "from undamped.lab.catalogue import catalogue_text; print(catalogue_text(), end='')"
    assert written == fresh(program), REMEDY


def test_every_model_is_a_public_name_of_its_package():
    for name, entry in models.index.items():
        home, _, attribute = entry.partition(":")
        packages = ("undamped.nn", "undamped.models", "undamped.lab.baselines")
        (package,) = (package for package in packages if home.startswith(f"{package}."))
        module = importlib.import_module(package)
        assert getattr(module, attribute) is models[name]
        assert attribute in dir(module) and attribute in module.__all__


def test_the_library_has_few_public_names():
    assert len(undamped.__all__) <= 20


LOADED = "; import sys; print(sum(name.startswith('undamped') for name in sys.modules))"


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "most"),
    [
        ("import torch, undamped; undamped.nn.UnICORNN(3, 4)(torch.zeros(5, 2, 3))", 90),
        (
            "import torch, undamped; "
            "undamped.odeint(lambda t, y: -y, torch.ones(2), torch.arange(2.0), method='dopri5')",
            100,
        ),
        (
            "import numpy as np, undamped; x = np.random.default_rng(0).normal(size=(20, 30, 1)); "
            "undamped.SequenceClassifier('bank').fit(x, np.arange(20) % 2)",
            150,
        ),
    ],
)
def test_a_look_up_imports_little(program, most):
    assert int(fresh(program + LOADED)) <= most


@pytest.mark.process
def test_help_imports_neither_torch_nor_numpy():
    program = (
        "import runpy, sys\nsys.argv = ['undamped', '--help']\n"
        "try:\n    runpy.run_module('undamped', run_name='__main__')\n"
        "except SystemExit as end:\n    assert not end.code\n"
        "print({'torch', 'numpy', 'numba'} & set(sys.modules))"
    )
    assert fresh(program).splitlines()[-1] == "set()"


@pytest.mark.process
def test_a_misspelt_name_imports_nothing():
    program = "import undamped, sys; before = set(sys.modules); hasattr(undamped, 'typo')"
    assert fresh(program + "; print(len(set(sys.modules) - before))") == "0\n"


def test_names_that_nobody_knows_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'coRNNN'"):
        undamped.coRNNN  # noqa: B018
    with pytest.raises(ImportError):
        from undamped.nn import coRNNN  # noqa: F401


@pytest.mark.process
def test_all_public_names_can_be_imported_at_once():
    fresh("from undamped import *; nn.coRNN(2, 3); odeint; build")
    fresh("from undamped.nn import *; coRNN(2, 3); UnICORNN")


@pytest.mark.process
def test_packages_are_loaded_when_they_are_asked_for():
    code = (
        "import sys, json, undamped\n"
        "before = [m for m in sys.modules if m.startswith('undamped.')]\n"
        "undamped.analysis.gradient_flow, undamped.ode.odeint\n"
        "undamped.lab.data, undamped.lab.tasks\n"
        "print(json.dumps(before))"
    )
    before = json.loads(fresh(code))
    assert not {"undamped.analysis", "undamped.ode", "undamped.lab.tasks"} & set(before)


@pytest.mark.process
def test_a_network_can_be_pickled_into_a_fresh_process(tmp_path):
    (tmp_path / "net").write_bytes(pickle.dumps(undamped.nn.coRNN(2, 3)))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'net')!r}, 'rb')))"
    assert fresh(code).startswith("coRNN(")


def test_a_registry_imports_the_module_of_a_name_and_no_other(tmp_path, monkeypatch):
    for name in ("alpha", "beta"):
        (tmp_path / f"letter_{name}.py").write_text(
            f"from letters import letters\n@letters.register('{name}')\ndef {name}(): ...\n"
        )
    index = {name: f"letter_{name}:{name}" for name in ("alpha", "beta")}
    (tmp_path / "letters.py").write_text(
        f"from undamped._base.registry import Registry\nletters = Registry('letter', {index})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("undamped._base.registry.source_of_module", lambda module: LIBRARY)
    letters = importlib.import_module("letters").letters
    assert list(letters) == ["alpha", "beta"] and "beta" in letters and len(letters) == 2
    assert letters.name_of(letters["beta"]) == "beta"
    assert "letter_beta" in sys.modules and "letter_alpha" not in sys.modules


def test_two_members_cannot_have_one_name():
    registry = Registry("thing", {})
    registry.register("one")(undamped.nn.LSTM)
    with pytest.raises(
        OptionError, match=r"thing 'one' of undamped: the name is taken by undamped"
    ):
        registry.register("one")(undamped.nn.GRU)
    with pytest.raises(
        OptionError, match=r"thing 'one' of the module .*: the name is taken by undamped"
    ):
        registry.register("one")(str)
