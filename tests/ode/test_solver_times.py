"""Gradients with respect to output times: twice, and before events."""

import pytest
import torch

from undamped.ode import solve

ONE = torch.ones(1, dtype=torch.float64)


def times(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_gradients_of_gradients_reach_times_and_parameters(steps):
    def value(t, weight, start):
        def field(s, y):
            return -weight * y * torch.cos(s)

        exact = {"rtol": 1e-10, "atol": 1e-10, "gradient": "backprop", "steps": steps}
        return solve(field, start, t, **exact).values

    start = torch.tensor([[1.0], [0.5]], dtype=torch.float64, requires_grad=True)
    weight = torch.tensor(1.2, dtype=torch.float64, requires_grad=True)
    t = times(0.3, 0.6, 1.0)
    closed = start * torch.exp(-weight * (t.sin() - t[0].sin())).view(3, 1, 1)
    result = value(t, weight, start)
    for mean in (lambda y: (y**2).sum(), lambda y: y[-1].sum()):
        expected = torch.autograd.grad(mean(closed), (t, weight, start), create_graph=True)
        ours = torch.autograd.grad(mean(result), (t, weight, start), create_graph=True)
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)
            once_more = {"retain_graph": True, "materialize_grads": True}
            repeated = [
                torch.autograd.grad(x.square().sum(), (t, weight, start), **once_more)
                for x in (a, b)
            ]
            for c, d in zip(*repeated, strict=True):
                torch.testing.assert_close(c, d, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_times_before_an_event_have_gradients(gradient):
    t = times(0.0, 0.2, 5.0)
    solution = solve(lambda s, y: -y, ONE, t, event=lambda s, y: y[0] - 0.5, gradient=gradient)
    (result,) = torch.autograd.grad(solution.values[1].sum(), t)
    slope = float(torch.exp(torch.tensor(-0.2)))
    torch.testing.assert_close(result, result.new_tensor([slope, -slope, 0.0]))


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
def test_what_a_sample_lost_by_its_event_does_not_spoil_the_times_of_the_others(gradient):
    def field(s, y):
        assert not y.isnan().any()
        return torch.stack((-y[0], y[1] ** 2))

    t = times(0.0, 0.5, 2.0)
    start = torch.ones(2, 1, dtype=torch.float64)
    more = {"steps": "sample", "event": lambda s, y: y[:, 0] - 3}
    solution = solve(field, start, t, gradient=gradient, **more)
    assert solution.values[2, 1].isnan().all()
    (result,) = torch.autograd.grad(solution.values[1].sum(), t)
    decay = float(torch.exp(torch.tensor(-0.5, dtype=torch.float64)))
    torch.testing.assert_close(
        result, result.new_tensor([decay - 4, 4 - decay, 0.0]), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_fields_of_samples_get_their_column_of_times(gradient):
    def field(s, y):
        return -torch.cat([s, y], 1)[:, 1:]

    start = torch.ones(2, 3, dtype=torch.float64)
    t = times(0.0, 1.0)
    final = solve(field, start, t, steps="sample", gradient=gradient).final
    (result,) = torch.autograd.grad(final.sum(), t)
    slope = 6 * float(torch.exp(torch.tensor(-1.0)))
    torch.testing.assert_close(result, result.new_tensor([slope, -slope]))
