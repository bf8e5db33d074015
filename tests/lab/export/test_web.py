"""The page with a model as WebAssembly, in a real browser without a network."""

import importlib
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.export.test_c import VARIANTS
from undamped._base.errors import OptionError
from undamped.lab import cli
from undamped.lab.export import Subject
from undamped.lab.export.c.selftest import expected_answers
from undamped.lab.export.c.web import export_web
from undamped.lab.export.onnx_file import random_samples

DOCS = str(Path(__file__).parents[3] / "docs")
CHROMIUM = shutil.which("chromium")
TOOLS = pytest.mark.skipif(
    not (shutil.which("clang") and shutil.which("wasm-ld")), reason="clang or lld is not installed"
)


def test_missing_tools_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(OptionError, match="needs clang"):
        export_web(VARIANTS["lstm"], tmp_path / "page.html", "m")
    assert not list(tmp_path.iterdir())


@TOOLS
def test_names_cannot_leave_the_script(tmp_path):
    hostile = ("</script><script>alert(1)</script>", "<b>", "x", "y")
    subject = Subject(VARIANTS["scaled"].model, VARIANTS["scaled"].preparation, hostile)
    export_web(subject, tmp_path / "page.html", "<i>&")
    page = (tmp_path / "page.html").read_text()
    assert page.count("</script>") == 1 and "<i>&" not in page and "http" not in page


@TOOLS
def test_names_may_be_those_of_the_template(tmp_path):
    subject = Subject(VARIANTS["scaled"].model, VARIANTS["scaled"].preparation, ("TITLE", "b"))
    export_web(subject, tmp_path / "page.html", "MODEL")
    page = (tmp_path / "page.html").read_text()
    assert "<title>MODEL</title>" in page and '"TITLE"' in page and 'const model = {"wasm"' in page


@TOOLS
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_the_page_answers_as_pytorch_does(tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        for name in ("scaled", "rellstm", "bank_stamped", "number"):
            check_page(browser.new_context(offline=True).new_page(), name, tmp_path)
        browser.close()


def check_page(page, name, folder):
    subject, problems = VARIANTS[name], []
    page.on("pageerror", lambda error: problems.append(str(error)))
    export_web(subject, folder / f"{name}.html", name)
    samples, times = random_samples(subject, 30, 1, np.random.default_rng(4))
    samples, times = samples[0], None if times is None else times[0]
    prepared = subject.preparation
    names = ["channel 0", "channel 1", "channel 2"] if prepared is None else prepared.raw_channels
    lines = [",".join([*names, "time"])]
    for at, row in enumerate(samples):
        fields = ["" if np.isnan(value) else f"{value:.9g}" for value in row]
        lines.append(",".join([*fields, "" if times is None else f"{times[at]:.17g}"]))
    (folder / "data.csv").write_text("\n".join(lines))
    page.goto((folder / f"{name}.html").as_uri())
    page.evaluate("ready")
    page.set_input_files("#file", folder / "data.csv")
    page.wait_for_selector("#answers tr")
    assert "30 samples" in page.inner_text("#status")
    found = page.evaluate("[...answers]")
    expected = expected_answers(subject, samples, times)[-1]
    assert np.abs(np.array(found) - expected).max() < 1e-5 * max(1, np.abs(expected).max())
    if name == "bank_stamped":
        page.evaluate("""read('"unused",b,time\\n1,2,3')""")
        assert page.inner_text("#status") == "The file has no column 'a'."
        page.evaluate("read('time,b,\"unused\",a\\n2,1,1,1000\\n1,1,1,1000\\n3,1,1,1000')")
        assert "1 samples were refused. 2 samples" in page.inner_text("#status")
    page.click("#mouse")
    page.mouse.move(50, 60)
    page.mouse.move(80, 90)
    assert re.search(r"Mouse: [1-9]", page.inner_text("#status"))
    assert not problems


@TOOLS
@pytest.mark.browser
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
def test_readers_can_play_with_the_flags(tmp_path, monkeypatch):
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    monkeypatch.syspath_prepend(DOCS)
    play = importlib.import_module("play")
    assert play.flags(tmp_path / "flags.html") < 60_000
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_context(offline=True).new_page()
        page.goto((tmp_path / "flags.html").as_uri())
        page.evaluate("ready")
        presses = ["reset red", "set blue", "reset green", "set red", "set green", "reset blue"]
        for label in presses:
            page.click(f"text='{label}'")
            page.click("text='300 distractors'")
        answers = page.evaluate("[...answers].map((value, at) => [value, model.labels[at]])")
        browser.close()
    assert max(answers)[1] == "red and green"
    assert max(answers)[0] > 0.9


def test_the_page_of_the_documentation_says_what_is_missing(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    play = importlib.import_module("play")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "needs clang" in play.page()


@TOOLS
def test_a_page_on_the_command_line(tmp_path):
    words = ["digits", "unicornn", "task.length=20", "model.hidden_size=6", "train.steps=2"]
    assert CliRunner().invoke(cli.app, ["train", *words, "--out", str(tmp_path)]).exit_code == 0
    run = tmp_path / "digits-unicornn-1"
    assert CliRunner().invoke(cli.app, ["export", str(run), "--web"]).exit_code == 0
    assert (run / "model.html").is_file()
    refused = CliRunner().invoke(cli.app, ["export", str(run), "--web", "--out", "page.txt"])
    assert "ends in .html" in str(refused.exception)
