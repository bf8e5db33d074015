"""The adjoint solve meets the states of the forward pass on its way back, or is refused."""

import pytest
import torch

from undamped._base.errors import SolveError
from undamped.ode import solve

D = torch.float64


def grid(method, gradient, times, rtol=1e-7):
    """Return the gradients of a sum on diffusive grids."""
    chance = torch.Generator().manual_seed(0)
    start, weights = (torch.randn(3, 2, 6, 6, generator=chance, dtype=D) for _ in range(2))
    start.requires_grad_()
    rate = torch.ones((), dtype=D, requires_grad=True)

    def field(t, u):
        around = sum(torch.roll(u, shift, dim) for shift in (1, -1) for dim in (2, 3))
        return 20 * rate * (around - 4 * u) + u - u**3

    result = solve(
        field,
        start,
        times,
        method=method,
        rtol=rtol,
        atol=rtol,
        gradient=gradient,
        parameters=(rate,),
    )
    return torch.autograd.grad((weights * result.final).sum(), (start, rate))


@pytest.mark.slow
@pytest.mark.parametrize(("method", "rtol"), [("rodas5p", 1e-5), ("dopri5", 1e-6)])
def test_contracting_flows_are_refused(method, rtol):
    with pytest.raises(SolveError, match="checkpoint"):
        grid(method, "adjoint", [0.0, 0.2], rtol)


def test_more_outputs_help():
    times = torch.linspace(0.0, 0.2, 21, dtype=D).tolist()
    result, exact = (grid("dopri5", gradient, times) for gradient in ("adjoint", "checkpoint"))
    for one, other in zip(result, exact, strict=True):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("steps", ["batch", "sample"])
def test_what_cannot_be_recovered_is_named(steps):
    rate = torch.tensor(10.0, dtype=D, requires_grad=True)
    start = torch.ones(2, 1, dtype=D)

    def slope(end, **more):
        result = solve(
            lambda t, y: rate * (torch.sin(t) - y),
            start,
            [0.0, end],
            gradient="adjoint",
            steps=steps,
            **more,
        )
        return torch.autograd.grad(result.final.sum(), rate)[0]

    with pytest.raises(SolveError, match=r"off by .* more output times"):
        slope(2.0)
    assert torch.isfinite(slope(0.5))


def test_a_member_at_rest_is_no_reason():
    start = torch.tensor([[0.0], [1.0]], dtype=D, requires_grad=True)
    result = solve(lambda t, y: -y, start, [0.0, 1.0], gradient="adjoint")
    (slopes,) = torch.autograd.grad(result.final.sum(), start)
    assert torch.allclose(slopes, torch.exp(torch.tensor(-1.0, dtype=D)).expand(2, 1), rtol=1e-5)
