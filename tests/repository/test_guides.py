"""The programs of guides run as they are printed, and print what the pages say."""

import re
import warnings
from pathlib import Path

import pytest

import undamped

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "coming-from-lstm.md",
    "coming-from-torchdiffeq.md",
    "tutorials/why-does-my-network-forget.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_guide_run(page, capsys):
    text = (DOCS / page).read_text(encoding="utf-8")
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.S))
    assert "undamped" in program
    with warnings.catch_warnings():
        exec(compile(program, page, "exec"), {"__name__": "guide"})
    printed = capsys.readouterr().out
    for block in re.findall(r"```text\n(.*?)```", text, re.S):
        for line in block.splitlines():
            words = re.sub(r"\(.*\)|\d\S*", "", line)  # numbers depend on the machine
            assert words.strip() in re.sub(r"\(.*\)|\d\S*", "", printed)


def test_every_rule_of_the_doctor_is_on_its_page():
    from undamped.analysis.examination.rules import RULES

    text = (DOCS / "tutorials/why-does-my-network-forget.md").read_text(encoding="utf-8")
    assert not [rule.name for rule in RULES if rule.name not in text]
    assert undamped.doctor.__doc__
