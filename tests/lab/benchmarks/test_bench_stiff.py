"""The stiff test set: both ways of writing a field agree, and the benchmark says what it found."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from undamped.lab.benchmarks import stiff
from undamped.lab.benchmarks.stiff import problems
from undamped.ode import solve


@pytest.mark.parametrize("problem", problems(quick=False), ids=lambda problem: problem.name)
def test_the_torch_field_is_the_numpy_field(problem):
    states = problem.start * (1 + 0.1 * np.arange(3))[:, None] + 0.01
    found = problem.field(torch.tensor(0.0), torch.from_numpy(states))
    wanted = np.stack([problem.plain(0.0, state) for state in states])
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-12, atol=1e-12)


def test_the_table_has_a_line_for_every_problem():
    result = stiff.run(quick=True, batch=2, rounds=1, tolerance=1e-2)
    assert [record.problem for record in result.records] == ["Robertson", "HIRES"]
    assert all(record.call_ratio < 1.5 for record in result.records)
    assert result.markdown().count("\n|") == 3
    assert set(result.settings) == {"batch", "method", "quick", "rounds", "threads", "tolerance"}
    assert list(result.figures()) == ["stiff_seconds"]


# Hairer and Wanner's reference solutions.
ENDS = {
    "Robertson": (0.2083340149701255e-07, 0.8333360770334713e-13, 0.9999999791665050),
    "HIRES": (0.7371312573325668e-3, 0.1442485726316185e-3, 0.5888729740967575e-4),
    "Van der Pol": (0.1706167732170483e1, -0.8928097010247975),
    "Oregonator": (0.1000814870318523e1, 0.1228178521549917e4, 0.1320554942846706e3),
}


@torch.no_grad()
@pytest.mark.parametrize("problem", problems(quick=False)[:4], ids=lambda problem: problem.name)
def test_radau5_reaches_the_published_solutions(problem):
    start, end = torch.from_numpy(problem.start), problem.end
    wanted = np.array(ENDS[problem.name])
    if problem.name == "HIRES":
        assert end == 321.8122
    found = solve(problem.field, start, [0.0, end], method="radau5", rtol=1e-4, atol=1e-10)
    np.testing.assert_allclose(found.final.numpy()[: len(wanted)], wanted, rtol=1e-3)
    assert found.success and found.statistics.rejected < 0.2 * found.accepted


EARLY = {"HIRES": 0.2, "Van der Pol": 1e-5}


@pytest.mark.parametrize("problem", problems(quick=False)[1:3], ids=lambda problem: problem.name)
def test_gradients_of_the_stiff_set_are_those_of_finite_differences(problem):
    start, times = torch.from_numpy(problem.start), [0.0, EARLY[problem.name]]
    number = torch.arange(len(start), dtype=torch.float64)
    direction, how = start * torch.sin(1 + number), {"rtol": 1e-8, "atol": 1e-8 * problem.atol}

    def final(ahead):
        found = solve(problem.field, start + ahead * direction, times, method="radau5", **how)
        return (torch.cos(number) * found.final).sum()

    leaf = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(final(leaf), leaf)
    with torch.no_grad():
        near, far = (float(final(h) - final(-h)) / (2 * h) for h in (1e-3, 2e-3))
    assert float(found) == pytest.approx((4 * near - far) / 3, rel=1e-6)
