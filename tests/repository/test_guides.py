"""The programs of guides run as they are printed, and print what the pages say."""

import re
import warnings
from pathlib import Path

import pytest

import undamped
from undamped._base.registry import models

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [
    "coming-from-aeon.md",
    "coming-from-lstm.md",
    "coming-from-nixtla.md",
    "coming-from-state-space-models.md",
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


def test_models_of_the_guides_exist():
    text = "".join(
        (DOCS / page).read_text(encoding="utf-8") for page in ("choose.md", "compare.md")
    )
    linked = set(re.findall(r"\]\(models/([\w-]+)\.md\)", text))
    assert len(linked) > 15 and not [name for name in linked if name not in models]


# The beginning of a message in the source, without what depends on the case.
@pytest.mark.parametrize(
    "message",
    [
        "No such run folder",
        "the first values that are not finite are in",
        "is not finite, but the loss is",
        "The problem is stiff",
        "The series are too short for a",
        "X must have the channels",
        "Symbols must be integers from 0 to",
        "Export needs the package",
        "No such GPU",
    ],
)
def test_errors_of_the_faq_exist(message):
    source = DOCS.parent / "src" / "undamped"
    assert any(message in path.read_text(encoding="utf-8") for path in source.rglob("*.py"))
    words = (DOCS / "faq.md").read_text(encoding="utf-8").replace("…; the first", "; the first")
    assert message.lower() in words.lower()


def test_every_rule_of_the_doctor_is_on_its_page():
    from undamped.analysis.examination.rules import RULES

    text = (DOCS / "tutorials/why-does-my-network-forget.md").read_text(encoding="utf-8")
    assert not [rule.name for rule in RULES if rule.name not in text]
    assert undamped.doctor.__doc__
