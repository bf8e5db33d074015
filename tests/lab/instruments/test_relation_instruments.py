"""What is to be seen of networks of pictures: R, what the encoder tells, the gap to what is new."""

import numpy as np
import pytest
import torch

import undamped
from undamped._base.errors import OptionError
from undamped._base.registry import tasks
from undamped.analysis import relations
from undamped.analysis.core.probe import InapplicableError
from undamped.lab.instruments.encoder_probe import encoder_probe
from undamped.lab.instruments.generalisation import Generalisation, generalisation
from undamped.lab.report.diagnose import diagnose


@pytest.fixture(scope="module")
def task():
    return tasks.build("rmts", holdout=50)


@pytest.fixture(scope="module")
def model(task):
    torch.manual_seed(0)
    return undamped.models.CoRelNet(task.task_shape, encoder="frozen", hidden_size=8)


def test_r_is_read_beside_its_pictures(task, model):
    batch = task.batch("test", 0, 20)
    seen = relations(model, batch, trials=2)
    expected = model.relation_matrix(model.encode(batch))[:2].detach().numpy()
    np.testing.assert_allclose(seen.matrices, expected)
    side = seen.images.shape[-1]
    assert seen.images.shape == (2, 6, side, side)
    # An untrained encoder tells equal from different to the last digit.
    assert seen.same == pytest.approx(0.5) and seen.different < 1e-6
    assert "0.500 on average where the two are equal, and 0.000" in seen.sentence
    (heat,) = seen.plot().to_plotly_json()["data"]
    block = 7 * side
    shown = np.array(heat["z"], dtype=float)
    assert shown.shape[0] == block and shown.shape[1] > 2 * block
    np.testing.assert_allclose(shown[side : 2 * side, :side], seen.images[0, 0], atol=1e-3)
    assert shown[2 * side, 2 * side] == pytest.approx(expected[0, 1, 1], abs=1e-3)


def test_only_a_network_that_compares_has_an_r(task):
    other = undamped.build("relation-net", shape=task.task_shape, hidden_size=4, pair_size=4)
    with pytest.raises(OptionError, match="no relation_matrix"):
        relations(other, task.batch("test", 0, 2))


def test_a_probe_reads_what_the_code_tells():
    task = tasks.build("comparison")
    torch.manual_seed(0)
    sees = undamped.models.CoRelNetDiff(task.task_shape, encoder="frozen", hidden_size=8)
    result = encoder_probe(sees, task, images=400)
    assert result.attributes == ("shape", "size")
    assert result.accuracies[1] > 0.9 and result.accuracies[0] > 5 * result.chances[0]
    assert "shape " in result.sentence and "size " in result.sentence
    with torch.no_grad():
        for weight in sees.encoder.parameters():
            weight.zero_()
    blind = encoder_probe(sees, task, images=400)
    assert (blind.accuracies < result.accuracies / 1.5).all()


class Memorises(torch.nn.Module):
    """Answers right where the first object is one of training, and always 0 elsewhere."""

    def __init__(self, task):
        super().__init__()
        self.task, self.nothing = task, torch.nn.Parameter(torch.zeros(1))

    def forward(self, batch):
        seen = torch.isin(batch.inputs[0], self.task.train_objects)
        return torch.nn.functional.one_hot(batch.targets * seen, 2).float()


def test_the_gap_is_the_verdict(task):
    result = generalisation(Memorises(task), task, sequences=200)
    assert result.familiar == 1 and result.new == pytest.approx(0.5, abs=0.05)
    assert result.judgement.tone == "bad"
    assert "rather than the rule" in result.judgement.verdict
    pictures = task.batch("test", 0, 4).expanded().inputs
    page = diagnose(Memorises(task), pictures, task=task, measured=["generalisation"])
    assert "rather than the rule" in page.verdict


@pytest.mark.parametrize(
    ("scores", "said", "tone"),
    [
        ([0.97, 1.0], "it has learned the rule", "good"),
        ([0.6, 0.62], "not learned the task yet", "neutral"),
    ],
)
def test_other_verdicts(scores, said, tone):
    result = Generalisation(("test", "seen"), np.array(scores), 0.5, "accuracy", 100, "it")
    assert said in result.judgement.verdict and result.judgement.tone == tone


def test_without_anything_held_out_there_is_no_gap(model):
    with pytest.raises(InapplicableError, match="hold some objects out"):
        generalisation(model, tasks.build("rmts", holdout=0))
