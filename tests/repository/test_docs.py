"""The site's generated parts: every public name has an entry, and equations become mathematics."""

import importlib
import inspect
import re
import sys
import unicodedata
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from undamped.lab.catalogue import REGISTRIES, describe_entry

sys.path.insert(0, str(Path(__file__).parents[2] / "docs"))
import mathematics
import reference

EQUATIONS = [
    pytest.param(about["equation"], id=f"{kind}-{name}")
    for kind, registry in REGISTRIES.items()
    for name in registry
    if (about := describe_entry(name, registry)).get("equation")
]


@pytest.fixture(scope="module")
def pages():
    return reference.pages()


def test_the_packages_that_people_import_from_have_a_page(pages):
    library = ("nn", "ode", "ode.fields", "models", "parametrizations", "analysis", "extend")
    lab = ("lab.tasks", "lab.training", "lab.estimators", "lab.report", "lab.data")
    for package in ("undamped", *(f"undamped.{name}" for name in (*library, *lab))):
        assert f"reference/{package}.md" in pages


@pytest.mark.parametrize("package", reference.packages())
def test_every_public_name_has_an_entry_that_says_something(package, pages):
    page = pages[f"reference/{package}.md"]
    for name in reference.public_names(package):
        member = getattr(importlib.import_module(package), name)
        heading = rf"^(### {name}|::: \S+\.{getattr(member, '__name__', name)})$"
        assert re.search(heading, page, re.M), name
        if inspect.isclass(member) or inspect.isroutine(member):
            assert len(inspect.getdoc(member) or "") > 10, f"{package}.{name} has no docstring"
    for path in re.findall(r"^::: (\S+)$", page, re.M):
        if not path.startswith("undamped.lab.estimators.aeon"):  # needs a library of its own
            module, _, name = path.rpartition(".")
            assert hasattr(importlib.import_module(module), name)


def plain(text):
    """Letters and signs of a formula, without what only says where they stand."""
    text = re.sub(r"√\(((?:[^()]|\([^()]*\))*)\)", r"\1", text)  # a root needs no brackets
    small = {**mathematics.SUPERSCRIPTS, **mathematics.SUBSCRIPTS}
    text = "".join(small.get(character, character) for character in text)
    return re.sub(r"[\s_^{}√]", "", unicodedata.normalize("NFC", text)).replace("'", "′")


@pytest.mark.parametrize("text", EQUATIONS)
def test_equations_lose_nothing_on_their_way_to_mathematics(text):
    root = ET.fromstring(f"<div>{mathematics.equation(text)}</div>")
    lines = [line for line in text.splitlines() if line.strip()]
    assert len(root) == len(lines)
    for shown, line in zip(root, lines, strict=True):
        # Sub- and superscripts of one symbol may change places.
        assert sorted(plain("".join(shown.itertext()))) == sorted(plain(line))


def test_symbols_stand_where_they_belong():
    assert "<msub><mi>W</mi><mrow><mi>h</mi><mi>h</mi></mrow></msub>" in mathematics.formula("W_hh")
    both = mathematics.formula("v_iᵀ")
    assert "<msubsup><mi>v</mi><mi>i</mi><mi>T</mi></msubsup>" in both
    assert "<msqrt><mrow><mi>m</mi>" in mathematics.formula("√(m + δ)")
    assert "<mtext>\u00a0for\u00a0</mtext>" in mathematics.formula("x for y")
    assert 'alttext="a &lt; b"' in mathematics.formula("a < b")
