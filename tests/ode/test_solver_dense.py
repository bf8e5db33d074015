"""Dense output at its edges: the start, an event, the end, several times."""

import math

import pytest
import torch

from undamped._base.errors import OptionError, ShapeError
from undamped.ode import solve

ONE = torch.ones(1, dtype=torch.float64)


def decay(t, y):
    return -y


@pytest.mark.parametrize("method", ["rk4", "dopri5", "dopri8", "radau5"])
@pytest.mark.parametrize("sign", [1, -1])
def test_it_reaches_the_event(method, sign):
    options = {"step_size": 0.1} if method == "rk4" else None
    solution = solve(
        lambda t, y: -sign * y,
        ONE,
        [0.0, sign * 0.05, sign * 0.66, sign * 0.68, sign * 5.0],
        method=method,
        options=options,
        event=lambda t, y: y[0] - 0.5,
        dense=True,
    )
    assert solution.dense is not None and solution.event_time is not None
    for t in (0.0, 0.3, 0.61, 0.67, 0.69, abs(solution.event_time.item())):
        assert abs(solution.dense(sign * t).item() - math.exp(-t)) < 1e-5
    with pytest.raises(OptionError, match=r"from .* to .*Solve further"):
        solution.dense(sign * 0.694)


def test_it_answers_at_the_start_of_a_solve_that_hardly_began():
    event = {"event": lambda t, y: y[0] - 0.9999999}
    solution = solve(decay, ONE, [0.0, 5.0], dense=True, **event)
    assert solution.dense is not None and float(solution.dense(0.0)) == 1

    def jump(t, y):
        return torch.where(t > 0, torch.nan, -y)

    failed = solve(jump, ONE, [0.0, 5.0], dense=True, on_failure="return")
    assert not failed.success and failed.dense is not None and float(failed.dense(0.0)) == 1
    with pytest.raises(OptionError, match="from 0 to 0"):
        failed.dense(0.1)


@pytest.mark.parametrize("steps", [{"options": {"step_size": 0.07}, "method": "rk4"}, {}])
@pytest.mark.parametrize("ends", [(0.1, 3.083), (3.083, 0.1), (-0.3, 1 / 3), (1e3, 1e3 + 1.1)])
def test_it_reaches_the_end(steps, ends):
    solution = solve(decay, ONE, list(ends), dense=True, **steps)
    assert solution.dense is not None
    torch.testing.assert_close(solution.dense(ends[1]), solution.final, rtol=1e-6, atol=1e-9)
    assert torch.equal(solution.dense(ends[0]), ONE)


def test_it_answers_at_several_times():
    start = (torch.ones(2, 3, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    solution = solve(lambda t, y: (-y[0], 2 * y[1]), start, [0.0, 1.0], dense=True)
    assert solution.dense is not None
    times = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)
    for asked in (times, times.tolist()):
        first, second = solution.dense(asked)
        assert first.shape == (3, 2, 3) and second.shape == (3, 2)
        torch.testing.assert_close(first[:, 0, 0], torch.exp(-times), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(second[:, 1], torch.exp(2 * times), rtol=1e-6, atol=1e-6)
    with pytest.raises(ShapeError, match="a list"):
        solution.dense(times.unsqueeze(0))


def test_samples_answer_at_several_times():
    start = torch.ones(2, 3, dtype=torch.float64)
    solution = solve(decay, start, [0.0, 1.0], steps="sample", dense=True)
    assert solution.dense is not None
    times = torch.tensor([0.0, 0.25, 1.0], dtype=torch.float64)
    result = solution.dense(times.unsqueeze(1))
    assert result.shape == (3, 2, 3)
    torch.testing.assert_close(result[:, 1, 2], torch.exp(-times), rtol=1e-6, atol=1e-6)
    assert solution.dense([0.1, 0.2]).shape == (2, 3)
    with pytest.raises(ShapeError, match="unsqueeze"):
        solution.dense(times)
