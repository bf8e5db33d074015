"""The benchmark of first calls says what it measured."""

import pytest

from undamped.lab.benchmarks.first_call import run


@pytest.mark.process
def test_the_table_has_a_line_for_every_network():
    lines = []
    result = run(networks="indrnn", progress=lines.append)
    (call,) = result.records
    assert call.network == "indrnn" and lines == ["indrnn"]
    assert call.cold[1] >= call.cold[0] > 0 and call.warm[1] >= call.warm[0] > 0
    assert result.markdown().count("\n|") == 2
    assert list(result.figures()) == ["first_call"]
