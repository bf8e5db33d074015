"""The benchmark of the recurrent family runs and reports; how fast is not asked here."""

import json

import pytest
from rich.console import Console

from undamped.lab.benchmarks import recurrent


@pytest.mark.process
def test_a_quick_run_reports_what_it_measured():
    assert set(recurrent.networks()) >= {"exprnn", "nnrnn", "urnn", "cornn", "lstm", "unicornn"}
    only = ("exprnn", *recurrent.TORCHRECURRENT)
    lines = []
    result = recurrent.run(rounds=1, quick=True, only=only, progress=lines.append)
    data = json.loads(json.dumps(result.to_dict()))
    records = {record["name"]: record for record in data["records"]}
    assert set(records) >= {"nn.RNN", "nn.LSTM", "exprnn", "cornn"}
    assert records["nn.RNN"]["times_rnn"] == 1
    assert set(data["large"]) == {"ornn", "eurnn", "urnn", *recurrent.DENSE}
    products = {name: records[name]["products"] for name in ("cornn", "exprnn", "indrnn")}
    assert products == {"cornn": 2.0, "exprnn": 1.0, "indrnn": 0.0}
    assert records["exprnn"]["memory"] >= 0
    assert "exprnn" in result.markdown() and lines
    named = {line.split(":")[0] for line in data["missed"]}
    assert named <= set(records) | set(data["large"])
    console = Console(width=120, record=True, quiet=True)
    console.print(result.summary())
    (axes,) = result.figures()["speed"].axes
    assert len(axes.patches) == len(records)
