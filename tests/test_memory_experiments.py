"""The experiments with networks that remember run from end to end on next to nothing."""

import json
import math

import pytest
import torch

import undamped
from undamped._base.errors import OptionError, UnknownNameError
from undamped._base.registry import tasks
from undamped.lab.papers import copy_long, denoise, screening, transfer_copy
from undamped.lab.papers.hidden_gradients import hidden_gradients
from undamped.lab.papers.kept_runs import kept_fit
from undamped.lab.training import Run
from undamped.models.for_task import model_for

SMALL = {"steps": 2, "batch_size": 512, "units": 4, "tests": 4}


def test_delays_beyond_the_training(tmp_path):
    told = []
    result = transfer_copy.run(
        delay=3, delays=(3, 9), networks=("h-detach", "rellstm"), out=str(tmp_path),
        tick=told.append, **SMALL,
    )  # fmt: skip
    assert any("rellstm at 3: 50 %" in line for line in told)
    data = json.loads(json.dumps(result.to_dict()))
    assert [one["network"] for one in data["trained"]] == ["h-detach", "rellstm"]
    assert set(result.trained[0].accuracy) == {3, 9}
    assert "| rellstm |" in result.markdown()
    assert len(result.figures()["copy-curves"].axes[0].lines) == 3
    with pytest.raises(UnknownNameError, match="rellstm"):
        transfer_copy.run(networks=("rellstmm",))


def test_every_delay_from_the_start_and_numbers_of_the_thesis(tmp_path):
    result = copy_long.run(delays=(2, 4), networks=("lstm",), out=str(tmp_path), **SMALL)
    assert [one.delay for one in result.trained] == [2, 4]
    assert result.accuracy("lstm", 4) == result.trained[1].accuracy[4]
    assert "2 of 512 + 2 of 512" in result.markdown()
    assert denoise.PRINTED["memrnn"][2000] == "out of memory"
    assert transfer_copy.PRINTED["sab"][400] == 95


def test_gradients_and_memory_are_drawn(tmp_path):
    result = denoise.run(
        delay=3, delays=(3,), networks=("sab",), gradient_delay=3, lengths=(24,),
        out=str(tmp_path), **SMALL,
    )  # fmt: skip
    found = result.more["gradients_and_memory"]
    assert len(found.gradients["sab"]) == 23 and found.peaks["sab"][0] >= 0
    assert set(result.figures()) == {"denoise-curves", "gradients-and-memory"}
    assert "| sab |" in "\n".join(found.lines())
    with pytest.raises(OptionError, match="at least 21 steps"):
        denoise.run(lengths=(20,))
    json.dumps(result.to_dict())


def test_which_states_are_kept(tmp_path):
    result = screening.run(
        sweeps=("kept", "screening"), sizes=(3,), delay=9, delays=(9,), out=str(tmp_path), **SMALL
    )
    few, *rest = result.found
    assert (few.kept, few.screening) == (3, "attention")
    assert [one.screening for one in rest] == ["attention", "share", "surprise", "learned"]
    assert few.symbols_kept < rest[0].symbols_kept == 1  # 15 and 15 hold all of 19 steps
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
    run = kept_fit("rnn", "copy", **settings)
    assert kept_fit("rnn", "copy", **settings).path == run.path
    result = run.result
    Run.open(run.path).update(status="interrupted", result=None)
    again = kept_fit("rnn", "copy", **settings)
    assert again.path == run.path and again.result["test"] == result["test"]
    Run.open(run.path).update(status="failed")
    assert kept_fit("rnn", "copy", **settings).path != run.path


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
            said = model.run(batch)[0][-10:].flatten(0, 1)
        del inner.advance
        return float(torch.nn.functional.cross_entropy(said, batch.targets[-10:].flatten()))

    moves = 1e-5 * torch.eye(size, dtype=torch.float64)
    with torch.no_grad():
        slopes = [(loss(move) - loss(-move)) / 2e-5 for move in moves]
    found = hidden_gradients(model, "denoise", 4, 1)
    assert len(found) == task.length
    assert found[step] == pytest.approx(math.hypot(*slopes), rel=1e-5)
