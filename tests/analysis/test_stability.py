"""Forward Euler's criterion, stiffness, and the pairing of heavy-ball adjoints."""

import json

import numpy as np
import pytest
import torch

from undamped._base.errors import ShapeError
from undamped.analysis import eigenvalue_pairs, euler_stability


def test_a_damped_field_is_stable_up_to_its_largest_step():
    J = np.diag([-1.0, -4.0])
    result = euler_stability(J, 0.4)
    assert result.stable
    assert result.largest_step[0] == pytest.approx(0.5)
    assert result.stiffness[0] == pytest.approx(4.0)
    assert not euler_stability(J, 0.51).stable
    assert euler_stability(J, 0.5).amplification[0] == pytest.approx(1.0)


def test_an_undamped_oscillator_is_never_stable():
    J = np.array([[0.0, 1.0], [-4.0, 0.0]])
    result = euler_stability(np.stack([J, J]), 0.1)
    np.testing.assert_allclose(result.amplification, np.sqrt(1 + 0.04))
    assert (result.largest_step == 0).all()
    assert not result.stable
    assert result.plot().data
    json.dumps(result.to_dict(), allow_nan=False)


@pytest.mark.parametrize("damping", [0.0, 0.3, 2.0])
def test_heavy_ball_eigenvalues_pair(damping):
    # ḧ + γḣ = F h as a first-order system: the spectrum of −M splits into pairs of sum (t − T)γ.
    F = np.random.default_rng(0).standard_normal((6, 6))
    B = np.block([[np.zeros((6, 6)), np.eye(6)], [F, -damping * np.eye(6)]])
    pairs = eigenvalue_pairs(torch.from_numpy(F), damping, span=1.7).numpy()
    np.testing.assert_allclose(pairs.sum(1), -1.7 * damping, atol=1e-12)
    expected = 1.7 * np.linalg.eigvals(B)
    for value in pairs.ravel():
        assert np.abs(expected - value).min() < 1e-9


def test_shape():
    with pytest.raises(ShapeError, match="jacobians must be"):
        euler_stability(np.ones((2, 3)), 0.1)
