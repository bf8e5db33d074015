"""Models of single vectors are trained, resumed and refused like all others."""

import pytest

from undamped.errors import OptionError
from undamped.training import Run, fit, resume

QUICK = {"steps": 4, "batch_size": 16, "validate_every": 2}


@pytest.mark.parametrize("task", ["annuli", "spirals"])
def test_a_neural_ode_is_trained_and_its_evaluations_are_logged(task, tmp_path):
    run = fit("hbnode", task, model_options={"hidden_size": 8}, train=QUICK, out=tmp_path,
              progress=False)  # fmt: skip
    assert 0 <= run.result["test"]["accuracy"] <= 1
    rows = run.metrics()
    assert all(row["evaluations"] > 0 for row in rows)
    again = Run.open(run.path).model()
    batch = run.task().batch("test", 0, 5)
    assert again(batch.inputs).shape == (5, 2)
    run.update(status="interrupted")
    assert resume(run.path, progress=False).result["test"] == run.result["test"]


def test_sequences_and_points_are_not_mixed_up(tmp_path):
    with pytest.raises(OptionError, match="no sequences"):
        fit("lstm", "annuli", train=QUICK, out=tmp_path)
    with pytest.raises(OptionError, match="input is a sequence"):
        fit("node", "copy", train=QUICK, out=tmp_path)
    assert list(tmp_path.iterdir()) == []
