"""The UnICORNN benchmark: every candidate runs, and the result can be printed and drawn."""

import io
import json

import pytest

from undamped._base.errors import OptionError
from undamped.lab.benchmarks import unicornn
from undamped.lab.benchmarks.timing import Timing


@pytest.fixture
def result():
    shape = unicornn.SHAPES[0]
    names = (*unicornn.MODES, "nn.LSTM", "nn.LSTM, 1 layer", "torchrecurrent")
    timings = {name: Timing((1.0 + at,)) for at, name in enumerate(names)}
    timings["floor"] = Timing((0.8,))
    memory = {name: {1024: 10_000_000, 4096: 11_000_000} for name in ("reversible", "nn.LSTM")}
    return {shape: timings}, memory, {"stream": 3e4}


def test_every_candidate_runs():
    candidates = unicornn._candidates(unicornn.StackShape(20, 3, 2, 8, 2))
    assert {*unicornn.MODES, "nn.LSTM", "nn.GRU", "plain loop"} <= set(candidates)
    for name, work in candidates.items():
        if name != "torchrecurrent":
            work()
    assert set(unicornn._time_streams(20)) == {"stream", "step", "nn.LSTM"}
    for name in ("reversible", "nn.LSTM"):
        unicornn.memory_work(name, 70)()


def test_every_candidate_of_a_gpu_runs_on_the_cpu_too():
    candidates = unicornn.candidates_on(
        unicornn.StackShape(20, 3, 2, 8, 2), unicornn.torch.device("cpu")
    )
    assert {*unicornn.MODES, "nn.LSTM", "nn.GRU", "plain loop"} <= set(candidates)
    for work in candidates.values():
        work()


@pytest.mark.skipif(unicornn.torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_one_sentence():
    with pytest.raises(OptionError, match="No such GPU: cuda"):
        unicornn.run(device="cuda")
    with pytest.raises(OptionError, match="device must be cpu, cuda or cuda:N"):
        unicornn.run(device="gpu0")


def test_a_result_of_a_gpu_has_neither_targets_nor_streams(result):
    report = unicornn.unicornn_report(*result[:2], {}, "a card")
    assert "≥" not in report.markdown().replace("≥ 1/", "") and "a card" in report.markdown()
    assert "one sample" not in report.markdown()
    assert set(report.figures()) == {"speed", "memory"}


def test_a_result_can_be_printed_and_drawn(result):
    report = unicornn.unicornn_report(*result)
    data = json.loads(json.dumps(report.to_dict()))
    ratios = data["records"][0]["ratios"]
    assert ratios["nn.LSTM"] == 4.0 and ratios["floor"] == pytest.approx(0.8)
    assert set(report.figures()) == {"speed", "memory", "streaming"}
    table = report.markdown()
    assert table.count("torchrecurrent") == 1 and "1/1.25" in table
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(report.summary())
    assert "nn.LSTM" in console.export_text()
