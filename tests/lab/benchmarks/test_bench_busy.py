"""The benchmark of busy machines says what it measured."""

import os

import pytest

from undamped.lab.benchmarks.busy import LOOP, run


@pytest.mark.process
def test_the_table_has_a_line_for_every_candidate():
    lines = []
    result = run(networks="indrnn", rounds=1, quick=True, progress=lines.append)
    names = [record.name for record in result.records]
    assert names == [LOOP, "indrnn", "nn.RNN", "nn.LSTM", "nn.GRU"]
    assert lines == names * 2 and result.settings["processes"] == os.cpu_count()
    assert all(record.idle > 0 and record.busy > 0 for record in result.records)
    rows = result.tables[0].rows
    assert [row[5] != "" for row in rows] == [False, True, False, False, False]
    assert rows[0][4] == "1.00"
    assert result.markdown().count("\n|") == 7
    assert list(result.figures()) == ["busy"]
