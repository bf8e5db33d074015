"""What the pages on continuous depth, norms and physics show as code runs, block after block."""

import re
from pathlib import Path

import pytest
from plotly.graph_objects import Figure

PAGES = [
    Path(__file__).parents[2] / "docs" / name
    for name in ("continuous.md", "norms.md", "physics.md")
]
BLOCKS = [
    (page.name, block)
    for page in PAGES
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
]


def test_there_are_blocks():
    for page in PAGES:
        found = [name for name, _ in BLOCKS if name == page.name]
        assert len(found) == page.read_text().count("```python") >= 1


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_page_runs(number, monkeypatch, tmp_path):
    shown = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Figure, "show", lambda self, *args, **options: shown.append(self))
    name, block = BLOCKS[number]
    exec(compile(block, f"{name}, block {number + 1}", "exec"), {})
    assert len(shown) == block.count(".show()")
