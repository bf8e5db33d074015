"""Hypersolvers: the local error law, and both ways of fitting."""

import math

import pytest
import torch

from undamped.ode import CorrectionNetwork, HyperSolver
from undamped.ode.methods.hyper import fit

RATE = torch.tensor([[0.0, 1.0], [-1.0, -0.2]], dtype=torch.float64)


def field(t, y):
    return y @ RATE.T


def exact(t, y):
    return y @ torch.matrix_exp(RATE * t).T


@pytest.mark.parametrize(("base", "order"), [("euler", 1), ("midpoint", 2)])
@pytest.mark.parametrize("delta", [1e-1, 1e-3])
def test_a_correction_within_delta_leaves_an_error_of_delta_h_to_the_p_plus_one(base, order, delta):
    y = torch.tensor([[1.0, -0.5]], dtype=torch.float64)
    offset = torch.tensor([[0.6, 0.8]], dtype=torch.float64)  # of length one

    def correction(t, state, slope, h):
        # The true residual, off by exactly delta.
        plain = HyperSolver(base)
        return plain.residual(field, 0.0, h, state, exact(h, state)) + delta * offset

    solver = HyperSolver(base, correction)
    for h in (0.4, 0.2, 0.1, 0.05):
        (new,), _ = solver.step(field, 0.0, h, (y,))
        error = float(torch.linalg.vector_norm(new - exact(h, y)))
        assert math.isclose(error, delta * h ** (order + 1), rel_tol=1e-6, abs_tol=1e-14)


@pytest.mark.parametrize("objective", ["residual", "trajectory"])
def test_fitting_makes_the_cheap_method_better(objective):
    torch.manual_seed(0)
    start = torch.randn(64, 2, dtype=torch.float64)
    solver = HyperSolver("euler", CorrectionNetwork(2, 16).double())
    losses = fit(solver, field, start, end=1.0, steps=5, objective=objective, iterations=150)
    assert losses[-1] < 0.3 * losses[0]
    fresh = torch.randn(32, 2, dtype=torch.float64)

    def end_of(method):
        state = (fresh,)
        with torch.no_grad():
            for k in range(5):
                state, _ = method.step(field, 0.2 * k, 0.2, state)
        return float((state[0] - exact(1.0, fresh)).norm())

    assert end_of(solver) < 0.3 * end_of(HyperSolver("euler"))
