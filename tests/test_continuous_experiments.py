"""The experiments run at the smallest budget and report what they did."""

import json

from undamped.experiments import annuli, densities


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
