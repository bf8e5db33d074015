"""The benchmark of the first gradient runs and reports; how fast is not asked here."""

import pytest

from undamped.lab.benchmarks import first_gradient


@pytest.mark.process
def test_a_quick_run_reports_both_times():
    result = first_gradient.run(quick=True)
    (record,) = result.to_dict()["records"]
    assert record["library"] == "undamped" and record["first"] > 0 and record["later"] > 0
    assert "undamped" in result.markdown()
