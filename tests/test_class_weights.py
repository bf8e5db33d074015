"""Classes that weigh alike: in the loss, in the score, and in what learns at once."""

import numpy as np
import pytest
import torch

from test_rivals import SMALL, task_of, waves
from undamped.contract import TaskShape
from undamped.errors import OptionError
from undamped.networks.for_task import model_for
from undamped.training import Run, fit


def rare(count=60):
    """Return series of two rhythms that are hard to tell apart, one of them ten times as rare."""
    series, _ = waves(count)
    classes = (np.arange(count) % 10 == 0).astype(int)
    series = np.random.default_rng(1).normal(size=series.shape) + 0.3 * classes[:, None, None]
    return series, np.array(["usual", "rare"])[classes]


def test_loss_and_score_weigh_every_class_alike():
    task = task_of(*rare(), weights="balanced")
    batch = task.batch("train", 0, 1000)
    logits = torch.randn(len(batch.targets), 2)
    losses = -logits.log_softmax(1)[torch.arange(len(logits)), batch.targets]
    by_class = [losses[batch.targets == c].mean() for c in (0, 1)]
    torch.testing.assert_close(task.loss(logits, batch), torch.stack(by_class).mean())
    right = logits.argmax(1) == batch.targets
    found, of = task.score(logits, batch)
    shares = [right[batch.targets == c].double().mean() for c in (0, 1)]
    assert float(found) / of == pytest.approx(float(torch.stack(shares).mean()))
    assert task.metric == "weighted_accuracy" and any("weigh alike" in n for n in task.notes())
    guess = task.chance
    assert guess.metric == pytest.approx(0.5, abs=0.2)
    assert guess.loss == pytest.approx(np.log(2), abs=0.3)


def test_the_shape_of_a_task_keeps_the_weights():
    shape = task_of(*rare(), weights="balanced").task_shape
    assert len(shape.class_weights) == 2
    assert TaskShape.from_dict(shape.to_dict()) == shape
    assert TaskShape.from_dict(TaskShape(1, 2).to_dict()).class_weights == ()


@pytest.mark.parametrize("name", ["bank", "minirocket", "boosting", "guess", "gru"])
def test_models_find_more_of_what_is_rare(name, tmp_path):
    said = []
    for weights in ("equal", "balanced"):
        task = task_of(*rare(200), weights=weights)
        options = {**SMALL, "bank": {"oscillators": 30}, "gru": {"hidden_size": 4}}.get(name)
        train = {"steps": 40} if name == "gru" else None
        run = fit(name, task, model_options=options, train=train, out=tmp_path, progress=False)
        model = Run.open(run.path).model()
        answers = model(task.batch("test", 0, 1000)).detach().softmax(1)
        said.append(float(answers[:, task.preparation.classes.index("rare")].mean()))
    assert said[1] > said[0] + 0.05


def test_what_cannot_weigh_says_so():
    with pytest.raises(OptionError, match="A neighbour has no weight"):
        model_for(task_of(*rare(), weights="balanced").task_shape, "dtw", {})
    series, _ = waves(20)
    with pytest.raises(OptionError, match="where answers are numbers"):
        task_of(series, np.linspace(0, 1, 20), weights="balanced")
