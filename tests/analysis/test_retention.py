"""What the state knows of the answer, on networks whose memory is known."""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge, RidgeCV
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import tasks
from undamped.analysis import InapplicableError, Probe, Retention, retention
from undamped.analysis.core.statistics import PENALTIES, best_penalty, ridge
from undamped.models.for_task import model_for


class Leaky(nn.Module):
    """h' = a h + x, one unit a feature."""

    def __init__(self, factor):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(float(factor)))

    def forward(self, x, state=None):
        h = torch.zeros_like(x[0]) if state is None else state
        outputs = []
        for x_t in x:
            h = self.factor * h + x_t
            outputs.append(h)
        return torch.stack(outputs), h


def answer_then_noise(steps, series, noise, classes=False):
    draw = torch.Generator().manual_seed(0)
    x = noise * torch.randn(steps, series, 1, generator=draw)
    if classes:
        answer = torch.randint(2, (series,), generator=draw)
        x[0, :, 0] = 2.0 * answer - 1
    else:
        answer = torch.randn(series, generator=draw)
        x[0, :, 0] = answer
    return x, answer


@pytest.mark.parametrize("factor", [0.9, 1.0])
def test_numbers_fade_as_their_closed_form_says(factor):
    steps, noise = 30, 0.3
    x, answer = answer_then_noise(steps, 4000, noise)
    result = retention(Leaky(factor), x, answer, points=12)
    t = result.steps - 1
    # h_t = aᵗ y + Σ aᵏ n: the explained variance is that of the signal in the variance.
    kept = factor ** (2.0 * t)
    gathered = noise**2 * np.array([(factor ** (2.0 * np.arange(n))).sum() for n in t])
    np.testing.assert_allclose(result.scores, kept / (kept + gathered), atol=0.03)
    assert result.kind == "explained variance" and result.unit == "steps"
    assert abs(result.chance) < 0.01
    assert ((result.low <= result.scores) & (result.scores <= result.high)).all()


def test_a_network_that_keeps_stays_up_and_one_that_forgets_falls():
    x, answer = answer_then_noise(60, 600, 0.05, classes=True)
    kept, lost = (retention(Leaky(factor), x, answer) for factor in (1.0, 0.6))
    assert kept.final > 0.95 and kept.retained_until == 60
    assert lost.best > 0.99 and lost.final < 0.65 and lost.retained_until < 25
    assert kept.chance == pytest.approx(0.5, abs=0.05)
    assert "chance level is" in kept.sentence
    empty = retention(Leaky(1.0), x, answer[torch.randperm(600)])
    assert "cannot be read" in empty.sentence
    json.dumps(kept.to_dict(), allow_nan=False)
    assert len(kept.plot().data) == 3


def test_differences_of_the_size_of_rounding_are_no_memory():
    # Everybody gets the same noise, so what is left of the answer is exact, but tiny.
    x, answer = answer_then_noise(40, 400, 0.0, classes=True)
    x[1:] = 1.0
    sharp = retention(Leaky(0.5).double(), x.double(), answer, precision=0.0)
    blunt = retention(Leaky(0.5).double(), x.double(), answer)
    assert sharp.scores[sharp.steps <= 20].min() > 0.99
    assert blunt.final < 0.65


def test_series_of_different_length_are_read_at_their_own_ends():
    x, answer = answer_then_noise(50, 300, 0.02, classes=True)
    lengths = torch.randint(20, 51, (300,))
    padded = x.clone()
    for i, length in enumerate(lengths):
        padded[length:, i] = 1e6 * torch.randn(50 - int(length), 1)
    first, second = (retention(Leaky(1.0), data, answer, lengths) for data in (x, padded))
    assert first.unit == "% of the series" and first.steps[-1] == 100
    np.testing.assert_array_equal(first.scores, second.scores)
    assert first.final > 0.95


def test_layers_are_read_together_and_one_by_one():
    torch.manual_seed(0)
    x, answer = answer_then_noise(20, 200, 0.1, classes=True)
    for net in (undamped.nn.UnICORNN(1, 8, num_layers=2, dt=0.3), nn.LSTM(1, 6, num_layers=2)):
        result = retention(net, x, answer, points=8)
        assert result.per_layer.shape == (2, len(result.steps))
        assert result.scores[0] > 0.9  # the answer has just come in
    first = undamped.build("unicornn", input_size=1, hidden_size=8, batch_first=True)
    turned = undamped.build("unicornn", input_size=1, hidden_size=8)
    turned.load_state_dict(first.state_dict())
    a, b = retention(first, x.transpose(0, 1), answer), retention(turned, x, answer)
    np.testing.assert_allclose(a.scores, b.scores, atol=0.02)


def test_held_out_series_are_never_fitted_on():
    x, answer = answer_then_noise(10, 200, 0.0, classes=True)
    unseen = torch.arange(200) >= 120
    told = torch.where(unseen, 1 - answer, answer)  # the opposite is true of those held out
    assert retention(Leaky(1.0), x, told, held_out=unseen).final < 0.05


@pytest.mark.parametrize(
    ("name", "options", "kind"),
    [
        ("digits", {"length": 12}, "accuracy"),
        ("adding", {"length": 12}, "explained variance"),
        ("copy", {"delay": 3}, "accuracy"),
    ],
)
def test_every_kind_of_task_has_an_answer(name, options, kind):
    torch.manual_seed(0)
    task = tasks.build(name, **options)
    model = model_for(task.task_shape, "unicornn", {"hidden_size": 8})
    result = Retention.measure(Probe(model, task.batch("test", 0, 4).inputs, "it", task))
    assert result.kind == kind
    assert np.isfinite(result.scores).all()
    if name == "digits":
        assert result.scores.max() > 0.3 > 2 * result.chance


def test_it_says_why_it_does_not_apply():
    x = torch.randn(10, 40, 1)
    with pytest.raises(InapplicableError, match="no task"):
        Retention.measure(Probe(Leaky(1.0), x))
    few = tasks.build("characters")
    model = model_for(few.task_shape, "unicornn", {"hidden_size": 4})
    with pytest.raises(InapplicableError, match="too few series"):
        Retention.measure(Probe(model, few.batch("test", 0, 2).inputs, "it", few))
    with pytest.raises(InapplicableError, match="accessible state"):
        retention(nn.LSTM(1, 2, bidirectional=True), x, torch.zeros(40))
    with pytest.raises(ShapeError, match="at least 20 series"):
        retention(Leaky(1.0), x[:, :5], torch.zeros(5))
    with pytest.raises(OptionError, match="held_out"):
        retention(Leaky(1.0), x, torch.zeros(40), held_out=torch.ones(40, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(60, 7), (20, 45)])
def test_the_probe_is_the_ridge_regression_of_scikit_learn(shape):
    draw = np.random.default_rng(0)
    x = draw.standard_normal(shape)
    x = (x - x.mean(0)) / x.std(0)
    y = x[:, :2] + draw.standard_normal((shape[0], 2))
    y -= y.mean(0)
    theirs = Ridge(alpha=0.1 * shape[0], fit_intercept=False).fit(x, y)
    np.testing.assert_allclose(ridge(x, y, 0.1), theirs.coef_.T, atol=1e-10)
    choice = RidgeCV(alphas=PENALTIES * shape[0], fit_intercept=True).fit(x, y)
    assert best_penalty(x, y) == pytest.approx(choice.alpha_ / shape[0])
