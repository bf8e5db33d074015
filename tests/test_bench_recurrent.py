"""The benchmark of the recurrent family runs and reports; how fast is not asked here."""

import json

from rich.console import Console

from undamped.lab.benchmarks import recurrent


def test_a_quick_run_reports_what_it_measured(monkeypatch):
    assert set(recurrent.networks()) >= {"exprnn", "nnrnn", "urnn", "cornn", "lstm", "unicornn"}
    monkeypatch.setattr(recurrent, "networks", lambda: ["exprnn", "cornn", *recurrent.THEIRS])
    ticks = []
    result = recurrent.run(rounds=1, quick=True, tick=ticks.append)
    data = json.loads(json.dumps(result.to_dict()))
    assert set(data["times_nn_rnn"]) >= {"nn.RNN", "nn.LSTM", "exprnn", "cornn"}
    assert data["times_nn_rnn"]["nn.RNN"] == 1
    assert set(data["large"]) == {"ornn", "eurnn", "urnn", *recurrent.DENSE}
    assert (
        data["products_a_step"] | {"cornn": 2.0, "exprnn": 1.0, "indrnn": 0.0}
        == (data["products_a_step"])
    )
    assert data["peak_memory_bytes"]["exprnn"] >= 0
    assert "exprnn" in result.markdown() and ticks
    named = {line.split(":")[0] for line in data["missed"]}
    assert named <= set(data["times_nn_rnn"]) | set(data["large"])
    console = Console(width=120, record=True, quiet=True)
    console.print(result.summary())
    (axes,) = result.figures()["speed"].axes
    assert len(axes.patches) == len(result.timings)
