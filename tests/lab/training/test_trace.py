"""How much code a training runs: distinct functions and files of this library.

Every reader of a training has to follow these calls, so their number is limited. Functions that run
while modules are imported do not count, and neither do comprehensions.
"""

import json
import subprocess
import sys

import pytest

TRACE = """
import json
import sys
from pathlib import Path

import undamped
from undamped.__main__ import main

ROOT = str(Path(undamped.__file__).parent)
calls, importing = set(), 0


def profile(frame, event, argument):
    global importing
    code = frame.f_code
    if code.co_name == "_find_and_load" and event in ("call", "return"):
        importing += 1 if event == "call" else -1
    elif event == "call" and not importing and code.co_filename.startswith(ROOT):
        if not code.co_name.startswith("<") or code.co_name == "<lambda>":
            calls.add((code.co_filename, code.co_qualname, code.co_firstlineno))


sys.setprofile(profile)
try:
    main()
except SystemExit as end:
    assert not end.code
finally:
    sys.setprofile(None)
print()
print(json.dumps([len(calls), len({file for file, *_ in calls})]))
"""


@pytest.mark.process
def test_a_training_runs_a_limited_number_of_functions(tmp_path):
    words = ["train", "digits", "unicornn", "train.steps=3", "--out", str(tmp_path), "--no-page"]
    process = subprocess.run(
        [sys.executable, "-c", TRACE, *words], capture_output=True, text=True, check=True
    )
    functions, files = json.loads(process.stdout.strip().splitlines()[-1])
    assert 100 < functions <= 450
    assert 20 < files <= 90
