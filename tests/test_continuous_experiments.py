"""The experiments run at the smallest budget and report what they did."""

import json

import pytest

from undamped._base.errors import UndampedError
from undamped.lab.papers import annuli, densities, kept_gradients


def test_annuli():
    ticks = []
    result = annuli.run(epochs=1, seeds=(0,), points=64, hidden_size=4, tick=ticks.append)
    assert len(ticks) == 5 and {run.model for run in result.runs} == set(annuli.CONTESTANTS)
    assert all(run.forward[0] > 0 and run.backward[0] > 0 for run in result.runs)
    assert "HBNODE" in result.markdown() and json.dumps(result.to_dict())
    assert set(result.figures()) == {"annuli_evaluations", "annuli_flows"}


def test_densities():
    result = densities.run(names=("moons",), iterations=2, batch=16, hidden_size=4)
    assert "moons" in result.markdown() and json.dumps(result.to_dict())
    assert result.runs[0].image.shape == (70, 70) and "densities" in result.figures()


def test_kept_gradients(tmp_path):
    tiny = {"kept": ("norm",), "weights": (1.0,), "beside": ("linear-antisymmetric-node",)}
    tiny |= {"depth": 1.0, "hidden_size": 3, "steps": 2, "seeds": 1, "out": str(tmp_path)}
    told = []
    result = kept_gradients.run(**tiny, tick=lambda *said: told.append(said))
    assert len(result.runs) == 3 == len(told) and told[-1][1] < 1
    assert {run.model for run in result.runs} == {"node", "linear-antisymmetric-node"}
    assert result.runs[-1].gradients.spread == pytest.approx(1, abs=1e-5)  # it only turns
    assert "| node | norm | 1 |" in result.markdown() and json.dumps(result.to_dict())
    assert "points of accuracy" in result.sentence or "at every weight" in result.sentence
    assert set(result.figures()) == {"kept_gradients", "kept_gradients_cost"}
    folders = sorted(tmp_path.iterdir())
    again = kept_gradients.run(**{**tiny, "kept": (), "beside": ()})
    assert sorted(tmp_path.iterdir()) == folders  # nothing is trained twice
    assert again.runs[0].accuracy == result.runs[0].accuracy
    for wrong in ({"model": "resnet"}, {"kept": ("size",)}, {"beside": ("lstm",)}):
        with pytest.raises(UndampedError, match=r"continuous depth|penalty"):
            kept_gradients.run(**{**tiny, **wrong})
