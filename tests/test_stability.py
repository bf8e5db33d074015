"""Forward Euler's criterion, stiffness, and the pairing of heavy-ball adjoints."""

import json

import numpy as np
import pytest

from undamped.analysis import euler_stability, heavy_ball_pairs, stiffness_ratio
from undamped.errors import ShapeError


def test_a_damped_field_is_stable_up_to_its_largest_step():
    J = np.diag([-1.0, -4.0])
    found = euler_stability(J, 0.4)
    assert found.stable
    assert found.largest_step[0] == pytest.approx(0.5)
    assert found.stiffness[0] == pytest.approx(4.0)
    assert not euler_stability(J, 0.51).stable
    assert euler_stability(J, 0.5).amplification[0] == pytest.approx(1.0)


def test_an_undamped_oscillator_is_never_stable():
    J = np.array([[0.0, 1.0], [-4.0, 0.0]])
    found = euler_stability(np.stack([J, J]), 0.1)
    np.testing.assert_allclose(found.amplification, np.sqrt(1 + 0.04))
    assert (found.largest_step == 0).all()
    assert not found.stable
    assert found.plot().data
    json.dumps(found.to_dict(), allow_nan=False)


def test_stiffness_of_a_heavy_ball_is_the_root():
    # With A positive definite and no damping, B = [[0, I], [−A, 0]] has eigenvalues ±i√λ.
    A = np.diag([1.0, 9.0, 100.0])
    B = np.block([[np.zeros((3, 3)), np.eye(3)], [-A, np.zeros((3, 3))]])
    assert stiffness_ratio(A) == pytest.approx(100)
    assert stiffness_ratio(B) == pytest.approx(10)
    assert stiffness_ratio(np.diag([0.0, 1.0])) == np.inf


@pytest.mark.parametrize("damping", [0.0, 0.3, 2.0])
def test_heavy_ball_eigenvalues_pair(damping):
    F = np.random.default_rng(0).standard_normal((6, 6))
    sums = heavy_ball_pairs(F, damping, span=-1.7)
    np.testing.assert_allclose(sums, -1.7 * damping, atol=1e-10)


def test_shape():
    with pytest.raises(ShapeError, match="trajectory"):
        euler_stability(np.ones((2, 3)), 0.1)
