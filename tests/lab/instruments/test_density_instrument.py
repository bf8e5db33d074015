"""The density of a flow, drawn: right where it is known, and on the page of a run."""

import math

import numpy as np
import pytest
import torch

import undamped
from undamped._base.registry import instruments, tasks
from undamped.analysis import InapplicableError, Probe
from undamped.lab import report
from undamped.lab.instruments.density import density
from undamped.models import PointModel


def still(size):
    """A flow that does not move: its density is the normal one."""
    flow = undamped.models.FFJORD(size, hidden_size=4, method="rk4", step_size=0.25)
    for parameter in flow.field.parameters():
        torch.nn.init.zeros_(parameter)
    return flow


def test_a_flow_at_rest_has_a_normal_density():
    points = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
    result = density(still(2), points, resolution=40)
    x, y = np.meshgrid(result.across, result.upwards)
    expected = np.exp(-(x**2 + y**2) / 2) / (2 * math.pi)
    np.testing.assert_allclose(result.density, expected, rtol=1e-4)
    assert result.across[0] < points[:, 0].min() and result.upwards[-1] > points[:, 1].max()
    assert 0.98 < result.mass < 1.001
    exact = float(points.double().pow(2).sum(1).mean()) / 2 + math.log(2 * math.pi)
    assert result.nll == pytest.approx(exact, rel=1e-5)
    assert result.samples.shape == (200, 2) and abs(result.samples.std() - 1) < 0.15


def test_more_dimensions_are_seen_by_their_samples():
    points = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    result = density(still(3), points, resolution=12)
    assert result.density.shape == (12, 12) and 0.9 < result.mass <= 1.0
    assert "first two of 3 features" in result.sentence


def test_what_has_no_density_over_a_plane_says_so():
    measure = instruments["density"].measure
    for model, reason in (
        (undamped.models.NODE(2, 2), "no density"),
        (still(1), "single dimension"),
        (undamped.models.FFJORD(2, hidden_size=4, context_size=3), "a condition"),
    ):
        with pytest.raises(InapplicableError, match=reason):
            measure(Probe(model, torch.randn(4, 2)))


def test_the_page_of_a_density_shows_it():
    task = tasks["density"]("rings")
    options = {"hidden_size": 4, "method": "rk4", "step_size": 0.25}
    model = PointModel.for_task(task.task_shape, "ffjord", options)
    result = report.diagnose(
        model, task.batch("test", 0, 8).inputs, task=task, measured=["density"], compare=False
    )
    page = report.page([result])
    assert 'id="plot-density"' in page and "for a normal distribution" in page
