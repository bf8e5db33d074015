"""What comes out: dense output, events, iteration, own steps, own end times, reports."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import undamped.ode as ours
from undamped._base.errors import OptionError
from undamped.ode import Status, solve

START = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)


def turn(t, y):
    return torch.stack((y[..., 1], -y[..., 0]), dim=-1)


def turned(t):
    c, s = math.cos(t), math.sin(t)
    return START @ torch.tensor([[c, -s], [s, c]], dtype=torch.float64)


@pytest.mark.parametrize("method", ["dopri5", "tsit5", "bosh3", "dopri8"])
@pytest.mark.parametrize("direction", [1, -1])
def test_dense_output_is_the_solution_everywhere(method, direction):
    tolerance = 1e-6
    with torch.no_grad():
        solution = solve(
            turn,
            START,
            [0.0, direction * 3.0],
            method=method,
            rtol=tolerance,
            atol=tolerance,
            dense=True,
        )
    assert solution.dense is not None
    for k in range(31):
        t = direction * k / 10
        assert float((solution.dense(t) - turned(t)).abs().max()) < 3e-5
    with pytest.raises(OptionError, match="Solve further"):
        solution.dense(direction * 3.1)


def test_outputs_inside_a_step_agree_with_outputs_at_its_end():
    many = torch.linspace(0, 3, 61, dtype=torch.float64)
    with torch.no_grad():
        values = ours.odeint(turn, START, many, rtol=1e-8, atol=1e-8)
    for t, value in zip(many.tolist(), values, strict=True):
        assert float((value - turned(t)).abs().max()) < 1e-6


def test_an_event_ends_a_solve():
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    solution = solve(turn, start, [0.0, 0.5, 9.0], event=lambda t, y: y[0], method="dopri8")
    assert solution.status == (Status.EVENT,) and solution.success
    assert abs(float(solution.event_time) - math.pi / 2) < 1e-7
    assert abs(float(solution.event_state[1]) + 1) < 1e-7
    assert torch.isfinite(solution.values[1]).all() and torch.isnan(solution.values[2]).all()


def test_an_event_that_never_happens():
    solution = solve(turn, START, [0.0, 1.0], event=lambda t, y: y[0, 0] + 5)
    assert solution.event_time is None and solution.status == (Status.DONE,)


def test_iteration_goes_step_by_step():
    seen = []
    for reached in ours.iterate(turn, START, 0.0, 10.0, rtol=1e-6, atol=1e-8):
        seen.append(reached)
        if reached.t > 2:
            break
    assert 2 < seen[-1].t < 10 and all(a.t < b.t for a, b in itertools.pairwise(seen))
    assert float((seen[-1].y - turned(seen[-1].t)).abs().max()) < 1e-5
    assert seen[-1].evaluations > len(seen)


def test_different_end_times_for_every_sample():
    ends = torch.tensor([0.5, 4.0], dtype=torch.float64)
    times = torch.stack((torch.zeros(2, dtype=torch.float64), ends / 2, ends))
    solution = solve(turn, START, times)
    assert solution.status == (Status.DONE, Status.DONE)
    for k, t in enumerate((ends / 2, ends), start=1):
        for sample in range(2):
            expected = turned(float(t[sample]))[sample]
            assert float((solution.values[k, sample] - expected).abs().max()) < 1e-6


def test_gradients_reach_own_end_times():
    ends = torch.tensor([0.5, 1.7], dtype=torch.float64, requires_grad=True)
    times = torch.stack((torch.zeros_like(ends), ends))
    end = solve(turn, START, times).final
    (result,) = torch.autograd.grad(end[:, 0].sum(), ends)
    expected = torch.stack([end[0, 1], end[1, 1]])  # dq/dt = p
    torch.testing.assert_close(result, expected.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_every_part_of_the_step_control_matters(steps):
    def field(t, y):
        return torch.sin(5 * t * y)

    def evaluations(**parts):
        control = ours.StepControl(**parts)
        return solve(
            field, START, [0.0, 1.5], rtol=1e-5, atol=1e-5, steps=steps,
            options={"control": control},
        )  # fmt: skip

    plain = evaluations()
    for parts in (
        {"integral": 0.5}, {"proportional": 0.4}, {"derivative": 0.3}, {"safety": 0.6},
        {"grow": 1.1}, {"shrink": 0.85},
    ):  # fmt: skip
        other = evaluations(**parts)
        torch.testing.assert_close(other.values, plain.values, rtol=1e-2, atol=1e-2)
        if "shrink" not in parts:
            assert not torch.equal(other.values, plain.values), parts


def test_an_empty_interval_leaves_a_sample_where_it_was():
    times = torch.tensor([[0.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    end = solve(turn, START, times).final
    assert torch.equal(end[0], START[0])
    torch.testing.assert_close(end[1], turned(1.0)[1], rtol=1e-6, atol=1e-7)


def test_a_sample_does_not_feel_its_neighbours():
    start = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    def field(t, y):
        return torch.sin(3 * y.flip(-1)) * (1 + t)

    together = solve(field, start, [0.0, 2.0], steps="sample", rtol=1e-4, atol=1e-4).final
    separate = solve(field, start[2:3], [0.0, 2.0], steps="sample", rtol=1e-4, atol=1e-4).final
    torch.testing.assert_close(together[2:3], separate, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", [(3,), (3, 2), (3, 2, 4, 4)])
def test_own_steps_work_for_any_state_shape(shape):
    start = torch.rand(shape, dtype=torch.float64) + 0.5
    end = solve(lambda t, y: -y * (1 + t), start, [0.0, 1.0], steps="sample").final
    torch.testing.assert_close(end, start * math.exp(-1.5), rtol=1e-6, atol=1e-8)


def test_own_steps_save_evaluations_on_a_batch_of_mixed_stiffness():
    rates = torch.tensor([[1.0], [3.0], [10.0], [300.0]], dtype=torch.float64)

    def field(t, y):
        # y carries its rate, so that the field fits whichever samples are under way.
        return torch.cat((-y[:, 1:] * (y[:, :1] - torch.cos(t)), torch.zeros_like(y[:, 1:])), 1)

    start = torch.cat((torch.zeros(4, 1, dtype=torch.float64), rates), dim=1)
    with torch.no_grad():
        batch = solve(field, start, [0.0, 2.0], rtol=1e-5, atol=1e-5)
        apart = solve(field, start, [0.0, 2.0], rtol=1e-5, atol=1e-5, steps="sample", compact=True)
    torch.testing.assert_close(batch.values, apart.values, rtol=1e-3, atol=1e-3)
    assert apart.statistics.sample_evaluations < 0.5 * batch.statistics.sample_evaluations


@settings(deadline=None, max_examples=15)
@given(
    shape=st.lists(st.integers(1, 4), min_size=0, max_size=4),
    outputs=st.integers(2, 6),
    backwards=st.booleans(),
    single=st.booleans(),
)
def test_any_shape_any_number_of_outputs(shape, outputs, backwards, single):
    dtype = torch.float32 if single else torch.float64
    start = torch.ones(shape, dtype=dtype)
    times = torch.linspace(0, -1 if backwards else 1, outputs, dtype=torch.float64)
    values = ours.odeint(lambda t, y: -y, start, times, rtol=1e-4, atol=1e-5)
    assert values.shape == (outputs, *shape) and values.dtype == dtype
    expected = torch.exp(-times).to(dtype).view(-1, *(1,) * len(shape)).expand_as(values)
    torch.testing.assert_close(values, expected, rtol=1e-3, atol=1e-3)


def test_a_report_says_what_happened():
    solution = solve(turn, START.clone().requires_grad_(), [0.0, 1.0])
    text = str(solution)
    assert "evaluations" in text and "rejected" in text
    assert solution.evaluations > 0 and solution.evaluations_backward == 0
    solution.values.sum().backward()
    assert solution.evaluations_backward > 0
    assert 0 < solution.smallest_step < 1


def test_evaluations_are_counted_truly():
    calls = []

    def field(t, y):
        calls.append(1)
        return -y

    with torch.no_grad():
        solution = solve(field, START, [0.0, 1.0])
    assert solution.evaluations == len(calls)


def test_the_seminorm_leaves_parameters_out_of_the_error():
    # A field with a huge parameter gradient: backwards steps must not be driven by it.
    weight = torch.full((1,), 1e-6, dtype=torch.float64, requires_grad=True)
    start = torch.ones(3, dtype=torch.float64, requires_grad=True)
    solution = solve(
        lambda t, y: -y + 1e6 * weight * torch.sin(40 * t),
        start,
        [0.0, 2.0],
        gradient="adjoint",
        rtol=1e-5,
        atol=1e-5,
    )
    solution.values.sum().backward()
    assert solution.evaluations_backward <= 2 * solution.evaluations
