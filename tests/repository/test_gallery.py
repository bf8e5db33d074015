"""The programs of the gallery run and leave a figure."""

import ast
import runpy
from pathlib import Path

import matplotlib
import pytest

PROGRAMS = sorted((Path(__file__).parents[2] / "examples" / "gallery").glob("*.py"))


def test_there_are_twenty():
    assert len(PROGRAMS) >= 20


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_of_the_gallery_runs(program, tmp_path, monkeypatch):
    matplotlib.use("Agg")
    from matplotlib import pyplot

    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(program))
    assert hasattr(names.get("figure"), "savefig") or hasattr(names.get("result"), "save_figure")
    title, _, about = (ast.get_docstring(ast.parse(program.read_text())) or "").partition("\n\n")
    assert 5 < len(title) < 70 and about.endswith(".")
    assert not list(tmp_path.iterdir())
    pyplot.close("all")
