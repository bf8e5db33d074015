"""Mean-field theory against known lines, exact integrals and random networks."""

import json
import math

import numpy as np
import pytest

from undamped._base.errors import OptionError, UnknownNameError
from undamped.analysis import (
    critical_weight_scale,
    mean_field,
    phase_diagram,
    simulate_depth,
)


def test_critical_line_of_tanh_without_bias_is_one():
    assert critical_weight_scale("tanh") == pytest.approx(1.0)
    assert mean_field("tanh", weight_scale=1.0).phase == "critical"
    assert mean_field("tanh", weight_scale=0.99).phase == "ordered"
    assert mean_field("tanh", weight_scale=1.01).phase == "chaotic"
    below = mean_field("tanh", weight_scale=0.9)
    assert (below.q, below.c) == (0.0, 1.0)
    assert below.chi == pytest.approx(0.81)
    assert below.depth_c == pytest.approx(-1 / math.log(0.81))


@pytest.mark.parametrize("bias_scale", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("activation", ["tanh", "erf"])
def test_critical_line_with_bias(activation, bias_scale):
    scale = critical_weight_scale(activation, bias_scale=bias_scale)
    result = mean_field(activation, weight_scale=scale, bias_scale=bias_scale)
    assert result.chi == pytest.approx(1.0, abs=1e-6)
    assert result.c == pytest.approx(1.0, abs=1e-3)
    lower = mean_field(activation, weight_scale=0.95 * scale, bias_scale=bias_scale)
    higher = mean_field(activation, weight_scale=1.05 * scale, bias_scale=bias_scale)
    assert (lower.phase, higher.phase) == ("ordered", "chaotic")
    assert lower.c == pytest.approx(1.0)
    assert higher.c < 0.999


def test_erf_agrees_with_its_exact_integrals():
    # E[erf(√q z)²] = (2/π) asin(2q/(1 + 2q)) and E[erf'²] = (4/π)/√(1 + 4q).
    result = mean_field("erf", weight_scale=1.5, bias_scale=0.3)
    q = result.q
    assert 2.25 * 2 / math.pi * math.asin(2 * q / (1 + 2 * q)) + 0.09 == pytest.approx(q, rel=1e-9)
    assert result.chi == pytest.approx(2.25 * 4 / math.pi / math.sqrt(1 + 4 * q), rel=1e-9)
    assert critical_weight_scale("erf") == pytest.approx(math.sqrt(math.pi) / 2)


def test_relu():
    result = mean_field("relu", weight_scale=1.2, bias_scale=0.5)
    assert result.q == pytest.approx(0.25 / (1 - 0.72))
    assert result.chi == pytest.approx(0.72)
    assert result.c == 1.0
    assert result.depth_q == pytest.approx(-1 / math.log(0.72))
    assert critical_weight_scale("relu", bias_scale=0.4) == pytest.approx(math.sqrt(2))
    assert math.isinf(mean_field("relu", weight_scale=1.6, bias_scale=0.1).q)


def test_fixed_points_and_depth_scales_are_those_of_the_iterated_maps():
    for sizes in (
        {"weight_scale": 1.3, "bias_scale": 0.3},
        {"weight_scale": 2.0, "bias_scale": 0.2},
    ):
        result = mean_field("tanh", **sizes)
        deep = simulate_depth("tanh", **sizes, width=2, depth=600, start_q=2.0, start_c=0.3)
        assert deep.q_theory[-1] == pytest.approx(result.q, rel=1e-6)
        assert deep.c_theory[-1] == pytest.approx(result.c, abs=1e-5)
        off = np.abs(deep.c_theory - deep.c_theory[-1])
        used = (off > 1e-8) & (off < 1e-3)
        rate = -np.polyfit(np.flatnonzero(used), np.log(off[used]), 1)[0]
        assert 1 / rate == pytest.approx(result.depth_c, rel=0.1)


@pytest.mark.parametrize("activation", ["tanh", "erf", "relu"])
def test_wide_random_networks_follow_the_theory(activation):
    result = simulate_depth(activation, weight_scale=1.4, bias_scale=0.3, width=1500, depth=8)
    np.testing.assert_allclose(result.q, result.q_theory, rtol=0.2)
    np.testing.assert_allclose(result.c, result.c_theory, atol=0.07)
    assert result.plot().data


def test_phase_diagram():
    result = phase_diagram("tanh", weight_scales=[0.5, 1.0, 2.0], bias_scales=[0.0, 0.5])
    assert result.chi.shape == (2, 3)
    assert result.chi[0, 1] == pytest.approx(1.0)
    assert result.chi[0, 0] < 1 < result.chi[0, 2]
    assert result.plot().data
    json.dumps(result.to_dict(), allow_nan=False)
    assert mean_field("tanh", weight_scale=1.3, bias_scale=0.2).plot().data


def test_errors():
    with pytest.raises(UnknownNameError, match="tanh"):
        mean_field("tahn", weight_scale=1.0)
    with pytest.raises(OptionError, match="weight_scale must be > 0"):
        mean_field("tanh", weight_scale=0.0)
