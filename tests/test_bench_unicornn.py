"""The UnICORNN benchmark: every candidate runs, and the result can be printed and drawn."""

import io
import json

import pytest

from undamped.bench import unicornn
from undamped.bench.timing import Timing


@pytest.fixture
def result():
    shape = unicornn.SHAPES[0]
    names = (*unicornn.MODES, "nn.LSTM", "nn.LSTM, 1 layer", "torchrecurrent")
    timings = {name: Timing((1.0 + at,)) for at, name in enumerate(names)}
    timings["floor"] = Timing((0.8,))
    memory = {name: {1024: 10_000_000, 4096: 11_000_000} for name in ("reversible", "nn.LSTM")}
    return unicornn.UnicornnBenchmark(2, {shape: timings}, memory, {"stream": 3e4})


def test_every_candidate_runs():
    candidates = unicornn._candidates(unicornn.Shape(20, 3, 2, 8, 2))
    assert {*unicornn.MODES, "nn.LSTM", "nn.GRU", "plain loop"} <= set(candidates)
    for name, work in candidates.items():
        if name != "torchrecurrent":
            work()
    assert set(unicornn._time_streams(20)) == {"stream", "step", "nn.LSTM"}
    for name in ("reversible", "nn.LSTM"):
        unicornn._memory_work(name, 70)()


def test_a_result_can_be_printed_and_drawn(result):
    assert result.ratio(unicornn.SHAPES[0], "nn.LSTM") == 4.0
    data = json.loads(json.dumps(result.to_dict()))
    assert data["shapes"][0]["ratios"]["floor"] == pytest.approx(0.8)
    assert set(result.figures()) == {"speed", "memory", "streaming"}
    table = result.markdown()
    assert table.count("torchrecurrent") == 1 and "1/1.25" in table
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(result.summary())
    assert "nn.LSTM" in console.export_text()
