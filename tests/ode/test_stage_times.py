"""Stage times: the right numbers, of the right type, and never written over."""

import pytest
import torch

from undamped.ode import solve
from undamped.ode.methods.stages import MANY, StageClock, stage_times

NODES = (0.0, 0.2, 1 / 3, 1.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_clock_gives_the_times_of_every_step(dtype):
    clock, like = StageClock(NODES, torch.zeros(3, dtype=dtype)), torch.zeros(3, dtype=dtype)
    steps = [(0.1 * number, 0.01 * (number + 1)) for number in range(3 * MANY)]
    kept = [clock(t, h) for t, h in steps]
    for (t, h), times in zip(steps, kept, strict=True):
        expected = [t + node * h for node in NODES]
        assert all(time.dtype == dtype and time.shape == () for time in times)
        torch.testing.assert_close(torch.stack(list(times)), torch.tensor(expected, dtype=dtype))
        assert torch.equal(
            torch.stack(list(times)), torch.stack(list(stage_times(t, h, NODES, like)))
        )


def test_a_clock_takes_columns_of_times():
    t, h = torch.zeros(3, 1, dtype=torch.float64), torch.ones(3, 1, dtype=torch.float64)
    times = StageClock(NODES, torch.zeros(3, 2))(t, h)
    assert [float(time[0]) for time in times] == pytest.approx(NODES)
    assert all(time.shape == (3, 1) and time.dtype == torch.float32 for time in times)


def test_a_field_may_hold_on_to_its_times():
    seen, written = [], []

    def field(t, y):
        seen.append(t)
        written.append(float(t))
        return -y * t

    solve(field, torch.ones(2), [0.0, 30.0], rtol=1e-6, atol=1e-6)
    assert len(seen) > 4 * 7 and [float(t) for t in seen] == written


def test_a_graph_through_the_times_is_that_of_each_stage():
    start = torch.ones(2, dtype=torch.float64, requires_grad=True)
    result = solve(
        lambda t, y: y * t, start, [0.0, 2.0], rtol=1e-9, atol=1e-9, gradient="backprop"
    ).final
    (gradient,) = torch.autograd.grad(result.sum(), start)
    # y(2) = y(0) e^(t²/2)
    torch.testing.assert_close(gradient, torch.full_like(start, 2.0).exp(), rtol=1e-7, atol=0.0)
