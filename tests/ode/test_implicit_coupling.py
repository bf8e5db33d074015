"""Implicit methods on states whose rows depend on each other, and their adjoints."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch
from torch import nn

from undamped._base.errors import SolveError
from undamped._base.registry import solvers
from undamped.ode import Radau5, solve

IMPLICIT = [n for n in solvers if solvers[n].implicit and not solvers[n].switches]
GRADIENTS = ["checkpoint", "backprop", "adjoint"]


class Graph(nn.Module):
    """Diffusion along a ring of nodes, with a reaction: rows are nodes, and coupled."""

    def __init__(self, nodes=5, width=2):
        super().__init__()
        ring = torch.eye(nodes, dtype=torch.float64)
        laplace = ring.roll(1, 0) + ring.roll(-1, 0) - 2 * ring
        self.rate = nn.Parameter(torch.tensor(3.0, dtype=torch.float64))
        self.register_buffer("laplace", laplace)
        self.mix = nn.Parameter(0.3 * torch.randn(width, width, dtype=torch.float64))

    def forward(self, t, y):
        return self.rate * self.laplace @ y + torch.tanh(y @ self.mix) * torch.cos(t)


class Matrix(nn.Module):
    """A Riccati equation: the state is one matrix, whose rows are no samples."""

    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(0.5 * torch.randn(3, 3, dtype=torch.float64))

    def forward(self, t, y):
        return self.a @ y + y @ self.a.T + torch.eye(3, dtype=y.dtype) - y @ y


class Grid(nn.Module):
    """Heat on a grid, one quantity: (rows, columns)."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, t, y):
        padded = nn.functional.pad(y[None, None], (1, 1, 1, 1), mode="circular")[0, 0]
        around = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
        return self.rate * (around - 4 * y) - y**3


class Late(nn.Module):
    """Rows that are apart at the start and coupled from t = 0.5 on."""

    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))

    def forward(self, t, y):
        coupling = torch.relu(t - 0.5) * (y.mean(0, keepdim=True) - y)
        return -self.rate * y**3 + 20 * coupling


FIELDS = {"graph": (Graph, (5, 2)), "matrix": (Matrix, (3, 3)), "grid": (Grid, (4, 3))}
FIELDS["late"] = (Late, (4, 2))
# One method of each kind meets every field, the others a field each.
OF_A_KIND = ("radau5", "sdirk4", "rodas5p")
PAIRS = [(name, method) for method in OF_A_KIND for name in FIELDS]
PAIRS += zip(itertools.cycle(FIELDS), [m for m in IMPLICIT if m not in OF_A_KIND], strict=False)
# What decays is solved backwards in large steps where they are fixed: no adjoint can be expected.
CASES = [
    (name, method, gradient)
    for name, method in PAIRS
    for gradient in GRADIENTS
    if gradient != "adjoint" or solvers[method]().adaptive
]


def problem(name):
    torch.manual_seed(4)
    kind, shape = FIELDS[name]
    field = kind()
    return field, torch.rand(shape, dtype=torch.float64) + 0.2


def gradient_of(field, start, end=1.0, **how):
    y0 = start.clone().requires_grad_()
    final = solve(field, y0, [0.0, end], **how).final
    weights = torch.linspace(1, 2, final.numel(), dtype=final.dtype).view(final.shape)
    result = torch.autograd.grad((weights * final).sum(), [y0, *field.parameters()])
    return final.detach(), result


@cache
def truth(name):
    return gradient_of(*problem(name), method="dopri8", rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method", "gradient"), CASES)
def test_coupled_rows_are_one_system(name, method, gradient):
    solver = solvers[method]()
    how = {"options": {"step_size": 0.05}}
    if solver.adaptive:
        how = {"rtol": 1e-6, "atol": 1e-8} if solver.order > 3 else {"rtol": 1e-4, "atol": 1e-5}
    final, result = gradient_of(*problem(name), method=method, gradient=gradient, **how)
    tolerance = 2e-1 if not solver.adaptive else 5e-4 if solver.order > 3 else 5e-3
    for one, other in zip((final, *result), (truth(name)[0], *truth(name)[1]), strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "gradient"), [case for case in CASES if case[2] != "adjoint"]
)
def test_exact_gradients_are_those_of_the_steps(name, method, gradient):
    field, start = problem(name)
    how = {"method": method, "options": {"step_size": 0.5}, "gradient": gradient}
    _, (pulled, *_) = gradient_of(field, start, **how)
    direction = torch.randn_like(start)
    eps = 1e-5
    with torch.no_grad():
        sides = [start + sign * eps * direction for sign in (1.0, -1.0)]
        values = [solve(field, side, [0.0, 1.0], **how).final for side in sides]
    weights = torch.linspace(1, 2, start.numel(), dtype=start.dtype).view(start.shape)
    difference = float((weights * (values[0] - values[1])).sum()) / (2 * eps)
    assert float((pulled * direction).sum()) == pytest.approx(difference, rel=1e-6)


@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
@pytest.mark.parametrize("method", ["radau5", "sdirk4"])
def test_products_alone_find_the_same(method, gradient):
    """Beyond the size of matrices GMRES solves, with one Krylov space for coupled rows."""
    field, start = problem("graph")
    how = {"gradient": gradient, "options": {"step_size": 0.5}}
    expected = gradient_of(field, start, method=solvers[method](), **how)
    result = gradient_of(field, start, method=solvers[method](dense_size=1), **how)
    for one, other in zip([result[0], *result[1]], [expected[0], *expected[1]], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)


def stiff_system():
    torch.manual_seed(0)
    turn = torch.linalg.qr(torch.randn(40, 40, dtype=torch.float64))[0]
    rates = torch.logspace(0, 8, 40, dtype=torch.float64)
    matrix = -(turn * rates) @ turn.T
    return (lambda t, y: y @ matrix), torch.randn(40, dtype=torch.float64, requires_grad=True)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["backprop", "checkpoint"])
def test_equations_not_solved_on_the_backward_pass_are_an_error(gradient):
    field, y0 = stiff_system()
    solver = Radau5()
    how = {"method": solver, "options": {"step_size": 0.1}, "gradient": gradient}
    final = solve(field, y0, [0.0, 0.1], **how).final
    # From here on there are no matrices, and GMRES gives up soon.
    solver.dense_size = 1
    with pytest.raises(SolveError, match="the gradient of"):
        final.sum().backward()


@pytest.mark.parametrize("method", IMPLICIT)
def test_the_adjoint_of_an_implicit_method_knows_its_derivative(method):
    y0 = torch.ones(3, 1, dtype=torch.float64, requires_grad=True)
    options = {} if solvers[method]().adaptive else {"step_size": 0.1}
    rtol = None if options else 1e-4 if method == "trbdf2" else 1e-7
    solution = solve(
        lambda t, y: -y,
        y0,
        [0.0, 1.0],
        method=method,
        gradient="adjoint",
        options=options,
        rtol=rtol,
        atol=rtol,
    )
    (pulled,) = torch.autograd.grad(solution.final.sum(), y0)
    allowed = 0.1 if rtol is None else 50 * rtol
    torch.testing.assert_close(pulled, torch.full_like(pulled, -1.0).exp(), rtol=allowed, atol=0)
    assert solution.evaluations_backward < 1500


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in IMPLICIT if solvers[name]().adaptive])
def test_the_adjoint_on_a_stiff_network(method):
    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2)).double()

    def field(t, y):
        return -100.0 * (y - torch.cos(t)) * torch.tensor([1.0, 0.01], dtype=y.dtype) + net(y)

    field.parameters = net.parameters
    start = torch.rand(4, 2, dtype=torch.float64)
    how = {"method": method, "rtol": 1e-6, "atol": 1e-8, "end": 0.05}
    _, expected = gradient_of(field, start, gradient="checkpoint", **how)
    _, result = gradient_of(field, start, gradient="adjoint", **how)
    for one, other in zip(result, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
