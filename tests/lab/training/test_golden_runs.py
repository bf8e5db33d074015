"""Run folders of earlier releases are read, and give the answers that their release gave."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from undamped._base.errors import RunError
from undamped.lab.data.recordings.read import read_recordings
from undamped.lab.files import read_tensors, write_tensors
from undamped.lab.training import Run
from undamped.lab.training.prediction import predict_series

GOLDEN = Path(__file__).parents[2] / "golden"
RUNS = sorted(path.parent for path in GOLDEN.glob("*/*/run.json"))


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_run_of_an_earlier_release_gives_its_answers(folder):
    run = Run.open(folder)
    preparation, columns = run.preparation(), run.settings["columns"]
    timed = "time" in columns
    assert preparation.timestamps == timed
    roles = {role: columns[role] for role in ("target", "id", "time") if role in columns}
    data = read_recordings(folder.parent / ("times.csv" if timed else "waves.csv"), **roles)
    outputs = np.concatenate(predict_series(run.model(), preparation, data))
    answers = preparation.answer(outputs)
    expected = json.loads((folder / "expected.json").read_text())
    for name, answer, entry in zip(data.ids, answers, expected, strict=True):
        assert (name, answer["label"]) == (entry["id"], entry["label"])
        assert answer["probabilities"] == pytest.approx(entry["probabilities"], abs=1e-6)
    assert sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) < 100_000


def test_every_release_has_golden_runs():
    assert {path.parent.name for path in RUNS} == {"0.1.0"}


def test_files_of_later_formats_are_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"x": torch.ones(2)}, {"author": "me"})
    assert read_tensors(path)[1] == {"author": "me"}
    write_tensors(path, {"x": torch.ones(2)})
    content = path.read_bytes().replace(b'"undamped_format":"1"', b'"undamped_format":"2"')
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"has format 2.*update undamped"):
        read_tensors(path)
    shutil.copytree(RUNS[0], tmp_path / "run")
    settings = json.loads((tmp_path / "run" / "run.json").read_text())
    (tmp_path / "run" / "run.json").write_text(json.dumps({**settings, "format": 2}))
    with pytest.raises(RunError, match="must have run format 1, got 2"):
        Run.open(tmp_path / "run")
