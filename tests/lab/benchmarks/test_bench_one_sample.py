"""The benchmark of single samples says what it measured."""

from undamped.lab.benchmarks.one_sample import run


def test_the_table_has_a_line_for_every_candidate():
    lines = []
    result = run(networks="indrnn", rounds=1, quick=True, progress=lines.append)
    assert lines[:2] == ["indrnn step", "indrnn stream"] and len(lines) == 10
    rows = {row[0]: row[1:] for row in result.tables[0].rows}
    assert set(rows) == {"indrnn", "nn.RNN", "nn.LSTM", "nn.GRU"}
    assert all(rows["indrnn"]) and rows["nn.LSTM"][1:] == ("", "1.00")
    assert result.numbers["samples_per_second"]["indrnn step"] > 0
    assert result.markdown().count("\n|") == 6
    assert list(result.figures()) == ["one_sample"]
