"""Public names: made of the registries on demand, and told to editors by stubs."""

import json
import pickle
import subprocess
import sys

import pytest

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import Registry, models
from undamped._base.stubs import PACKAGES, stub, stub_path


def fresh(code: str) -> str:
    """Run a program in a process where nothing is loaded yet."""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    return said.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_stubs_are_what_the_command_writes(package):
    written = stub_path(package).read_text(encoding="utf-8")
    assert written == stub(package), "run 'python -m undamped._base.stubs'"


def test_every_model_is_a_public_name():
    for name in models:
        assert getattr(undamped, models[name].__name__) is models[name]
        assert models[name].__name__ in dir(undamped)


def test_names_that_nobody_knows_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'coRNNN'"):
        undamped.coRNNN  # noqa: B018
    with pytest.raises(ImportError):
        from undamped.nn import coRNNN  # noqa: F401


def test_all_public_names_can_be_imported_at_once():
    fresh("from undamped import *; coRNN(2, 3); odeint; UnICORNN")


def test_rooms_are_loaded_when_they_are_asked_for():
    code = (
        "import sys, json, undamped\n"
        "before = [m for m in sys.modules if m.startswith('undamped.')]\n"
        "undamped.analysis.gradient_flow, undamped.ode.odeint, undamped.lab.data, undamped.lab.tasks\n"
        "print(json.dumps(before))"
    )
    before = json.loads(fresh(code))
    assert not {"undamped.analysis", "undamped.ode", "undamped.lab.tasks"} & set(before)


def test_a_network_made_of_a_declaration_can_be_pickled_into_a_fresh_process(tmp_path):
    (tmp_path / "net").write_bytes(pickle.dumps(undamped.nn.coRNN(2, 3)))
    code = f"import pickle; print(pickle.load(open({str(tmp_path / 'net')!r}, 'rb')))"
    assert fresh(code).startswith("coRNN(")


def test_a_registry_imports_its_package_when_first_asked(tmp_path, monkeypatch):
    package = tmp_path / "many_letters"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from undamped._base.registry import Registry\nletters = Registry('letter', __name__)\n"
    )
    (package / "inner" / "__init__.py").write_text("")
    for place, name in ((package, "alpha"), (package / "inner", "beta")):
        (place / f"{name}.py").write_text(
            f"from many_letters import letters\n@letters.register('{name}')\ndef {name}(): ...\n"
        )
    monkeypatch.syspath_prepend(tmp_path)
    import many_letters

    assert "many_letters.alpha" not in sys.modules
    assert list(many_letters.letters) == ["alpha", "beta"]
    assert many_letters.letters.name_of(many_letters.letters["beta"]) == "beta"


def test_two_members_cannot_have_one_name():
    registry = Registry("thing")
    registry.register("one")(undamped.nn.LSTM)
    with pytest.raises(ValueError, match="two things want the name 'one'"):
        registry.register("one")(undamped.nn.GRU)
    with pytest.raises(OptionError, match=r"thing 'one' of the module .*, got one that undamped"):
        registry.register("one")(str)
