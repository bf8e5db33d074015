"""The experiments with networks that remember run from end to end on next to nothing."""

import json
import math

import pytest
import torch

import undamped
from undamped._base.errors import OptionError, UnknownNameError
from undamped._base.registry import tasks
from undamped.lab.papers import recall, screening
from undamped.lab.papers.recall_gradients import hidden_gradients
from undamped.lab.papers.runs import fit_once
from undamped.lab.training import Run
from undamped.models.for_task import model_for

SMALL = {"steps": 2, "batch_size": 512, "units": 4, "tests": 4}


def test_delays_beyond_the_training(tmp_path):
    lines = []
    result = recall.transfer_copy(
        delay=3, delays=(3, 9), networks=("h-detach", "rellstm"), out=str(tmp_path),
        progress=lines.append, **SMALL,
    )  # fmt: skip
    assert any("rellstm at 3: 50 %" in line for line in lines)
    data = json.loads(json.dumps(result.to_dict()))
    assert [record["network"] for record in data["records"]] == ["h-detach", "rellstm"]
    assert set(result.records[0].accuracy) == {3, 9}
    right = [10 * record.accuracy[9] / 29 for record in result.records]  # of 29 steps
    assert all(a <= b.step_accuracy[9] <= 1 for a, b in zip(right, result.records, strict=True))
    assert len(result.tables[1].rows) == 2
    assert "| rellstm |" in result.markdown()
    assert len(result.figures()["copy-curves"].axes[0].lines) == 3
    with pytest.raises(UnknownNameError, match="rellstm"):
        recall.transfer_copy(networks=("rellstmm",))
    with pytest.raises(TypeError, match="Did you mean 'steps'"):
        recall.transfer_copy(step=3)


def test_every_delay_from_the_start_and_numbers_of_the_thesis(tmp_path):
    result = recall.copy_long(delays=(2, 4), networks=("lstm",), out=str(tmp_path), **SMALL)
    assert [record.delay for record in result.records] == [2, 4]
    assert result.tables[0].rows[0][3] == f"{100 * result.records[1].accuracy[4]:.1f}"
    assert "2 of 512 + 2 of 512" in result.markdown()
    assert recall.DENOISE_PAPER["memrnn"][2000] == "out of memory"
    assert recall.TRANSFER_PAPER["sab"][400] == 95


@pytest.mark.process
def test_gradients_and_memory_are_drawn(tmp_path):
    result = recall.denoise(
        delay=3, delays=(3,), networks=("sab",), gradient_delay=3, lengths=(24,),
        out=str(tmp_path), **SMALL,
    )  # fmt: skip
    measured = result.numbers["gradients_and_memory"]
    assert len(measured["gradients"]["sab"]) == 23 and measured["peaks"]["sab"][0] >= 0
    assert set(result.figures()) == {"denoise-curves", "gradients-and-memory"}
    assert "| sab |" in result.tables[1].markdown()
    with pytest.raises(OptionError, match="lengths must be ≥ 21"):
        recall.denoise(lengths=(20,))
    json.dumps(result.to_dict())


def test_which_states_are_kept(tmp_path):
    result = screening.run(
        sweeps=("relevant", "screening"),
        sizes=(3,),
        delay=9,
        delays=(9,),
        out=str(tmp_path),
        **SMALL,
    )
    few, *rest = result.records
    assert few.name == "ν 15, ρ 3, attention"
    rules = [network.name.rpartition(" ")[2] for network in rest]
    assert rules == ["attention", "share", "surprise", "learned"]
    assert few.stored_symbols < rest[0].stored_symbols == 1  # 15 and 15 hold all of 19 steps
    assert few.name in result.markdown()
    assert len(result.figures()["screening"].axes[0].lines) == 5
    json.dumps(result.to_dict())


def test_a_training_is_made_once_and_gone_on_with(tmp_path):
    settings = {
        "model_options": {"hidden_size": 4},
        "task_options": {"delay": 2},
        "train": {"steps": 2, "batch_size": 512, "validate_every": 1},
        "seed": 0,
        "out": tmp_path,
    }
    run = fit_once("rnn", "copy", **settings)
    assert fit_once("rnn", "copy", **settings).path == run.path
    result = run.result
    Run.open(run.path).update(status="interrupted", result=None)
    repeated = fit_once("rnn", "copy", **settings)
    assert repeated.path == run.path and repeated.result["test"] == result["test"]
    Run.open(run.path).update(status="failed")
    assert fit_once("rnn", "copy", **settings).path != run.path


@pytest.mark.parametrize(
    ("name", "options"), [("rnn", {}), ("rellstm", {}), ("sab", {"truncate": 0})]
)
def test_gradients_have_all_their_paths(name, options):
    """The loss of one sequence, with one hidden state moved a little in every direction."""
    torch.manual_seed(0)
    task, step, size = tasks.build("denoise", delay=4, seed=0), 6, 5
    model = model_for(task.task_shape, name, {"hidden_size": size, **options}).double()
    batch, cell = task.batch("test", 0, 1), model.network.cell(0)
    inner = getattr(cell, "recurrence", cell)
    advance = inner.advance

    def loss(move):
        calls = []

        def moved(projected, state, constants):
            hidden, *rest = advance(projected, state, constants)
            calls.append(hidden)
            return (hidden + move if len(calls) == step + 1 else hidden, *rest)

        inner.advance = moved
        with undamped.plain_loops():
            recalled = model.run(batch)[0][-10:].flatten(0, 1)
        del inner.advance
        return float(torch.nn.functional.cross_entropy(recalled, batch.targets[-10:].flatten()))

    moves = 1e-5 * torch.eye(size, dtype=torch.float64)
    with torch.no_grad():
        slopes = [(loss(move) - loss(-move)) / 2e-5 for move in moves]
    gradients = hidden_gradients(model, "denoise", 4, 1)
    assert len(gradients) == task.length
    assert gradients[step] == pytest.approx(math.hypot(*slopes), rel=1e-5)
