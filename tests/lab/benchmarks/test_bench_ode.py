"""The benchmark runs, and its reports hold what was measured."""

import json

import torch

from undamped.lab.benchmarks import ode
from undamped.lab.benchmarks.ode import SMALL_TIMES, Problem, SmallField
from undamped.lab.benchmarks.timing import Timing
from undamped.ode import solve


def test_reports():
    timing = ode.FieldTiming(
        "a field",
        {"undamped": 10, "bare field": 10},
        {"bare field": Timing((1.0,)), "undamped": Timing((1.2,))},
        {"undamped checkpoint": Timing((3.0,))},
    )
    report = ode.ode_report([timing], {"reversible": {100: 5}}, {"batch": 3.0})
    assert abs(timing.over_bare - 1.2) < 1e-12
    assert "a field" in json.dumps(report.to_dict()) and "reversible" in report.markdown()
    assert len(report.figures()) == 2 and len(report.summary().renderables) == 3


def test_ratios_count_evaluations_on_both_sides():
    timing = ode.FieldTiming(
        "a field",
        {"undamped": 10, "bare field": 10, "torchdiffeq": 8},
        {
            name: Timing((s,))
            for name, s in (("bare field", 1), ("undamped", 1.2), ("torchdiffeq", 2.4))
        },
        {
            "bare field, one graph": Timing((2.0,)),
            "undamped checkpoint": Timing((4.0,)),
            "undamped backprop": Timing((3.0,)),
            "undamped adjoint": Timing((5.0,)),
            "torchdiffeq backprop": Timing((6.0,)),
            "torchdiffeq adjoint": Timing((12.0,)),
        },
    )
    ratios, bounds = timing.ratios(), timing.bounds()
    assert abs(ratios["forward"] - 2.5) < 1e-12 and abs(ratios["backprop"] - 2.5) < 1e-12
    assert abs(ratios["adjoint"] - 3.0) < 1e-12 and abs(bounds["forward"] - 3.0) < 1e-12


def test_ratios_compare_within_rounds():
    ours, theirs = Timing((1.0, 2.0, 9.0)), Timing((2.0, 4.0, 3.0))
    assert theirs.over(ours) == 2.0 and ours.over(theirs) == 0.5


def test_own_steps_save_evaluations():
    batch, sample, compact = ode.mixed_stiffness(end=1.5).values()
    assert compact < 0.6 * min(batch, sample)


def test_timing_a_small_field():
    problem = Problem(SmallField(), torch.randn(4, 8), [0.0, 0.5])
    timing = ode.time_field("tiny", problem, 1, lambda name: None)
    assert timing.over_bare > 0 and "undamped adjoint" in timing.gradients


def test_the_adjoint_of_the_small_field_is_not_refused():
    torch.manual_seed(0)
    model, y = SmallField(), torch.randn(256, 8, requires_grad=True)
    solution = solve(model, y, SMALL_TIMES, rtol=1e-5, atol=1e-5, gradient="adjoint")
    solution.final.pow(2).mean().backward()
    assert y.grad.isfinite().all()


def test_memory_work_runs():
    ode.memory_work("reversible", 20)()
