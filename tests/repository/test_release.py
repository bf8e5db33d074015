"""Archives of a release are reproducible and complete; files about it agree on the version."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import undamped
from undamped.lab.training.origins import versions

ROOT = Path(__file__).parents[2]
VERSION = undamped.__version__


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """Both archives, built twice in different folders."""
    pytest.importorskip("hatchling")
    builds = []
    for name in ("first", "second"):
        folder = tmp_path_factory.mktemp(name)
        command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
        subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
        builds.append({path.name: path for path in folder.iterdir()})
    return builds


@pytest.mark.process
def test_two_builds_have_the_same_bytes(archives):
    first, second = (
        {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in build.items()}
        for build in archives
    )
    assert first == second
    assert sorted(first) == [
        f"undamped-{VERSION}-py3-none-any.whl",
        f"undamped-{VERSION}.tar.gz",
    ]


@pytest.mark.process
def test_archives_have_what_they_need(archives):
    wheel = zipfile.ZipFile(archives[0][f"undamped-{VERSION}-py3-none-any.whl"])
    names = wheel.namelist()
    for name in ("py.typed", "_index.json", "_catalogue.jsonl", "lab/report/assets/chart.js"):
        assert f"undamped/{name}" in names
    metadata = wheel.read(f"undamped-{VERSION}.dist-info/METADATA").decode()
    assert f"Version: {VERSION}\n" in metadata
    with tarfile.open(archives[0][f"undamped-{VERSION}.tar.gz"]) as sources:
        files = {name.partition("/")[2] for name in sources.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "tests/conftest.py"} <= files
    assert not any(name.startswith((".cache", "site/", "runs/")) for name in files)


def test_files_about_the_release_have_its_version():
    assert f"version: {VERSION}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'version: "{VERSION}"' in (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    history = json.loads((ROOT / "docs" / "history" / f"{VERSION}.json").read_text())
    assert history["version"] == VERSION
    assert versions()["undamped"] == VERSION  # also of an editable installation


def test_measurements_of_the_release_are_on_their_pages():
    history = json.loads((ROOT / "docs" / "history" / f"{VERSION}.json").read_text())
    for row in history["measurements"]:
        text = (ROOT / "docs" / row["page"]).read_text()
        assert row["command"] in text.replace("\n", " "), row["name"]
        assert {"name", "value", "unit", "better", "command", "page"} == set(row)


def test_pages_for_language_models_exist():
    text = (ROOT / "docs" / "llms.txt").read_text()
    generated = {"gallery", "models", "tasks", "solvers", "reference"}
    for address in re.findall(r"\]\(([\w/-]+)/\)", text):
        assert address in generated or (ROOT / "docs" / f"{address}.md").is_file(), address
