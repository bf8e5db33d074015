"""Experiments about moving systems, as small as they get: every number and picture is made."""

import pytest

from undamped._base.errors import UnknownNameError
from undamped._base.registry import benchmarks, experiments
from undamped.lab.papers.physics.experiment import Goal

TINY = {
    "hnn": {
        "systems": ("spring", "pendulum"), "seeds": (0,), "steps": 3, "body_steps": 3,
        "trajectories": 4, "hidden_size": 8, "end": 1.0,
    },
    "ssinn": {"seeds": (0,), "pairs": 16, "steps": 3},
    "nssnn": {"seeds": (0,), "pairs": 16, "steps": 3, "predicted": 20},
    "taylor-net": {"systems": ("pendulum",), "seeds": (0,), "steps": 3, "later": 20},
    "lnn": {"seeds": (0,), "steps": 3, "states": 16, "hidden_size": 8, "end": 0.5},
    "links": {"models": ("NODE", "CHNN"), "steps": 3, "windows": 8, "hidden_size": 8},
    "arm": {"steps": 3, "trajectories": 2, "hidden_size": 4, "control_steps": 3},
    "hgn": {"steps": 2, "films_seen": 8},
    "symoden": {"steps": 3, "trajectories": 8, "hidden_size": 8, "baseline": False},
}  # fmt: skip


@pytest.mark.parametrize("name", TINY)
def test_every_experiment_says_what_it_found_and_what_was_wanted(name, tmp_path):
    lines = []
    result = experiments[name](**TINY[name], out=str(tmp_path), progress=lines.append)
    goals = result.to_dict()["goals"]
    assert lines and all({"words", "value", "limit", "met"} <= set(goal) for goal in goals)
    page = result.markdown()
    assert all(goal["words"] in page for goal in goals) and goals
    assert all(figure.axes for figure in result.figures().values())
    for motions in result.animations().values():
        assert all(motion.true.shape == motion.learned.shape for motion in motions.values())


def test_a_goal_is_met_or_not():
    assert Goal("error", 1.0, 1.0).met and not Goal("error", float("nan"), 1.0).met
    assert Goal("error", 2.0, 1.0).line() == "- ✗ error: 2 (goal: at most 1)."


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_the_benchmark_measures_what_it_says(monkeypatch):
    def here(prepare, *arguments):
        prepare(*arguments)()
        return 1_000_000  # a process of its own for each takes its time

    monkeypatch.setattr("undamped.lab.benchmarks.physics.peak_memory", here)
    result = benchmarks["physics"](quick=True, rounds=1)
    hnn, srnn, lnn = result.to_dict()["records"]
    assert hnn["autograd_over_closed"] > 0
    assert srnn["gradient_difference"] < 1e-10
    assert set(srnn["peak_bytes"]) == {"reversible", "backprop"}
    assert set(lnn["timings"]) == {"accelerations", "an update"}
    assert "SRNN" in result.markdown() and result.summary().renderables
    with pytest.raises(UnknownNameError, match="section of this benchmark 'hn'"):
        benchmarks["physics"](only=("hn",))
