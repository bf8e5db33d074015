"""The copy experiment runs, and its table says what was measured."""

import json

import pytest

from undamped.lab.papers import copy_task


@pytest.mark.parametrize("task", ["copy", "adding"])
def test_a_small_run(tmp_path, task):
    result = copy_task.run(
        task=task,
        delay=4,
        steps=4,
        networks=("exprnn", "nnrnn", "lstm"),
        batch_size=64,
        units=6,
        out=tmp_path,
    )
    data = json.loads(json.dumps(result.to_dict()))
    assert list(data["solved_after"]) == ["exprnn", "nnrnn", "lstm"]
    curve = data["records"][0]
    assert curve["updates"][-1] == 4 and len(curve["losses"]) == len(curve["updates"])
    assert curve["options"]["train"]["constrained_learning_rate"] == 1e-4
    assert "exprnn" in result.markdown()
    (axes,) = result.figures()["curves"].axes
    assert len(axes.lines) == 4
    lstm = result.records[-1]
    assert lstm.solved_after(1e9) == lstm.updates[0] and lstm.solved_after(0.0) is None


def test_a_repeated_run_reuses_its_trainings(tmp_path):
    options = {"delay": 4, "steps": 2, "networks": ("rnn",), "units": 4, "out": tmp_path}
    first, second = copy_task.run(**options), copy_task.run(**options)
    assert first.to_dict() == second.to_dict()
    assert [folder.name for folder in tmp_path.iterdir()] == ["copy-rnn-1"]


def test_only_constrained_matrices_get_the_second_learning_rate():
    import undamped
    from undamped.lab.training.optimizers import constrained_parameters

    nnrnn = undamped.nn.nnRNN(3, 4)
    assert constrained_parameters(nnrnn) == {nnrnn.cell(0).free_parameters()[0]}
    spectral = undamped.nn.SpectralRNN(3, 4)
    assert constrained_parameters(spectral) == set(spectral.cell(0).free_parameters()[:2])
    assert constrained_parameters(undamped.nn.AntisymmetricRNN(3, 4)) == set()
    exprnn = undamped.nn.expRNN(3, 4, num_layers=2)
    assert len(constrained_parameters(exprnn)) == 2
