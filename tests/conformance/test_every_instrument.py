"""Every instrument of the registry describes, measures and draws itself."""

import importlib
import json
from pathlib import Path

import pytest
import torch
from registries import isolate
from torch import nn

import undamped
from undamped._base.docstrings import sections
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import instruments, tasks
from undamped.analysis import Probe, Result
from undamped.lab import report
from undamped.lab.catalogue import describe_entry


@pytest.fixture(scope="module")
def probes():
    """Small models of every kind, each with an input; what reads time comes with its task."""
    torch.manual_seed(0)
    task = tasks.build("adding", length=20)
    inputs = task.batch("test", 0, 4).inputs
    pairs = tasks.build("same-different", colours="joint")
    filmed = tasks.build("pendulum-pictures", films=8, length=6, horizon=1.0)
    moving = tasks.build("spring", trajectories=8, readings=4, span=0.5, horizon=1.0)
    waves = tasks.build("periodic", series=8)
    layer = nn.TransformerEncoderLayer(2, 1, 4)
    events = tasks.build("flags", test_lengths=(64, 80), sequences=4)
    return {
        "events": Probe(
            undamped.models.SequenceModel("latch", 7, 8, hidden_size=4),
            events.batch("test", 0, 4).inputs,
            "events",
            events,
        ),
        "oscillators": Probe(
            undamped.models.SequenceModel("unicornn", 2, 1, hidden_size=4, num_layers=2),
            inputs,
            "oscillators",
            task,
        ),
        "rnn": Probe(undamped.nn.RNN(2, 4), inputs, "rnn", task),
        "torch": Probe(nn.LSTM(2, 3), inputs, "torch"),
        "attention": Probe(nn.TransformerEncoder(layer, 1, enable_nested_tensor=False), inputs),
        "memory": Probe(undamped.nn.RelRNN(2, 4, recent=3, relevant=2), inputs, "memory", task),
        "ode": Probe(undamped.models.NODE(2, 2), torch.randn(4, 2), "ode"),
        "flow": Probe(
            undamped.models.FFJORD(2, hidden_size=4, method="rk4", step_size=0.25),
            torch.randn(4, 2),
            "flow",
        ),
        "pictures": Probe(
            undamped.models.CoRelNet(pairs.task_shape, features=8, hidden_size=4),
            pairs.batch("test", 0, 4).expanded().inputs,
            "pictures",
            pairs,
        ),
        "films": Probe(
            undamped.models.HGN(filmed.task_shape, hidden_size=4, channels=2),
            filmed.batch("test", 0, 2).inputs,
            "films",
            filmed,
        ),
        "latent": Probe(
            undamped.models.LatentODE(waves.task_shape, latent_size=2, hidden_size=4, field_size=4),
            waves.batch("test", 0, 4).inputs,
            "latent",
            waves,
        ),
        "motion": Probe(
            undamped.models.HNN(moving.task_shape, hidden_size=4),
            torch.randn(4, 2),
            "motion",
            moving,
        ),
    }


@pytest.fixture(scope="module")
def measured(probes):
    """What each instrument says of each model: a result, or why there is none."""
    result = {}

    def ask(name):
        if name not in result:
            result[name] = {}
            for kind, probe in probes.items():
                if probe.moves and not instruments[name].of_motion:
                    result[name][kind] = "it has no steps to remember"
                    continue
                try:
                    with undamped.plain_loops():  # nobody waits for a compiler
                        result[name][kind] = instruments[name].measure(probe)
                except (OptionError, ShapeError) as reason:
                    result[name][kind] = str(reason)
        return result[name]

    return ask


@pytest.mark.slow
@pytest.mark.parametrize("name", list(instruments))
def test_it_measures_some_small_model_and_gives_its_reason_for_the_others(name, measured):
    actual = measured(name)
    results = [result for result in actual.values() if isinstance(result, Result)]
    assert results
    assert all(type(result) is instruments[name] for result in results)
    assert all(len(reason) > 10 for reason in actual.values() if isinstance(reason, str))


@pytest.mark.slow
@pytest.mark.parametrize("name", list(instruments))
def test_it_draws_itself_for_every_eye(name, measured, tmp_path):
    kinds = {k: r for k, r in measured(name).items() if isinstance(r, Result)}
    for kind, result in kinds.items():
        layout = result.layout
        assert layout.title and layout.x and layout.y and layout.caption.endswith(".")
        figure = result.plot()
        assert figure.layout.xaxis.title.text == layout.x
        result.save_figure(tmp_path / f"{kind}.svg")
        assert (tmp_path / f"{kind}.svg").read_text(encoding="utf-8").startswith("<?xml")
        assert all(len(row) == len(result.columns) for row in result.rows)
        assert all(isinstance(cell, str) for row in result.rows for cell in row)
        assert result.sentence or result.rows
    assert any(result.plot().data for result in kinds.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", list(instruments))
def test_its_numbers_are_valid_json(name, measured):
    for result in measured(name).values():
        if isinstance(result, Result):
            text = json.dumps(result.to_dict(), allow_nan=False)
            assert json.loads(text)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(instruments))
def test_a_page_and_the_command_line_show_it(name, measured):
    result = {k: r for k, r in measured(name).items() if isinstance(r, Result)}
    shown = [report.ModelReport(kind, "x", results={name: r}) for kind, r in result.items()]
    page = report.page(shown)
    assert f'id="plot-{name}"' in page or f'id="h-table-{name}"' in page
    assert all(name in one.to_dict() for one in shown)
    json.dumps([one.to_dict() for one in shown], allow_nan=False)


@pytest.mark.parametrize("name", list(instruments))
def test_it_is_documented(name):
    member = instruments[name]
    assert name.isidentifier()  # it is a key of JSON, and mostly a function
    assert member.question.endswith("?")
    assert len(sections(member)[""]) > 30
    options = describe_entry(name, instruments)["options"]
    assert options and all(option["about"] for option in options)


def test_the_instrument_that_the_docs_build_is_one_file(tmp_path, monkeypatch):
    page = Path(__file__).parents[2] / "docs" / "instruments.md"
    text = page.read_text(encoding="utf-8").partition("## A custom instrument")[2]
    (tmp_path / "weights_of_the_docs.py").write_text(
        text.partition("```python\n")[2].partition("```")[0], encoding="utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    isolate(monkeypatch, instruments)
    importlib.import_module("weights_of_the_docs")
    result = report.diagnose(undamped.nn.RNN(2, 3), 20, measured=["weight_sizes", "attention"])
    assert result.results["weight_sizes"].sentence.startswith("The largest")
    assert "no attention" in result.left_out["attention"]
    assert 'id="plot-weight_sizes"' in report.page([result])
    assert describe_entry("weight_sizes", instruments)["question"] == "How large are the weights?"
