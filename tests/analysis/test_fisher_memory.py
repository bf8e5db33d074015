"""Fisher memory against closed forms, an extended-precision oracle, and TH table A.5."""

import mpmath
import numpy as np
import pytest

from undamped._base.errors import OptionError, ShapeError
from undamped.analysis import fisher_memory

N = 100


def schur_form(alpha, beta, d, n=N):
    """TH equation 3.4.2."""
    rows, columns = np.indices((n, n))
    lag = rows - columns
    return np.where(lag == 0, d, np.where(lag == 1, alpha, np.where(lag > 1, beta, 0.0)))


def first(n=N):
    return np.eye(n)[0]


@pytest.mark.parametrize("alpha", [0.95, 1.05, 1.5])
def test_delay_line_matches_its_closed_form(alpha):
    # C = diag((αⁱ − 1)/(α − 1)) and Wᵏv = α^(k/2) e_(k+1), hence
    # J(k) = αᵏ(α − 1)/(α^(k+1) − 1) for k < N and nothing after that.
    result = fisher_memory(schur_form(np.sqrt(alpha), 0.0, 0.0), first())
    k = np.arange(N)
    expected = alpha**k * (alpha - 1) / (alpha ** (k + 1) - 1)
    np.testing.assert_allclose(result.curve[:N], expected, rtol=1e-10)
    assert np.all(result.curve[N:] < 1e-12)
    assert result.total == pytest.approx(expected.sum(), rel=1e-10)


def test_delay_line_without_gain_is_harmonic():
    result = fisher_memory(schur_form(1.0, 0.0, 0.0), first())
    np.testing.assert_allclose(result.curve[:N], 1 / np.arange(1, N + 1), rtol=1e-12)


def test_normal_matrix_keeps_exactly_one_over_noise():
    rng = np.random.default_rng(0)
    q, _ = np.linalg.qr(rng.standard_normal((12, 12)))
    symmetric = q @ np.diag(rng.uniform(-0.9, 0.9, 12)) @ q.T
    source = rng.standard_normal(12)
    source /= np.linalg.norm(source)
    result = fisher_memory(symmetric, source, noise=0.25)
    assert result.total == pytest.approx(4.0, rel=1e-9)
    np.testing.assert_allclose(result.spatial, 4 * np.eye(12), atol=1e-9)
    assert result.curve.sum() == pytest.approx(result.total, rel=1e-9)


def test_general_matrix_matches_the_definition():
    rng = np.random.default_rng(1)
    W = rng.standard_normal((8, 8)) * 0.25
    v = rng.standard_normal(8)
    powers = [np.linalg.matrix_power(W, k) for k in range(400)]
    C = 0.3 * sum(p @ p.T for p in powers)
    expected = [float(v @ p.T @ np.linalg.solve(C, p @ v)) for p in powers[:20]]
    result = fisher_memory(W, v, noise=0.3, steps=20)
    np.testing.assert_allclose(result.curve, expected, rtol=1e-9)
    assert np.trace(result.spatial) == pytest.approx(8 / 0.3, rel=1e-9)


def extended_curve(alpha, d, steps):
    """J(k) of the bidiagonal matrix in 60 digits: C from its recursion, then Cholesky."""
    with mpmath.workdps(60):
        a, d = mpmath.mpf(alpha), mpmath.mpf(d)
        C = [[mpmath.mpf(0)] * N for _ in range(N)]
        for i in range(N):
            for j in range(i + 1):
                total = mpmath.mpf(i == j)
                if j:
                    total += d * a * C[i][j - 1] + a * a * C[i - 1][j - 1]
                if i:
                    total += a * d * (C[i - 1][j] if j < i else C[j][i - 1])
                C[i][j] = C[j][i] = total / (1 - d * d)
        L = [[mpmath.mpf(0)] * N for _ in range(N)]
        for i in range(N):
            for j in range(i):
                L[i][j] = (C[i][j] - mpmath.fdot(L[i][:j], L[j][:j])) / L[j][j]
            L[i][i] = mpmath.sqrt(C[i][i] - mpmath.fdot(L[i][:i], L[i][:i]))
        state, curve = [mpmath.mpf(i == 0) for i in range(N)], []
        for _ in range(steps):
            solved = []
            for i in range(N):
                solved.append((state[i] - mpmath.fdot(L[i][:i], solved)) / L[i][i])
            curve.append(float(mpmath.fdot(solved, solved)))
            state = [d * state[i] + (a * state[i - 1] if i else 0) for i in range(N)]
        return np.array(curve)


@pytest.mark.slow
def test_ill_conditioned_case_agrees_with_sixty_digits():
    W = schur_form(1.05, 0.0, 0.2)
    expected = extended_curve(1.05, 0.2, 180)
    result = fisher_memory(W, first(), steps=180)
    np.testing.assert_allclose(result.curve, expected, rtol=1e-5, atol=1e-9)
    assert result.total == pytest.approx(expected.sum(), rel=1e-6)
    assert result.total == pytest.approx(20.8370574, rel=1e-6)
    # What makes it hard: the covariance's condition is beyond double precision.
    powers, C = np.eye(N), np.zeros((N, N))
    for _ in range(400):
        C, powers = C + powers @ powers.T, powers @ W
    assert np.linalg.cond(C) > 1e16


def test_fixed_point_takes_over_where_double_precision_ends(monkeypatch):
    import importlib

    module = importlib.import_module("undamped.analysis.fisher_memory")
    W = schur_form(1.05, 0.005, 0.2, n=30)
    double = fisher_memory(W, first(30))
    monkeypatch.setattr(module, "_double_precision", lambda W: (2 * np.eye(30), 0 * W))
    exact = fisher_memory(W, first(30))
    assert double.bits == 53
    assert exact.bits == 256
    assert exact.trace_error < 1e-13
    np.testing.assert_allclose(double.curve[:30], exact.curve[:30], rtol=1e-6)


TABLE_A5 = [  # α, β, d, printed J_tot, ours
    (0.95, 0.0, 0.0, 3.03, 3.03270),
    (1.00, 0.0, 0.0, 5.19, 5.18738),
    (1.05, 0.0, 0.0, 12.1, 12.08727),
    (0.95, 0.005, 0.0, 3.18, 3.17577),
    (1.00, 0.005, 0.0, 5.30, 5.30143),
    (1.05, 0.005, 0.0, 12.1, 12.08654),
    (0.95, 0.0, 0.2, 12.0, 11.93939),
    (1.00, 0.0, 0.2, 16.2, 16.29823),
    (1.05, 0.0, 0.2, 20.5, 20.83706),
    (0.95, 0.005, 0.2, 12.1, 12.08953),
    (1.00, 0.005, 0.2, 16.3, 16.39095),
    (1.05, 0.005, 0.2, 20.4, 20.88466),
]
WRONG_IN_PRINT = {(0.95, 0.0, 0.2), (1.0, 0.0, 0.2), (1.05, 0.0, 0.2), (1.0, 0.005, 0.2),
                  (1.05, 0.005, 0.2)}  # fmt: skip


@pytest.mark.parametrize(("alpha", "beta", "d", "printed", "ours"), TABLE_A5)
def test_table_of_the_thesis(alpha, beta, d, printed, ours):
    result = fisher_memory(schur_form(alpha, beta, d), first())
    assert result.total == pytest.approx(ours, abs=6e-6)
    rounded = float(f"{result.total:.3g}")
    assert (rounded != printed) == ((alpha, beta, d) in WRONG_IN_PRINT)


def test_refuses_what_it_cannot_do():
    with pytest.raises(OptionError, match="unit circle"):
        fisher_memory(1.01 * np.eye(3), np.ones(3))
    with pytest.raises(OptionError, match="variance"):
        fisher_memory(0.5 * np.eye(3), np.ones(3), noise=0.0)
    with pytest.raises(ShapeError, match="units"):
        fisher_memory(np.eye(3), np.ones(4))


def test_plot_and_dictionary():
    import json

    result = fisher_memory(schur_form(1.0, 0.0, 0.0, n=5), first(5))
    assert json.loads(json.dumps(result.to_dict()))["curve"][0] == pytest.approx(1.0)
    assert result.plot().layout.yaxis.type == "log"
