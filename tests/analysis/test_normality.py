"""Non-normality against its definition and matrices whose answer is known."""

import json

import numpy as np
import pytest

from undamped._base.errors import ShapeError
from undamped.analysis import henrici_number, normality, schur_structure


def test_henrici_number():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((9, 9))
    eigenvalues = np.linalg.eigvals(A)
    expected = np.sqrt(np.linalg.norm(A) ** 2 - (np.abs(eigenvalues) ** 2).sum())
    assert henrici_number(A) == pytest.approx(expected, rel=1e-8)
    q, _ = np.linalg.qr(A)
    assert henrici_number(q) < 1e-12
    assert henrici_number(A + A.T) < 1e-12
    # A delay line: every eigenvalue is zero, so all of ‖A‖_F is non-normal.
    delay = np.diag(np.full(9, 1.3), -1)
    assert normality(delay).relative == pytest.approx(1.0)


def test_transient_growth_of_a_delay_line_ends_with_its_length():
    result = normality(np.diag(np.full(9, 1.1), -1), steps=15)
    np.testing.assert_allclose(result.growth[:10], 1.1 ** np.arange(10), rtol=1e-12)
    assert (result.growth[10:] == 0).all()
    assert result.transient == pytest.approx(1.1**9)
    assert result.plot().data
    json.dumps(result.to_dict(), allow_nan=False)


def test_schur_structure_finds_rotations_and_the_delay_line():
    angles = np.array([0.4, 1.1, 2.6])
    blocks = np.zeros((6, 6))
    for i, angle in enumerate(angles):
        c, s = np.cos(angle), np.sin(angle)
        blocks[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[c, -s], [s, c]]
    q, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((6, 6)))
    result = schur_structure(q @ blocks @ q.T)
    np.testing.assert_allclose(result.angles, angles, atol=1e-10)
    assert result.histogram.sum() == 3
    np.testing.assert_allclose(result.subdiagonals[2:], 0, atol=1e-10)
    delay = schur_structure(np.diag(np.full(5, 0.7), -1) + 0.2 * np.eye(6))
    np.testing.assert_allclose(delay.subdiagonals[:3], [0.2, 0.7, 0.0], atol=1e-12)
    assert np.allclose(np.triu(result.form, 2), 0)
    assert result.plot().data
    assert result.plot_angles().data
    with pytest.raises(ShapeError):
        schur_structure(np.ones((2, 3)))
