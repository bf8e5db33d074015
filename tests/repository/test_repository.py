"""The house: light imports, documentation that runs, a README that tells the truth."""

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

import undamped
from undamped._base.docstrings import sections
from undamped._base.registry import models

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
HEAVY = (
    "lightning",
    "numba",
    "sklearn",
    "scipy",
    "matplotlib",
    "plotly",
    "pandas",
    "optuna",
    "rich",
)


def readme_commands():
    lines = (ROOT / "README.md").read_text().splitlines()
    return [line for line in lines if line.startswith("pip install")]


@pytest.mark.process
def test_import_is_light():
    code = "import sys, json, undamped; print(json.dumps(sorted(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(said.stdout))
    assert not loaded & set(HEAVY)


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda p: p.stem)
def test_tutorials_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space: dict = {"__name__": page.stem}
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S):
        exec(compile(block, str(page), "exec"), space)


def test_readme_python_runs():
    (block,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    exec(compile(block, "README.md", "exec"), {})


@pytest.mark.parametrize("name", list(models))
def test_examples_in_docstrings_run(name):
    example = sections(models[name]).get("Example")
    assert example, f"{name} has no example"
    import doctest

    test = doctest.DocTestParser().get_doctest(
        example, {"torch": torch, "undamped": undamped}, name, None, 0
    )
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_readme_has_the_two_commands():
    assert readme_commands() == [
        "pip install -c constraints.txt '.[lab]' && undamped train",
        "pip install -c constraints.txt '.[dev]' && pytest -n auto",
    ]


@pytest.mark.process
def test_readme_first_command(tmp_path):
    """Install into a folder of its own, then train with a smaller budget."""
    install, train = readme_commands()[0].split(" && ")
    words = shlex.split(install)
    quiet = ["--no-deps", "--no-build-isolation", "--quiet", "--target", str(tmp_path / "site")]
    subprocess.run(
        [sys.executable, "-m", *words, *quiet, "--disable-pip-version-check"], cwd=ROOT, check=True
    )
    verb = train.split()[1:]
    budget = ["task.test_lengths=64,128", "task.sequences=20", "train.steps=6"]
    said = subprocess.run(
        [sys.executable, "-m", "undamped", *verb, *budget],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert said.returncode == 0, said.stderr
    for word in ("latch", "chance level", "lstm", "What to try next", "runs/flags"):
        assert word in said.stdout
    assert (tmp_path / "runs" / "flags-lstm-1" / "model.safetensors").exists()


def test_ci_runs_the_readme_command():
    text = (ROOT / ".ci" / "run").read_text()
    assert "README.md" in text and "mkdocs build --strict" in text
    assert "--quiet" not in text, "it hides warnings from --strict"


def test_documents_and_workflows_build_the_site_in_the_same_way():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    workflow = (ROOT / ".github" / "workflows" / "docs.yml").read_text()
    for words in ("pip install -c constraints.txt '.[docs]'", "mkdocs build --strict"):
        assert words in guide and words in workflow
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "undamped[all]" in extras["optional-dependencies"]["docs"]


def test_every_public_function_is_documented():
    for name in undamped.__all__:
        member = getattr(undamped, name)
        if not isinstance(member, str):
            assert inspect.getdoc(member), name
