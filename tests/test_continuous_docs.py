"""What docs/continuous.md shows as code runs, block after block."""

import re
from pathlib import Path

import pytest
from plotly.graph_objects import Figure

PAGE = Path(__file__).parent.parent / "docs" / "continuous.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def test_there_are_blocks():
    assert len(BLOCKS) == PAGE.read_text().count("```python") >= 2


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_the_page_runs(number, monkeypatch, tmp_path):
    shown = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Figure, "show", lambda self, *args, **options: shown.append(self))
    exec(compile(BLOCKS[number], f"continuous.md, block {number + 1}", "exec"), {})
    assert len(shown) == BLOCKS[number].count(".show()")
