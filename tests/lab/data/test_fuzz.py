"""Damaged files: every parser reads them or refuses them in a sentence."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="limits of processes are POSIX's")


@pytest.mark.process
def test_every_parser_survives_damaged_files():
    command = [
        sys.executable,
        str(Path(__file__).parents[2] / "support" / "fuzz.py"),
        "--files",
        "200",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("| 200 |") == 21
