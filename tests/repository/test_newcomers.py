"""Four newcomers, from the README to a first result, with the number of commands they type.

Each finds a command or program in the README and runs it; settings are only added to make it short.
"""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from undamped.lab.cli import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
INSTALL = 1
"""Commands before the first one: `pip install`."""


@pytest.fixture
def newcomer(tmp_path, monkeypatch, capsys):
    """A function that runs a command in an empty folder and returns what it prints."""
    monkeypatch.chdir(tmp_path)
    typed = []

    def run(command, *settings):
        typed.append(command)
        program, *words = command.split()
        assert program == "undamped"
        monkeypatch.setattr(sys, "argv", [program, *words, *settings])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
        return capsys.readouterr().out

    run.typed = typed
    run.folder = tmp_path
    return run


def command_beside(words):
    """Return the first command in the row of the README's table that begins with some words."""
    row = next(line for line in README.splitlines() if line.startswith(f"| {words}"))
    return re.search(r"`(undamped [^`]+)`", row)[1]


def test_the_install_command_comes_first():
    assert README.index("pip install") < README.index("## What is in it")
    assert len(re.findall(r"^pip install .*&& undamped train$", README, re.M)) == INSTALL


def test_a_student_measures_why_a_network_forgets(capsys):
    """Two commands: install, python."""
    (program,) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    exec(compile(program, "README.md", "exec"), {})
    assert "Gradients" in capsys.readouterr().out
    assert len([line for line in program.splitlines() if line]) <= 6


@pytest.mark.slow
def test_an_engineer_classifies_recordings(newcomer):
    """Two commands: install, train."""
    random, rows = np.random.default_rng(0), ["id,value,label"]
    for index in range(40):
        label = ("slow", "fast")[index % 2]
        wave = np.sin((0.2, 0.6)[index % 2] * np.arange(60)) + 0.1 * random.normal(size=60)
        rows += [f"{index},{value:.3f},{label}" for value in wave]
    (newcomer.folder / "recordings.csv").write_text("\n".join(rows) + "\n")
    command = command_beside("recordings to classify")
    printed = newcomer(command, "model.candidates=bank")
    assert "accuracy on the test split" in printed and "%" in printed
    (page,) = newcomer.folder.glob("runs/*/report.html")
    text = page.read_text(encoding="utf-8")
    assert "Confusion matrix" in text and "naive baseline" in text
    assert page.stat().st_size < 1_000_000
    assert INSTALL + len(newcomer.typed) == 2


@pytest.mark.slow
def test_a_physicist_learns_a_pendulum(newcomer):
    """Two commands: install, train."""
    command = command_beside("a physical system")
    printed = newcomer(command, "train.steps=5", "--page", "none", "--json")
    result = json.loads(printed)
    assert result["status"] == "finished"
    assert "test" in result["result"] and "chance" in result["result"]
    assert INSTALL + len(newcomer.typed) == 2


def test_a_teacher_finds_notebooks_and_programs():
    """Two commands: install, jupyter; the first cell draws the figure of the lesson."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    path = re.search(r"\| a class to teach \|.*?\]\((examples/[\w/-]+\.ipynb)\)", README)[1]
    cells = json.loads((ROOT / path).read_text(encoding="utf-8"))["cells"]
    first = next(cell for cell in cells if cell["cell_type"] == "code")
    names = {}
    exec(compile("".join(first["source"]).replace("plt.show()", ""), path, "exec"), names)
    assert len(names["axes"].lines) >= 3
    assert len(list((ROOT / "examples" / "gallery").glob("*.py"))) >= 20


def test_a_course_has_six_lessons_with_questions_and_answers():
    lessons = sorted((ROOT / "examples" / "course").glob("*.ipynb"))
    assert len(lessons) == 6
    for index, lesson in enumerate(lessons):
        cells = json.loads(lesson.read_text(encoding="utf-8"))["cells"]
        text = "".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")
        assert re.findall(r"\*\*Question (\d)\.\*\*", text) == ["1", "2", "3"]
        assert len(re.findall(r"^\d\. ", text.split("Answers</summary>")[1], re.M)) == 3
        if index < 5:
            assert f"]({lessons[index + 1].name})" in text
        for target in re.findall(r"\]\(([^)#]+)", text):
            assert (lesson.parent / target).is_file(), target
