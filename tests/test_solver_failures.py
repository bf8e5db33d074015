"""Bad input and solves that cannot succeed: a sentence with a remedy, and what was reached."""

import pytest
import torch

from undamped.errors import NonFiniteError, OptionError, ShapeError, SolveError, UnknownNameError
from undamped.solvers import Status, iterate, solve

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
    with pytest.raises(SolveError, match="raise max_steps"):
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
    with pytest.raises(OptionError, match="an argument of its own"):
        solve(decay, ONE, [0.0, 1.0], options={"rtol": 0.1})


def test_choices_that_do_not_fit_together():
    with pytest.raises(OptionError, match="reversible-heun"):
        solve(decay, ONE, [0.0, 1.0], gradient="reversible")
    with pytest.raises(OptionError, match="explicit method that chooses its steps"):
        solve(decay, ONE, [0.0, 1.0], method="rk4", steps="sample")
    with pytest.raises(OptionError, match="explicit method that chooses its steps"):
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
