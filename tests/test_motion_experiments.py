"""Experiments about moving systems, as small as they get: every number and picture is made."""

import pytest

from undamped._base.errors import UnknownNameError
from undamped._base.registry import benchmarks, experiments
from undamped.lab.papers.physics.goals import Goal

TINY = {
    "hnn": {
        "systems": ("spring", "pendulum"), "seeds": (0,), "steps": 3, "body_steps": 3,
        "trajectories": 4, "hidden_size": 8,
    },
    "ssinn": {"seeds": (0,), "pairs": 16, "steps": 3},
    "nssnn": {"seeds": (0,), "pairs": 16, "steps": 3, "predicted": 20},
    "taylor-net": {"systems": ("pendulum",), "seeds": (0,), "steps": 3, "later": 20},
    "lnn": {"seeds": (0,), "steps": 3, "states": 16, "hidden_size": 8, "end": 0.5},
    "links": {"models": ("NODE", "CHNN"), "steps": 3, "pieces": 8, "hidden_size": 8},
    "arm": {"steps": 3, "trajectories": 2, "hidden_size": 4},
    "hgn": {"steps": 2, "films_seen": 8},
    "symoden": {"steps": 3, "trajectories": 8, "hidden_size": 8, "baseline": False},
}  # fmt: skip


@pytest.mark.parametrize("name", TINY)
def test_every_experiment_says_what_it_found_and_what_was_wanted(name, tmp_path, monkeypatch):
    monkeypatch.setattr("undamped.lab.papers.physics.hnn.ENDS", {"spring": 1.0, "pendulum": 1.0})
    monkeypatch.setattr("undamped.lab.papers.physics.arm.LOOKS", 3)
    ticks = []
    result = experiments[name](**TINY[name], out=str(tmp_path), tick=ticks.append)
    told = result.to_dict()
    assert ticks and all({"words", "value", "limit", "met"} <= set(g) for g in told["goals"])
    page = result.markdown()
    assert all(goal.words in page for goal in result.goals) and result.goals
    assert all(figure.axes for figure in result.figures().values())
    for pictures in getattr(result, "animations", dict)().values():
        assert all(one.true.shape == one.learned.shape for one in pictures.values())


def test_a_goal_is_met_or_not():
    assert Goal("error", 1.0, 1.0).met and not Goal("error", float("nan"), 1.0).met
    assert Goal("error", 2.0, 1.0).line() == "- ✗ error: 2, at most 1 wanted."


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_the_benchmark_measures_what_it_says(monkeypatch):
    def here(prepare, *given):
        prepare(*given)()
        return 1_000_000  # a process of its own for each takes its time

    monkeypatch.setattr("undamped.lab.benchmarks.physics_hamiltonian.peak_memory", here)
    found = benchmarks["physics"](quick=True, rounds=1)
    told = found.to_dict()["sections"]
    assert told[0]["autograd_over_closed"] > 0
    assert told[1]["gradient_difference"] < 1e-10
    assert set(told[1]["peak_bytes"]) == {"reversible", "backprop"}
    assert set(told[2]["timings"]) == {"accelerations", "an update"}
    assert "SRNN" in found.markdown() and found.summary().renderables
    with pytest.raises(UnknownNameError, match="section of this benchmark 'hn'"):
        benchmarks["physics"](only=("hn",))
