"""Tolerances: a norm for every member, one of the user's own, and one for every number."""

import math

import pytest
import torch

import undamped
from undamped._base.errors import OptionError, ShapeError, SolveError
from undamped.ode import StepControl, solve

D = torch.float64


def oscillator(t, y):
    return torch.stack((y[..., 1], -y[..., 0]), -1)


def beside_constants(t, state):
    y, constants = state
    return oscillator(t, y), torch.zeros_like(constants)


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
@pytest.mark.parametrize("batched", [False, True])
def test_a_large_member_does_not_hide_the_error_of_a_small_one(batched, gradient):
    y = torch.tensor([[1.0, 0.0]] if batched else [1.0, 0.0], dtype=D, requires_grad=True)
    constants = torch.ones((1, 10**4) if batched else 10**4, dtype=D)
    times = [0.0, 10.0]
    separate = solve(oscillator, y, times, rtol=1e-6, atol=1e-6)
    beside = solve(beside_constants, (y, constants), times, rtol=1e-6, atol=1e-6, gradient=gradient)
    assert beside.accepted == separate.accepted
    truth = torch.tensor([math.cos(10), -math.sin(10)], dtype=D)
    assert float((beside.values[0][-1].detach().reshape(-1) - truth).abs().max()) < 1e-4
    (result,) = torch.autograd.grad(beside.values[0][-1].sum(), y)
    expected = torch.tensor([math.cos(10) - math.sin(10), math.sin(10) + math.cos(10)], dtype=D)
    torch.testing.assert_close(result.reshape(-1), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["dopri5", "radau5", "alf"])
def test_members_have_norms_of_their_own_with_every_kind_of_method(method):
    y = torch.tensor([1.0, 0.0], dtype=D)
    more = {"rtol": 1e-3, "atol": 1e-3, "method": method}
    separate = solve(oscillator, y, [0.0, 2.0], **more)
    beside = solve(beside_constants, (y, torch.ones(30, dtype=D)), [0.0, 2.0], **more)
    assert abs(beside.accepted - separate.accepted) <= 1


def test_members_with_steps_of_samples():
    y = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=D, requires_grad=True)
    constants = torch.ones(2, 10**4, dtype=D)
    more = {"rtol": 1e-6, "atol": 1e-6, "steps": "sample"}
    separate = solve(oscillator, y, [0.0, 5.0], **more)
    for gradient in ("checkpoint", "adjoint"):
        beside = solve(beside_constants, (y, constants), [0.0, 5.0], gradient=gradient, **more)
        assert beside.accepted == separate.accepted
        (result,) = torch.autograd.grad(beside.values[0][-1].sum(), y)
        (expected,) = torch.autograd.grad(separate.final.sum(), y, retain_graph=True)
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


def test_a_norm_of_ones_own():
    seen = []

    def norm(errors):
        seen.append(errors)
        return errors[0].abs().max()

    y, constants = torch.tensor([1.0, 0.0], dtype=D), torch.ones(7, dtype=D)
    counts = []
    for one in (None, norm):
        options = {} if one is None else {"norm": one}
        solution = solve(
            beside_constants, (y, constants), [0.0, 5.0], rtol=1e-6, atol=1e-6, options=options
        )
        counts.append(solution.accepted)
    assert counts[1] >= counts[0]  # the largest number is no less than the root mean square
    assert [part.shape for part in seen[0]] == [(2,), (7,)]
    blind = solve(
        oscillator, y, [0.0, 5.0], rtol=1e-6, atol=1e-6, options={"norm": lambda e: 0 * e.sum()}
    )
    assert blind.accepted < counts[0] and blind.rejected == 0


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_norm_of_ones_own_and_gradients(gradient):
    y = torch.tensor([1.0, 0.0], dtype=D, requires_grad=True)
    options = {"norm": lambda e: e.abs().max()}
    values = solve(
        oscillator, y, [0.0, 2.0], rtol=1e-8, atol=1e-8, options=options, gradient=gradient
    )
    (result,) = torch.autograd.grad(values.final[0], y)
    torch.testing.assert_close(
        result, torch.tensor([math.cos(2), math.sin(2)], dtype=D), rtol=1e-6, atol=1e-6
    )


def decays(t, y):
    return -y * torch.tensor([1.0, 10.0], dtype=y.dtype)


@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint"])
def test_a_tolerance_for_every_number(steps, gradient):
    start = torch.ones(3, 2, dtype=D, requires_grad=True)
    loose = torch.tensor([1e-3, 1.0], dtype=D)
    more = {"steps": steps, "gradient": gradient}
    tight = solve(decays, start, [0.0, 1.0], rtol=1e-8, atol=1e-8, **more)
    result = solve(decays, start, [0.0, 1.0], rtol=1e-8, atol=loose, **more)
    assert result.accepted < tight.accepted
    assert float((result.final[:, 0].detach() - math.exp(-1)).abs().max()) < 1e-3
    (gradients,) = torch.autograd.grad(result.final[:, 0].sum(), start)
    assert float((gradients[:, 0] - math.exp(-1)).abs().max()) < 1e-2


def test_tolerances_of_members():
    state = (torch.ones(2, dtype=D), torch.ones(3, 2, dtype=D))

    def field(t, y):
        return -y[0], -10 * y[1]

    tight = solve(field, state, [0.0, 1.0], rtol=1e-8, atol=1e-8)
    for rtol in ((1e-8, 1e-2), [1e-8, torch.full((3, 1), 1e-2)], torch.tensor([1e-8, 1e-2])):
        result = solve(field, state, [0.0, 1.0], rtol=rtol, atol=(1e-8, 1e-2))
        assert result.accepted < tight.accepted
        assert float((result.values[0][-1] - math.exp(-1)).abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("rtol", "named"),
    [
        (torch.ones(5), r"broadcasts to \(3, 2\).*got shape \(5,\)"),
        (torch.tensor([1.0, -1.0]), "negative"),
        ("small", "rtol"),
        (-1.0, "rtol"),
    ],
)
def test_tolerances_that_do_not_fit(rtol, named):
    with pytest.raises(OptionError, match=named):
        solve(decays, torch.ones(3, 2), [0.0, 1.0], rtol=rtol)


def test_other_things_that_do_not_fit():
    start = torch.ones(3, 2)
    with pytest.raises(OptionError, match="1 for 2 tensors"):
        solve(lambda t, y: y, (start, start), [0.0, 1.0], rtol=(1e-3,))
    with pytest.raises(OptionError, match="one number for the state"):
        solve(decays, start, [0.0, 1.0], options={"norm": lambda e: e.abs()})
    with pytest.raises(OptionError, match="a function from errors"):
        solve(decays, start, [0.0, 1.0], options={"norm": 3})
    with pytest.raises(OptionError, match="one step size for the batch"):
        solve(decays, start, [0.0, 1.0], options={"norm": torch.max}, steps="sample")
    with pytest.raises(OptionError, match="steps are fixed"):
        solve(decays, start, [0.0, 1.0], options={"norm": torch.max}, method="rk4")
    with pytest.raises(ShapeError, match="a tuple inside it"):
        solve(lambda t, y: y, (start, (start, start)), [0.0, 1.0])


@pytest.mark.parametrize(
    ("how", "options"), [({}, {}), ({"method": "rk4"}, {}), ({}, {"step_size": 0.1})]
)
def test_unknown_options_offer_only_what_is_taken(how, options):
    start = torch.ones(3, 2)
    with pytest.raises(LookupError) as caught:
        solve(decays, start, [0.0, 1.0], options={**options, "qqqq": 1}, **how)
    offered = str(caught.value).split("Choose one of: ")[1].rstrip(".").split(", ")
    usual = {
        "step_size": 0.1,
        "max_steps": 100,
        "checkpoint_steps": 2,
        "grid": [0.0, 0.5, 1.0],
        "perturb": True,
        "first_step": 0.1,
        "max_step": 0.5,
        "min_step": 0.01,
        "step_t": [0.5],
        "jump_t": [0.5],
        "control": StepControl(),
        "norm": lambda errors: errors.abs().max(),
    }
    for name in offered:
        solve(decays, start, [0.0, 1.0], options={**options, name: usual.pop(name)}, **how)
    for name, value in usual.items():
        with pytest.raises(OptionError, match=name):
            solve(decays, start, [0.0, 1.0], options={**options, name: value}, **how)


def test_a_start_without_numbers_and_an_event_that_never_comes():
    with pytest.raises(ShapeError, match="meta"):
        solve(decays, torch.ones(3, 2, device="meta"), [0.0, 1.0])
    with pytest.raises(SolveError, match=r"There was no event.*max_steps"):
        solve(
            decays,
            torch.ones(3, 2),
            [0.0, math.inf],
            event=lambda t, y: y.max() + 1,
            options={"max_steps": 20},
            rtol=1e-3,
            atol=1e-3,
        )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_right_or_refused(dtype):
    start = torch.ones(4, dtype=dtype, requires_grad=True)
    times = torch.tensor([0.0, 1.0])
    with pytest.raises(OptionError, match=r"float16.*autocast"):
        undamped.odeint(lambda t, y: -y, start, times)
    seen = set()

    def field(t, y):
        seen.update((t.dtype, y.dtype))
        return -y

    more = [{"rtol": 1e-2, "atol": 1e-2}, {"method": "rk4", "options": {"step_size": 0.004}}]
    for settings in more:
        values = undamped.odeint(field, start, times, **settings)
        assert values.dtype == dtype and seen == {dtype}
        assert float((values[-1].detach().float() - math.exp(-1)).abs().max()) < 5e-3
        (result,) = torch.autograd.grad(values[-1].sum(), start)
        assert result.dtype == dtype
        assert float((result.float() - math.exp(-1)).abs().max()) < 5e-3


@pytest.mark.parametrize("gradient", ["checkpoint", "adjoint", "backprop"])
@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_complex_states(gradient, steps):
    rate = torch.tensor(-0.3 + 2j, dtype=torch.complex128, requires_grad=True)
    start = torch.tensor([[1.0 + 1j, 2.0, 0.5j]], dtype=torch.complex128, requires_grad=True)

    def field(t, y):
        assert y.shape == (1, 3) and t.dim() in (0, 2)
        return rate * y

    values = solve(
        field, start, [0.0, 1.0], rtol=1e-9, atol=1e-9, gradient=gradient, steps=steps
    ).final
    truth = start * torch.exp(rate)
    torch.testing.assert_close(values, truth, rtol=1e-7, atol=1e-7)
    weights = torch.tensor([[1.0, 2j, 3 - 1j]], dtype=torch.complex128)
    result = torch.autograd.grad((values * weights).abs().sum(), (start, rate))
    expected = torch.autograd.grad((truth * weights).abs().sum(), (start, rate))
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_complex_and_real_members_together():
    state = (torch.ones(2, dtype=torch.complex64), torch.ones(2, 3))
    values = undamped.odeint(
        lambda t, y: (1j * y[0], -y[1]), state, torch.tensor([0.0, 1.0]), rtol=1e-5, atol=1e-6
    )
    torch.testing.assert_close(values[0][-1], torch.full((2,), complex(math.cos(1), math.sin(1))))
    torch.testing.assert_close(
        values[1][-1], torch.full((2, 3), math.exp(-1)), rtol=1e-4, atol=1e-4
    )


def test_a_norm_holds_few_numbers_among_many_to_the_tolerance():
    start = torch.ones(100_000, dtype=D)

    def field(t, y):
        return torch.cat((y[1:2], -9 * y[:1], torch.zeros_like(y[2:])))

    exact = math.cos(15.0) + math.sin(15.0) / 3

    def error(**options):
        result = solve(field, start, [0.0, 5.0], rtol=1e-6, atol=1e-6, options=options)
        return abs(result.final[0].item() - exact)

    assert error(norm=lambda errors: errors.abs().max()) < 2e-5 < error()
