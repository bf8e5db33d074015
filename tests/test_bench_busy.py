"""The benchmark of busy machines says what it measured."""

import os

from undamped.lab.benchmarks.busy import LOOP, run


def test_the_table_has_a_line_for_every_candidate():
    ticks = []
    result = run(networks="indrnn", rounds=1, quick=True, tick=ticks.append)
    names = [one.name for one in result.passes]
    assert names == [LOOP, "indrnn", "nn.RNN", "nn.LSTM", "nn.GRU"]
    assert ticks == names * 2 and result.processes == os.cpu_count()
    assert all(one.alone > 0 and one.busy > 0 for one in result.passes)
    assert [row[5] != "" for row in result.rows()] == [False, True, False, False, False]
    assert result.rows()[0][4] == "1.00"
    assert result.markdown().count("\n|") == 7
    assert list(result.figures()) == ["busy"]
