"""The benchmark of sweeps counts trials, and finds nothing lost."""

from undamped.lab.benchmarks.sweep import run


def test_killed_processes_lose_nothing():
    lines = []
    result = run(quick=True, progress=lines.append)
    outcome = result.numbers["killed"]
    assert outcome.kills == 1 and outcome.trials > 0
    assert (outcome.missing, outcome.duplicates, outcome.different) == (0, 0, 0)
    assert len(lines) == 4 and len(result.tables[0].rows) == 2
    assert "0 are missing" in result.markdown() and list(result.figures()) == ["sweep"]
