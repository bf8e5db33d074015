"""Bad input and solves that cannot succeed: a sentence with a remedy, and what was reached."""

import math

import pytest
import torch

from undamped._base.errors import (
    NonFiniteError,
    OptionError,
    ShapeError,
    SolveError,
    UnknownNameError,
)
from undamped.ode import Status, iterate, solve

ONE = torch.ones(2, 1, dtype=torch.float64)


def decay(t, y):
    return -y


@pytest.mark.parametrize("times", [[0.0, 1.0, 0.5], [0.0, 0.0], [0.0, 1.0, 1.0]])
def test_times_must_be_monotone(times):
    with pytest.raises(OptionError, match=r"strictly increasing or strictly decreasing.*Sort"):
        solve(decay, ONE, times)


def test_one_time_is_not_enough():
    with pytest.raises(ShapeError, match="at least two"):
        solve(decay, ONE, [0.0])


def test_a_field_of_the_wrong_shape():
    with pytest.raises(ShapeError, match=r"\(2, 1\), got \(2, 2\)"):
        solve(lambda t, y: torch.cat((y, y), dim=1), ONE, [0.0, 1.0])
    with pytest.raises(ShapeError, match="value of the field"):
        solve(lambda t, y: (y[0],), (ONE, ONE), [0.0, 1.0])


def test_a_field_that_starts_with_nan():
    start = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    with pytest.raises(NonFiniteError, match=r"sample 1.*logarithms"):
        solve(lambda t, y: torch.log(y), start, [0.0, 1.0])


def test_a_start_that_is_nan():
    with pytest.raises(NonFiniteError, match="y0"):
        solve(decay, ONE * float("nan"), [0.0, 1.0])


def test_a_field_that_becomes_nan_on_the_way():
    def field(t, y):
        return torch.where(t > 0.5, torch.full_like(y, float("nan")), -y)

    with pytest.raises(NonFiniteError, match=r"t = 0\.5.*NaN or infinity there") as caught:
        solve(field, ONE, [0.0, 0.25, 1.0])
    partial = caught.value.solution
    assert partial.status == (Status.NON_FINITE,)
    assert torch.isfinite(partial.values[1]).all() and torch.isnan(partial.values[2]).all()


def test_a_state_that_goes_to_infinity_in_finite_time():
    start = torch.tensor([[0.1], [1.0]], dtype=torch.float64)  # y² reaches infinity at 1/y₀
    with pytest.raises(SolveError, match=r"sample 1.*infinity near t = 1.*event"):
        solve(lambda t, y: y**2, start, [0.0, 2.0], rtol=1e-6, atol=1e-8)


def test_max_steps_returns_what_was_reached():
    def field(t, y):
        return torch.cos(20 * t) * torch.ones_like(y)

    solution = solve(field, ONE, [0.0, 0.1, 100.0], options={"max_steps": 50}, on_failure="return")
    assert not solution.success and solution.status == (Status.MAX_STEPS,)
    assert "max_steps" in solution.message and "step size" in solution.message
    assert torch.isfinite(solution.values[1]).all() and torch.isnan(solution.values[2]).all()
    with pytest.raises(SolveError, match="aise max_steps"):
        solve(field, ONE, [0.0, 100.0], options={"max_steps": 50})


def test_a_stiff_problem_with_an_explicit_method():
    def field(t, y):
        return -1e6 * (y - torch.cos(t))

    with pytest.raises(SolveError, match=r"stiff.*radau5"):
        solve(field, ONE, [0.0, 10.0], rtol=1e-4, atol=1e-4, options={"max_steps": 400})
    with torch.no_grad():
        implicit = solve(field, ONE, [0.0, 10.0], method="radau5", rtol=1e-4, atol=1e-4)
    assert implicit.success and implicit.accepted < 200


def test_the_stiffness_estimate_sees_the_stability_limit():
    with torch.no_grad():
        stiff = solve(
            lambda t, y: -2000 * (y - torch.cos(t)), ONE, [0.0, 1.0], rtol=1e-3, atol=1e-3
        )
        mild = solve(decay, ONE, [0.0, 1.0], rtol=1e-6, atol=1e-6)
    assert 2.0 < stiff.stiffness < 6.0
    assert mild.stiffness < 1.0


def test_a_tolerance_below_rounding():
    y = torch.ones(2, 3)
    with pytest.raises(SolveError, match="float32"):
        solve(
            lambda t, y: torch.sin(7 * y),
            y,
            [0.0, 10.0],
            rtol=1e-12,
            atol=1e-14,
            options={"max_steps": 500},
        )


def test_a_jump_that_never_resolves():
    def field(t, y):
        return -torch.sign(y - 0.5) * 1e3

    with pytest.raises(SolveError, match=r"step size|max_steps"):
        solve(field, ONE, [0.0, 5.0], rtol=1e-9, atol=1e-12, options={"max_steps": 500})


def test_options_that_would_change_nothing_are_refused():
    with pytest.raises(OptionError, match="steps are fixed"):
        solve(decay, ONE, [0.0, 1.0], method="rk4", rtol=1e-5)
    with pytest.raises(OptionError, match="compact"):
        solve(decay, ONE, [0.0, 1.0], compact=True)
    with pytest.raises(OptionError, match="step control"):
        solve(decay, ONE, [0.0, 1.0], method="rk4", options={"first_step": 0.1})
    with pytest.raises(OptionError, match="but a separate argument"):
        solve(decay, ONE, [0.0, 1.0], options={"rtol": 0.1})


def test_choices_that_do_not_fit_together():
    with pytest.raises(OptionError, match="reversible-heun"):
        solve(decay, ONE, [0.0, 1.0], gradient="reversible")
    with pytest.raises(OptionError, match="a method that chooses its steps"):
        solve(decay, ONE, [0.0, 1.0], method="rk4", steps="sample")
    with pytest.raises(OptionError, match="a method that chooses its steps"):
        solve(decay, ONE, [0.0, 1.0], method="alf", steps="sample", gradient="reversible")
    with pytest.raises(UnknownNameError, match="dopri5"):
        solve(decay, ONE, [0.0, 1.0], method="dopri55")
    with pytest.raises(UnknownNameError, match="max_steps"):
        solve(decay, ONE, [0.0, 1.0], options={"maxsteps": 3})
    with pytest.raises(OptionError, match="one of"):
        solve(decay, ONE, [0.0, 1.0], gradient="magic")  # type: ignore[arg-type]


def test_steps_of_their_own_need_samples():
    with pytest.raises(ShapeError, match="batch in its first dimension"):
        solve(decay, torch.tensor(1.0), [0.0, 1.0], steps="sample")
    pair = (torch.ones(2), torch.ones(3))
    with pytest.raises(ShapeError, match="batch in its first dimension"):
        solve(lambda t, y: y, pair, [0.0, 1.0], steps="sample")


def test_an_odd_state_has_no_momenta():
    with pytest.raises(ShapeError, match="momenta"):
        solve(decay, ONE, [0.0, 1.0], method="leapfrog")


def test_an_event_must_be_one_number():
    with pytest.raises(ShapeError, match="one number"):
        solve(decay, ONE, [0.0, 1.0], event=lambda t, y: y - 0.5)


def test_an_iterated_solve_fails_with_a_sentence_too():
    with pytest.raises(SolveError, match="infinity"):
        list(iterate(lambda t, y: y**2, ONE, 0.0, 3.0, rtol=1e-6, atol=1e-8))


@pytest.mark.parametrize("method", ["dopri5", "heun", "dopri8", "alf", "radau5"])
def test_nan_on_the_way_is_no_jump(method):
    for bound in (0.37, 0.618, 0.83):

        def field(t, y, bound=bound):
            return -y if t < bound else y * math.nan

        with torch.no_grad(), pytest.raises(NonFiniteError, match="not finite beyond t = 0") as e:
            solve(field, ONE, [0.0, 1.0], method=method, rtol=1e-4, atol=1e-4)
        assert e.value.solution.status == (Status.NON_FINITE,)


def test_fixed_steps_stop_where_something_is_not_finite():
    rk4 = {"method": "rk4", "options": {"step_size": 0.1}}
    with pytest.raises(NonFiniteError, match=r"stop at t = 0\.4 .* in the step to t = 0\.5"):
        solve(lambda t, y: -y if t < 0.5 else y * math.nan, ONE, [0.0, 10.0], **rk4)
    with pytest.raises(SolveError, match=r"infinity near t = 1\.\d.*smaller steps"):
        solve(lambda t, y: y**2, ONE, [0.0, 10.0], **rk4)
    with pytest.raises(SolveError, match=r"too large.*rate is about 1e\+03.*smaller step_size"):
        solve(lambda t, y: -1000 * y, ONE, [0.0, 10.0], **rk4)
    with pytest.raises(SolveError, match=r"Newton.*smaller steps"):
        euler = {"method": "implicit-euler", "options": {"step_size": 1.0}}
        solve(lambda t, y: y**2, ONE, [0.0, 1.0], **euler)


@pytest.mark.parametrize(
    ("method", "gradient"),
    [("rk4", "checkpoint"), ("rk4", "backprop"), ("alf", "reversible"), ("dopri5", "checkpoint")],
)
def test_gradients_of_what_was_reached(method, gradient):
    y0 = ONE.clone().requires_grad_()
    options = {} if method == "dopri5" else {"step_size": 0.05}
    partial = solve(
        lambda t, y: -y if t < 0.62 else y * math.nan,
        y0,
        [0.0, 0.25, 0.5, 0.75, 1.0],
        method=method,
        gradient=gradient,
        options=options,
        on_failure="return",
    )
    (pulled,) = torch.autograd.grad(partial.values[2].sum(), y0)
    torch.testing.assert_close(pulled, ONE * math.exp(-0.5), rtol=1e-3, atol=1e-3)


def test_few_steps_are_not_blamed_on_the_number_format():
    with pytest.raises(SolveError, match="aise max_steps"):
        solve(decay, ONE, [0.0, 1.0], rtol=0.0, atol=1e-8, options={"max_steps": 3})


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_tolerances_of_zero(steps):
    with pytest.raises(OptionError, match="rtol and atol"):
        solve(decay, ONE, [0.0, 1.0], rtol=0.0, atol=0.0, steps=steps)
    for slope in (0.0, 1.0):  # a number that stays 0, and one that starts there

        def field(t, y, slope=slope):
            return torch.stack((-y[:, 0], slope * y[:, 0]), dim=1)

        y0 = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        with torch.no_grad():
            result = solve(field, y0, [0.0, 1.0], rtol=1e-7, atol=0.0, steps=steps).final
        expected = torch.tensor([[math.exp(-1), slope * (1 - math.exp(-1))]], dtype=torch.float64)
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=0.0)


@pytest.mark.parametrize("method", ["alf", "reversible-heun"])
def test_a_stiff_problem_with_a_reversible_method(method):
    with pytest.raises(SolveError, match=r"is stiff.*radau5"):
        solve(
            lambda t, y: -1e4 * (y - torch.cos(t)),
            ONE,
            [0.0, 10.0],
            method=method,
            rtol=1e-4,
            atol=1e-4,
            options={"max_steps": 500},
        )


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_the_first_step_is_not_above_the_largest(steps):
    options = {"first_step": 5.0, "max_step": 0.5}
    done = solve(decay, ONE, [0.0, 5.0], rtol=1.0, atol=10.0, steps=steps, options=options)
    assert int(done.accepted) == 10 * (2 if steps == "sample" else 1)


@pytest.mark.parametrize("method", ["dopri5", "alf", "reversible-heun"])
def test_no_evaluation_goes_uncounted(method):
    calls = []

    def field(t, y):
        calls.append(t)
        return -y

    with torch.no_grad():
        result = solve(field, ONE, [0.0, 1.0], method=method, rtol=1e-3, atol=1e-3)
    assert result.evaluations == len(calls)


def stops_early(t, y):
    """Decay that is NaN from t = 0.6 on for the first sample of three."""
    broken = (t >= 0.6) & (torch.arange(3).view(3, 1) == 0)
    return y * torch.where(broken, math.nan, -1.0)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_a_sample_that_fails_does_not_stop_the_others(gradient):
    y0, times = torch.ones(3, 1, dtype=torch.float64, requires_grad=True), [0.0, 0.5, 0.75, 1.0]
    kept = {"steps": "sample", "gradient": gradient, "rtol": 1e-6, "atol": 1e-8}
    with pytest.raises(NonFiniteError, match=r"sample 0.*not finite beyond t = 0\.6"):
        solve(stops_early, y0, times, **kept)
    partial = solve(stops_early, y0, times, on_failure="return", **kept)
    assert partial.status == (Status.NON_FINITE, Status.DONE, Status.DONE)
    expected = torch.exp(-torch.tensor(times, dtype=torch.float64)).view(4, 1, 1).repeat(1, 3, 1)
    expected[2:, 0] = math.nan
    torch.testing.assert_close(partial.values, expected, rtol=1e-5, atol=0, equal_nan=True)
    (pulled,) = torch.autograd.grad(partial.values[1].sum() + partial.values[3, 1:].sum(), y0)
    reached = torch.exp(-torch.tensor([[0.5], [0.5], [0.5]], dtype=torch.float64))
    reached[1:] += math.exp(-1)
    torch.testing.assert_close(pulled, reached, rtol=1e-4, atol=0)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_gradients_do_not_meet_a_sample_on_its_way_to_infinity(gradient):
    y0 = torch.tensor([[1.0], [0.1]], dtype=torch.float64, requires_grad=True)
    partial = solve(
        lambda t, y: y**2,
        y0,
        [0.0, 0.5, 2.0],
        steps="sample",
        gradient=gradient,
        rtol=1e-6,
        atol=1e-8,
        options={"checkpoint_steps": 3} if gradient == "checkpoint" else {},
        on_failure="return",
    )
    assert "infinity near t = 1" in partial.message and partial.status[1] is Status.DONE
    (pulled,) = torch.autograd.grad(partial.values[1].sum() + partial.values[2, 1].sum(), y0)
    expected = torch.tensor([[4.0], [0.95**-2 + 0.8**-2]], dtype=torch.float64)
    torch.testing.assert_close(pulled, expected, rtol=1e-4, atol=0)


def test_a_field_that_wants_a_time_for_every_sample_fails_with_a_sentence():
    def field(t, y):
        return torch.cat([t, y], 1)[:, 1:] ** 2

    with pytest.raises(SolveError, match=r"sample 0.*infinity near t = 1"):
        solve(field, torch.ones(2, 3, dtype=torch.float64), [0.0, 2.0], steps="sample")


def test_an_adjoint_that_is_nan_says_so():
    class Broken(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return -y

        @staticmethod
        def backward(ctx, pull):
            return pull * math.nan

    y0 = ONE.clone().requires_grad_()
    solution = solve(
        lambda t, y: Broken.apply(y), y0, [0.0, 1.0], steps="sample", gradient="adjoint"
    )
    with pytest.raises(SolveError, match=r"adjoint of the solve.*not finite"):
        solution.final.sum().backward()


def test_stiffness_is_estimated_for_samples_too():
    with torch.no_grad():
        stiff = solve(
            lambda t, y: -2000 * (y - torch.cos(t)),
            ONE,
            [0.0, 1.0],
            rtol=1e-3,
            atol=1e-3,
            steps="sample",
        )
        mild = solve(decay, ONE, [0.0, 1.0], rtol=1e-6, atol=1e-6, steps="sample")
    assert 2.0 < stiff.stiffness < 6.0
    assert mild.stiffness < 1.0


@pytest.mark.parametrize("method", ["dopri5", "rk4"])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_iterated_solve_needs_no_end(method, sign):
    def swing(t, y):
        return torch.stack((y[:, 1], -25 * torch.sin(y[:, 0])), dim=1)

    choice = {"options": {"step_size": 0.1}} if method == "rk4" else {"rtol": 1e-6, "atol": 1e-6}
    y0 = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    refused = 0
    for reached in iterate(swing, y0, 0.0, sign * math.inf, method=method, **choice):
        refused = reached.rejected
        if sign * reached.t > 5:
            break
    assert sign * reached.t > 5 and (refused > 0 or method == "rk4")


def test_an_iterated_solve_reads_its_times():
    start, end = torch.tensor(0.0), torch.tensor(1.0)
    assert list(iterate(decay, ONE, start, end))[-1].t == 1.0
    with pytest.raises(OptionError, match="two times"):
        next(iterate(decay, ONE, 0.0, math.nan))
    with pytest.raises(OptionError, match="step_size"):
        next(iterate(decay, ONE, 0.0, math.inf, method="rk4"))


def test_an_iterated_solve_fails_as_a_whole_one_does():
    def field(t, y):
        return -y if t < 0.5 else y * math.nan

    with torch.no_grad(), pytest.raises(NonFiniteError) as full:
        solve(field, ONE, [0.0, 1.0], rtol=1e-4, atol=1e-4)
    with torch.no_grad(), pytest.raises(NonFiniteError) as steps:
        list(iterate(field, ONE, 0.0, 1.0, rtol=1e-4, atol=1e-4))
    assert str(full.value) == str(steps.value)
    with pytest.raises(NonFiniteError, match="not finite beyond t = 0"):
        list(iterate(field, ONE, 0.0, math.inf, rtol=1e-4, atol=1e-4))
