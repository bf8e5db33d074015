"""Events: every kind of function, their gradients, and the edges of their steps."""

import math

import pytest
import torch

from undamped._base.errors import OptionError
from undamped.ode import Event, Status, solve

WAYS = ["checkpoint", "backprop", "adjoint"]


def decay(t, y):
    return -y


def one(grad=False):
    return torch.ones(1, dtype=torch.float64, requires_grad=grad)


def two(grad=False):
    return torch.tensor([[1.0], [2.0], [0.3]], dtype=torch.float64, requires_grad=grad)


@pytest.mark.parametrize("gradient", WAYS)
def test_parameters_of_an_event_have_gradients(gradient):
    level = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    start = one(True)
    solution = solve(decay, start, [0.0, 5.0], event=lambda t, y: y[0] - level, gradient=gradient)
    result = torch.autograd.grad(solution.event_time, (level, start), retain_graph=True)
    torch.testing.assert_close(
        torch.stack((result[0], result[1][0])), level.new_tensor([-2.0, 1.0])
    )
    result = torch.autograd.grad(solution.event_state.sum(), (level, start))
    torch.testing.assert_close(torch.stack((result[0], result[1][0])), level.new_tensor([1.0, 0.0]))


@pytest.mark.parametrize("gradient", WAYS)
def test_parameters_of_events_of_samples_have_gradients(gradient):
    level = torch.full((3,), 0.5, dtype=torch.float64, requires_grad=True)
    start = two(True)
    more = {"steps": "sample", "gradient": gradient}
    solution = solve(decay, start, [0.0, 5.0], event=lambda t, y: y[:, 0] - level, **more)
    result = torch.autograd.grad(solution.event_time[:2].sum(), (level, start), retain_graph=True)
    torch.testing.assert_close(result[0], level.new_tensor([-2.0, -2.0, 0.0]))
    torch.testing.assert_close(result[1][:, 0], level.new_tensor([1.0, 0.5, 0.0]))
    result = torch.autograd.grad(solution.event_state[:2].sum(), (level, start))
    torch.testing.assert_close(result[0], level.new_tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(result[1][:, 0], level.new_tensor([0.0, 0.0, 0.0]))


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_gradients_of_gradients_of_events(steps):
    # y = a exp(−w t) meets c² at t = log(a / c²) / w, where its square is c⁴.
    a, w, c = (
        torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (1.0, 1.3, 0.6)
    )
    solution = solve(
        lambda t, y: -w * y,
        a.view(1, 1),
        [0.0, 5.0],
        event=lambda t, y: y[:, 0] - c**2,
        gradient="backprop",
        steps=steps,
        rtol=1e-10,
        atol=1e-10,
    )
    time = torch.log(a / c**2) / w
    for ours, closed in (
        (solution.event_time.sum(), time),
        (solution.event_state.square().sum(), c**4),
        (solution.event_time.sum() * solution.event_state.sum(), time * c**2),
    ):
        options = {"create_graph": True, "materialize_grads": True}
        first = [torch.autograd.grad(x, (a, w, c), **options) for x in (ours, closed)]
        torch.testing.assert_close(*first, rtol=1e-7, atol=1e-8)
        for x, y in zip(*first, strict=True):
            if not y.requires_grad:
                continue
            second = [torch.autograd.grad(z, (a, w, c), **options) for z in (x, y)]
            torch.testing.assert_close(*second, rtol=1e-6, atol=1e-7)


KINDS = {
    "jump": lambda t, y: torch.where(y[0] > 0.5, 1.0, -1.0),
    "truth": lambda t, y: y[0] > 0.5,
    "number": lambda t, y: y[0].item() - 0.5,
    "python truth": lambda t, y: y[0].item() > 0.5,
    "sign": lambda t, y: torch.sign(y[0] - 0.5),
    "tiny": lambda t, y: (y[0] - 0.5) * 1e-200,
    "huge": lambda t, y: (y[0] - 0.5) * 1e200,
    "infinite": lambda t, y: torch.where(y[0] > 0.5, torch.inf, -torch.inf),
}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("grad", [False, True])
def test_every_kind_of_function_is_located(kind, grad):
    solution = solve(decay, one(grad), [0.0, 5.0], event=KINDS[kind], rtol=1e-10, atol=1e-12)
    assert solution.status == (Status.EVENT,)
    assert abs(solution.event_time.item() - math.log(2)) < 1e-9
    assert abs(solution.event_state.item() - 0.5) < 1e-9


@pytest.mark.parametrize("function", [lambda y: y > 0.5, lambda y: torch.where(y > 0.5, 3.0, -1.0)])
@pytest.mark.parametrize("grad", [False, True])
def test_jumps_of_samples_are_located(function, grad):
    more = {"steps": "sample", "rtol": 1e-10, "atol": 1e-12}
    solution = solve(decay, two(grad), [0.0, 5.0], event=lambda t, y: function(y[:, 0]), **more)
    expected = torch.tensor([math.log(2), math.log(4), math.nan], dtype=torch.float64)
    torch.testing.assert_close(solution.event_time, expected, rtol=1e-9, atol=1e-9, equal_nan=True)
    assert not solution.event_time.requires_grad


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_a_function_that_rests_at_zero_has_its_event_where_it_left(steps):
    """As programs write it that want to stop at an end: zero from there on."""

    def event(t, y):
        return torch.where(t.reshape(-1) > 0.8, 0.0, y.reshape(-1) - 0.5)

    start = torch.ones(1, 1, dtype=torch.float64)
    options = {"first_step": 4.0}
    how = {"steps": steps, "rtol": 1e3, "atol": 1e3, "method": "dopri8", "options": options}
    solution = solve(decay, start, [0.0, 5.0], event=event, **how)
    assert abs(solution.event_time.item() - math.log(2)) < 1e-6
    solution = solve(decay, 2 * start, [0.0, 5.0], event=event, **how)
    assert abs(solution.event_time.item() - 0.8) < 1e-9


def test_a_function_that_is_not_a_number_is_no_event():
    assert solve(decay, one(), [0.0, 5.0], event=lambda t, y: (y[0] - 0.5).log() - 1).success
    solution = solve(decay, one(), [0.0, 5.0], event=lambda t, y: (0.9 - y[0]).sqrt() - 0.5)
    assert abs(solution.event_time.item() + math.log(0.65)) < 1e-6


def test_an_event_left_at_the_start_happens_at_the_next_zero():
    def fall(t, y):
        return torch.stack((y[1], torch.full_like(y[1], -2.0)))

    start = torch.tensor([0.0, 1.0], dtype=torch.float64)
    solution = solve(fall, start, [0.0, 5.0], event=lambda t, y: y[0])
    assert abs(solution.event_time.item() - 1) < 1e-9
    coarse = {"method": "rk4", "options": {"step_size": 3.0}}
    assert solve(fall, start, [0.0, 3.0], event=lambda t, y: y[0], **coarse).success


@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize("gradient", WAYS)
@pytest.mark.parametrize("at", [0.7, 1.0, 3.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_output_at_the_event_is_the_state_there(steps, gradient, at, sign):
    start = two(True)
    t = torch.tensor([0.0, 0.1, 0.7, 1.0, 3.0], dtype=torch.float64) * sign
    t.requires_grad_()
    solution = solve(
        decay,
        start,
        t,
        event=lambda s, y: (s.reshape(-1) - sign * at).expand(1 if steps == "batch" else len(y)),
        steps=steps,
        gradient=gradient,
    )
    assert set(solution.status) == {Status.EVENT}
    reached = t.detach().abs() <= at
    expected = start.detach() * torch.exp(-t.detach()).view(-1, 1, 1)
    torch.testing.assert_close(solution.values[reached], expected[reached], rtol=1e-6, atol=1e-6)
    assert solution.values[~reached].isnan().all()
    values = solution.values[int(reached.sum()) - 1]
    by_start, by_time = torch.autograd.grad(values.sum(), (start, t))
    shrunk = math.exp(-sign * at)
    torch.testing.assert_close(by_start, torch.full_like(by_start, shrunk), rtol=1e-5, atol=1e-6)
    assert abs(by_time[int(reached.sum()) - 1].item() + 3.3 * shrunk) < 1e-4
    assert not by_time.isnan().any()


def turn(t, y):
    return torch.stack((y[1], -y[0]))


@pytest.mark.parametrize("direction", ["any", "rising", "falling"])
@pytest.mark.parametrize("method", ["dopri5", "rk4", "dopri8"])
def test_directions_and_events_that_do_not_end_the_solve(method, direction):
    options = {"step_size": 0.05} if method == "rk4" else {}
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    times = [0.0, 2.0, 5.0, 9.0, 12.0]
    event = Event(lambda t, y: y[0], direction=direction, terminal=False)
    solution = solve(turn, start, times, method=method, options=options, event=event)
    zeros = [(k + 0.5) * math.pi for k in range(4)]  # cos falls at the first
    expected = {"any": zeros, "falling": zeros[::2], "rising": zeros[1::2]}[direction]
    result = solution.event_time
    assert result is not None and solution.status == (Status.DONE,)
    assert solution.event_state.shape == (len(expected), 2)
    torch.testing.assert_close(result, torch.tensor(expected).double(), rtol=1e-5, atol=1e-5)
    at = torch.tensor(times, dtype=torch.float64)
    truth = torch.stack((torch.cos(at), -torch.sin(at)), 1)
    torch.testing.assert_close(solution.values, truth, rtol=1e-5, atol=1e-5)
    ends = solve(
        turn,
        start,
        times,
        method=method,
        options=options,
        event=Event(lambda t, y: y[0], direction),
    )
    assert ends.event_time is not None and abs(float(ends.event_time) - expected[0]) < 1e-5


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
def test_gradients_of_events_that_do_not_end_the_solve(gradient):
    speed = torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    event = Event(lambda t, y: y[0], terminal=False)
    solution = solve(
        lambda t, y: speed * turn(t, y),
        torch.tensor([1.0, 0.0], dtype=torch.float64),
        [0.0, 1.0, 3.0, 5.0],
        event=event,
        gradient=gradient,
        rtol=1e-9,
        atol=1e-9,
    )
    assert solution.event_time is not None
    for k, time in enumerate(solution.event_time):
        (result,) = torch.autograd.grad(time, speed, retain_graph=True)
        assert abs(float(result) + (k + 0.5) * math.pi / 1.5**2) < 1e-6  # t = (k + ½)π / speed
    (result,) = torch.autograd.grad(solution.values[3, 0], speed, retain_graph=True)
    assert abs(float(result) + 5 * math.sin(7.5)) < 1e-6


def test_no_event_and_events_of_samples():
    start = torch.ones(3, 1, dtype=torch.float64)
    never = Event(lambda t, y: y.sum() + 10, terminal=False)
    solution = solve(lambda t, y: -y, start, [0.0, 1.0], event=never)
    assert solution.event_time is not None and solution.event_time.shape == (0,)
    assert solution.event_state.shape == (0, 3, 1)
    with pytest.raises(OptionError, match="terminal=False"):
        solve(lambda t, y: -y, start, [0.0, 1.0], event=never, steps="sample")
    falling = Event(lambda t, y: y[:, 0] - 0.5, direction="rising")
    each = solve(lambda t, y: -y, start, [0.0, 1.0], event=falling, steps="sample")
    assert each.status == (Status.DONE,) * 3
    with pytest.raises(OptionError, match="direction"):
        Event(lambda t, y: y, direction="up")  # type: ignore[arg-type]
    endless = solve(lambda t, y: -y, start, [0.0, math.inf], event=lambda t, y: y.sum() - 0.3)
    assert endless.event_time is not None and endless.values[1].isnan().all()
    assert abs(float(endless.event_time) - math.log(10)) < 1e-6


def fast(t, y):
    """Change the sign at t = 0.685…, and every 0.785 from there on."""
    return torch.sin(4 * (t + 0.1)).reshape(-1) + 0 * y[..., 0].reshape(-1)


FIRST = math.pi / 4 - 0.1


@pytest.mark.parametrize("method", ["dopri5", "dopri8", "bosh3", "radau5", "rodas5p", "auto"])
def test_a_sign_that_changes_back_within_a_step(method):
    start = torch.ones(1, 1, dtype=torch.float64)
    more = {"options": {"first_step": 1.6}, "method": method}
    result = solve(lambda t, y: 0 * y, start, [0.0, 1.6], event=fast, **more)
    assert result.event_time.item() == pytest.approx(FIRST, abs=1e-9)
    rising = Event(fast, direction="rising")
    result = solve(lambda t, y: 0 * y, start, [0.0, 2.2], event=rising, **more)
    assert result.event_time.item() == pytest.approx(FIRST + math.pi / 4, abs=1e-9)
    if method in ("dopri5", "dopri8", "bosh3"):
        both = torch.ones(2, 1, dtype=torch.float64)
        result = solve(lambda t, y: 0 * y, both, [0.0, 1.6], event=fast, steps="sample", **more)
        assert result.event_time.tolist() == pytest.approx([FIRST] * 2, abs=1e-9)


def test_several_events_within_a_step_that_end_nothing():
    start = torch.ones(1, dtype=torch.float64)
    every = Event(fast, terminal=False)
    times = [0.0, 0.5, 1.0, 2.4]
    options = {"first_step": 2.4}
    result = solve(lambda t, y: 0 * y, start, times, event=every, options=options)
    expected = [FIRST + number * math.pi / 4 for number in range(3)]
    assert result.event_time.tolist() == pytest.approx(expected, abs=1e-9)
    assert torch.equal(result.values, torch.ones(4, 1, dtype=torch.float64))
