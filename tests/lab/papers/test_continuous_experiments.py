"""The experiments run at the smallest budget and report what they did."""

import json

import pytest

from undamped._base.errors import UndampedError
from undamped.lab.papers import annuli, densities, gradient_penalties


def test_annuli():
    lines = []
    result = annuli.run(epochs=1, seeds=(0,), points=64, hidden_size=4, progress=lines.append)
    assert len(lines) == 5 and {run.model for run in result.records} == set(annuli.MODELS)
    assert all(run.forward[0] > 0 and run.backward[0] > 0 for run in result.records)
    assert "HBNODE" in result.markdown() and json.dumps(result.to_dict())
    assert set(result.figures()) == {"annuli_evaluations", "annuli_flows"}


def test_densities():
    result = densities.run(names=("moons",), iterations=2, batch=16, hidden_size=4)
    assert "moons" in result.markdown() and json.dumps(result.to_dict())
    assert result.records[0].image.shape == (70, 70) and "densities" in result.figures()


def test_gradient_penalties(tmp_path):
    tiny = {"penalties": ("norm",), "weights": (1.0,)}
    tiny |= {"baselines": ("linear-antisymmetric-node",)}
    tiny |= {"depth": 1.0, "hidden_size": 3, "steps": 2, "seeds": 1, "out": str(tmp_path)}
    lines = []
    result = gradient_penalties.run(**tiny, progress=lambda *line: lines.append(line))
    assert len(result.records) == 3 == len(lines) and lines[-1][1] < 1
    assert {run.model for run in result.records} == {"node", "linear-antisymmetric-node"}
    assert result.records[-1].gradients.spread == pytest.approx(1, abs=1e-5)  # it only rotates
    assert "| node | norm | 1 |" in result.markdown() and json.dumps(result.to_dict())
    sentence = result.tables[0].title
    assert "points of accuracy" in sentence or "at every weight" in sentence
    assert set(result.figures()) == {"kept_gradients", "kept_gradients_cost"}
    folders = sorted(tmp_path.iterdir())
    repeated = gradient_penalties.run(**{**tiny, "penalties": (), "baselines": ()})
    assert sorted(tmp_path.iterdir()) == folders  # nothing is trained twice
    assert repeated.records[0].accuracy == result.records[0].accuracy
    for wrong in ({"model": "resnet"}, {"penalties": ("size",)}, {"baselines": ("lstm",)}):
        with pytest.raises(UndampedError, match=r"continuous depth|penalty"):
            gradient_penalties.run(**{**tiny, **wrong})
