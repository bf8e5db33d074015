"""The benchmark of sweeps counts trials, and finds nothing lost."""

from undamped.lab.benchmarks.sweep import run


def test_killed_processes_lose_nothing():
    ticks = []
    result = run(quick=True, tick=ticks.append)
    assert result.kills == 1 and result.trials > 0
    assert (result.lost, result.twice, result.other_bits) == (0, 0, 0)
    assert len(ticks) == 4 and len(result.rows()) == 2
    assert "0 lost" in result.markdown() and list(result.figures()) == ["sweep"]
