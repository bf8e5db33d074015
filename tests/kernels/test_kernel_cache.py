"""The cache of compiled kernels: whatever happens to it, networks run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba.core import caching, config, event

from undamped.kernels.shared import jit

RUN = (
    "import torch, undamped\n"
    "output, _ = undamped.nn.IndRNN(3, 4)(torch.ones(5, 2, 3))\n"
    "output.sum().backward()\n"
    "print(float(output.sum().isfinite()))"
)


def run(folder: Path) -> str:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    result = subprocess.run(
        [sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stderr == "", "progress is for terminals"
    return result.stdout


def twice(x):
    return x + x


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("left", [0, 20])
def test_a_damaged_file_is_replaced(tmp_path, monkeypatch, ending, left):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    assert jit.njit(cache=True)(twice)(2.0) == 4.0
    full = {path: path.read_bytes() for path in tmp_path.rglob(f"*.{ending}")}
    assert full
    for path, content in full.items():
        path.write_bytes(content[:left])
    assert jit.njit(cache=True)(twice)(2.0) == 4.0
    assert all(len(path.read_bytes()) > left for path in tmp_path.rglob(f"*.{ending}"))
    repeated = jit.njit(cache=True)(twice)
    assert repeated(2.0) == 4.0 and sum(repeated.stats.cache_hits.values()) == 1


@pytest.mark.process
def test_whole_networks_survive_rubbish_in_the_cache(tmp_path):
    assert run(tmp_path) == "1.0\n"
    files = [path for path in tmp_path.rglob("*.nb?") if path.is_file()]
    assert files
    for path in files:
        path.write_bytes(b"rubbish")
    assert run(tmp_path) == "1.0\n"


def test_without_a_place_that_can_be_written(tmp_path, monkeypatch):
    """Package and home are read-only: a folder in the temporary place, or no cache at all."""
    places = caching.CompileResultCacheImpl._locator_classes
    only = [place for place in places if "UserProvided" in place.__name__]
    monkeypatch.setattr(caching.CompileResultCacheImpl, "_locator_classes", only)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(jit.tempfile, "gettempdir", lambda: str(tmp_path))
    assert jit.njit(cache=True)(twice)(2.0) == 4.0
    assert list(tmp_path.rglob("*.nbc")), "kept in the temporary place"
    assert jit.config.CACHE_DIR == "", "as it was"
    monkeypatch.setattr(jit.tempfile, "gettempdir", lambda: str(tmp_path / "missing"))
    assert jit.njit(cache=True)(twice)(np.float32(2)) == 4.0


def test_a_folder_others_can_write_to_is_not_trusted(tmp_path, monkeypatch):
    monkeypatch.setattr(jit.tempfile, "gettempdir", lambda: str(tmp_path))
    place = jit._temporary_place()
    assert place is not None
    place.chmod(0o777)
    assert jit._temporary_place() is None


def test_a_full_disk_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def fail(*_):
        raise OSError("no space left")

    monkeypatch.setattr(caching.IndexDataCacheFile, "save", fail)
    assert jit.njit(cache=True)(twice)(2.0) == 4.0


def test_a_terminal_is_told_what_is_compiled(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    def own(x):
        return x * x

    own.__module__ = "undamped.kernels.own"
    with event.install_listener("numba:compile", jit._Compiling(delay=0.0)):
        assert jit.njit()(own)(3.0) == 9.0
    assert "compiling own for this machine" in capsys.readouterr().err


def test_a_kernel_that_could_not_be_kept_is_refused():
    part = jit.njit()(lambda x: x + 1)

    def loop(x):
        return part(x)

    with pytest.raises(TypeError, match="the compiled function part"):
        jit.njit(cache=True)(loop)
    assert jit.njit()(loop)(1) == 2
