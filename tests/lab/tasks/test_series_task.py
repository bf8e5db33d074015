"""Tasks made of recordings: batches, losses and scores against plain NumPy."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from undamped._base.errors import DataError, OptionError
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import NO_ANSWER, SeriesTask
from undamped.lab.tasks.series_defaults import suggest
from undamped.lab.training import fit
from undamped.lab.training.evaluation import evaluate
from undamped.lab.training.run import Run
from undamped.models.for_task import model_for


def waves(count=40, unequal=True, seed=0):
    random = np.random.default_rng(seed)
    lengths = random.integers(15, 30, count) if unequal else [20] * count
    return [random.normal(size=(int(n), 2)) for n in lengths]


class Answers(torch.nn.Module):
    """A stand-in for a model that answers at random but always the same."""

    def __init__(self, task):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.task = task

    def run(self, batch, state=None):
        inputs = batch.inputs
        generator = torch.Generator().manual_seed(int(inputs.shape[0]))
        shape = inputs.shape[:2] if self.task.readout == "every" else inputs.shape[1:2]
        return torch.randn(*shape, self.task.output_size, generator=generator), None


def test_classification_batches_have_true_lengths():
    data = SeriesSet.of(waves(), targets=["up", "down"] * 20)
    task = SeriesTask(data)
    assert (task.kind, task.metric, task.readout) == ("classification", "accuracy", "last")
    assert task.output_size == 2 and task.input_size == 2
    batch = task.batch("train", 0, 8)
    assert batch.lengths is not None
    assert batch.inputs.shape == (int(batch.lengths.max()), 8, 2)
    for row, length in enumerate(batch.lengths.tolist()):
        assert not batch.inputs[length:, row].any()
    repeated = SeriesTask(data).batch("train", 0, 8)
    assert torch.equal(batch.inputs, repeated.inputs)


def test_one_pass_sees_every_series_once_and_like_lengths_together():
    task = SeriesTask(SeriesSet.of(waves(80), targets=["a", "b"] * 40))
    order = task.order(0, 4)
    assert sorted(order.tolist()) == list(range(task.sequences("train")))
    assert not torch.equal(order, task.order(1, 4))
    lengths = task.series_set.lengths[task.splits["train"]]
    spread = [np.ptp(lengths[order[i : i + 4].numpy()]) for i in range(0, 56, 4)]
    assert np.mean(spread) < np.ptp(lengths) / 2


def test_chance_of_classes_is_that_of_the_commonest():
    task = SeriesTask(SeriesSet.of(waves(40, False), targets=["a"] * 30 + ["b"] * 10))
    labels = np.asarray(task.series_set.targets)[task.splits["test"]]
    assert task.chance.metric == pytest.approx((labels == "a").mean())
    assert "'a'" in task.chance.rule


def test_regression_scores_are_in_original_units():
    series = waves(40)
    targets = np.array([1000 + 50 * values.mean() for values in series])
    task = SeriesTask(SeriesSet.of(series, targets=targets))
    assert task.kind == "regression" and task.metric == "rmse" and not task.higher_is_better
    model = Answers(task)
    scores = evaluate(model, task, "test", 3)
    answers, truth = [], []
    for number in range(task.count("test", 3)):
        batch = task.batch("test", number, 3)
        out = model.run(batch)[0].double().numpy()
        answers += [a["value"] for a in task.preparation.answer(out)]
        truth += targets[task.splits["test"]][3 * number : 3 * number + len(out)].tolist()
    expected = np.sqrt(np.mean((np.array(answers) - truth) ** 2))
    assert scores.metric == pytest.approx(expected, rel=1e-5)
    train, test = (targets[task.splits[name]] for name in ("train", "test"))
    assert task.chance.metric == pytest.approx(
        np.sqrt(np.mean((test - train.mean()) ** 2)), rel=1e-4
    )


@pytest.mark.parametrize("classes", [True, False])
def test_padded_steps_carry_no_loss_and_no_score(classes):
    series = waves(20)
    random = np.random.default_rng(1)
    labels = [
        random.integers(0, 3, len(values)) if classes else random.normal(size=len(values)) * 5
        for values in series
    ]
    task = SeriesTask(SeriesSet.of(series, targets=labels))
    assert task.kind == ("steps" if classes else "step-regression")
    assert task.readout == "every"
    batch = task.batch("test", 0, 3)
    assert batch.lengths is not None
    assert task.answers(batch) == int(batch.lengths.sum())
    prediction = torch.randn(*batch.inputs.shape[:2], task.output_size)
    steps = torch.arange(len(batch.inputs))[:, None] < batch.lengths
    answers, truth = prediction[steps], batch.targets[steps]
    score, count = task.score(prediction, batch)
    if classes:
        expected = torch.nn.functional.cross_entropy(answers, truth)
        assert score == (answers.argmax(-1) == truth).sum()
        assert (batch.targets[~steps] == NO_ANSWER).all()
    else:
        expected = (answers[:, 0] - truth).square().mean()
        scale = task.preparation.target_std[0] ** 2
        assert score.item() == pytest.approx((expected * len(answers) * scale).item(), rel=1e-5)
    assert count == len(answers)
    torch.testing.assert_close(task.loss(prediction, batch), expected)
    assert 0 < task.chance.metric < 10


def test_forecast_targets_and_the_last_value():
    line = np.stack([np.arange(200.0), np.random.default_rng(0).normal(size=200)], 1)
    task = SeriesTask(
        SeriesSet.of([line], channels=["line", "noise"]), horizon=4, window=10, forecast=["line"]
    )
    assert task.kind == "forecast" and task.output_size == 4
    assert task.split_record["by"] == "time"
    batch = task.batch("test", 0, 5)
    assert batch.inputs.shape == (10, 5, 2) and batch.targets.shape == (5, 4)
    answer = task.preparation.answer(batch.targets.numpy())[0]["forecast"]["line"]
    start = task.series_set.series[task.splits["test"][0]][0, 0]
    assert answer == pytest.approx([start + 10 + k for k in range(4)], rel=1e-5)
    assert task.chance.metric == pytest.approx(np.sqrt(np.mean(np.arange(1, 5) ** 2)), rel=1e-5)


def test_choices_are_said_aloud():
    series = waves(30, False)
    series[3] = series[2].copy()
    series[5][4:6, 0] = np.nan
    timestamps = [np.cumsum(np.random.default_rng(i).random(20) + 0.1) for i in range(30)]
    targets = ["a", "b"] * 14 + ["a", None]
    data = SeriesSet.of(series, targets=np.array(targets, dtype=object), times=timestamps)
    notes = " ".join(SeriesTask(data).notes())
    for words in (
        "classification",
        "without a target",
        "stratified",
        "copies",
        "2 of 1,160 values",
        "irregular",
    ):
        assert words in notes


def test_wrong_questions():
    data = SeriesSet.of(waves(10), targets=["a"] * 10)
    with pytest.raises(DataError, match="all targets are 'a', two or more classes"):
        SeriesTask(data)
    with pytest.raises(DataError, match="target="):
        SeriesTask(SeriesSet.of(waves(10)))
    with pytest.raises(DataError, match="has 1 time step, at least 2"):
        SeriesTask(SeriesSet.of([*waves(5), np.zeros((1, 2))], targets=[0, 1] * 3))
    with pytest.raises(OptionError, match="horizon"):
        SeriesTask(data, kind="forecast")
    with pytest.raises(OptionError, match="numbers as targets"):
        SeriesTask(data, kind="regression")


def test_run_keeps_preparation_split_and_shape(tmp_path):
    data = SeriesSet.of(waves(), targets=["up", "down"] * 20)
    task = SeriesTask(data)
    run = fit(
        "gru",
        task,
        model_options={"hidden_size": 4},
        train={"steps": 3, "batch_size": 4},
        out=tmp_path,
        progress=False,
    )
    assert Run.open(run.path).preparation() == task.preparation
    assert run.settings["split"]["hash"] == task.split_record["hash"]
    batch = task.batch("test", 0, 4)
    prediction = run.model()(batch.inputs, batch.lengths)  # the set is not needed
    assert prediction.shape == (len(batch.targets), 2)
    assert model_for(task.task_shape, "gru", {"hidden_size": 4}).input_size == 2


def test_without_test_and_validation_parts(tmp_path):
    data = SeriesSet.of(waves(), targets=["up", "down"] * 20)
    task = SeriesTask(data, fractions=(1, 0, 0))
    run = fit(
        "gru",
        task,
        model_options={"hidden_size": 4},
        train={"steps": 2, "batch_size": 4},
        out=tmp_path,
        progress=False,
    )
    assert "test" not in run.result and run.result["valid"]["accuracy"] is not None


def test_among_equal_accuracies_the_smallest_loss_is_kept(tmp_path):
    rng = np.random.default_rng(0)
    labels = ["up", "down"] * 20
    data = SeriesSet.of(
        [rng.normal(2 if label == "up" else -2, 0.3, (12, 1)) for label in labels], targets=labels
    )
    run = fit(
        "gru",
        SeriesTask(data),
        model_options={"hidden_size": 4},
        train={"steps": 30, "batch_size": 8, "validate_every": 3},
        out=tmp_path,
        progress=False,
    )
    rows = run.metrics()
    most = max(row["valid_accuracy"] for row in rows)
    equal = [row for row in rows if row["valid_accuracy"] == most]
    assert len(equal) > 2
    best = min(equal, key=lambda row: row["valid_loss"])
    assert run.result["best_step"] == best["step"] > equal[0]["step"]


def test_suggested_settings_follow_length_and_size():
    short = suggest(length=100, count=200, channels=1, kind="classification")
    long = suggest(length=10_000, count=200, channels=1, kind="classification")
    assert short["model"]["dt"] == pytest.approx(10 * long["model"]["dt"], rel=0.05)
    assert short["model"]["readout"] == "mean"
    steps = suggest(length=100, count=200, channels=1, kind="steps", model="lstm")
    assert not {"dt", "alpha", "readout"} & set(steps["model"])
    assert long["train"]["epochs"] < short["train"]["epochs"]
    huge = suggest(length=10_000_000, count=200, channels=1, kind="classification")
    assert huge["train"]["batch_size"] == 1  # one such sequence is all that memory allows
    for count in (3, 50, 10_000):
        train = suggest(length=50, count=count, channels=2, kind="regression")["train"]
        assert 4 <= train["batch_size"] <= 64 and train["epochs"] >= 5


@pytest.mark.slow
def test_a_csv_file_is_opened_once(tmp_path):
    """All passes over a file use the same open file."""
    path = tmp_path / "rec.csv"
    rows = [f"{i},{t},{(i + 1) * t % 7},{'ab'[i % 2]}" for i in range(20) for t in range(8)]
    path.write_text("\n".join(["id,time,x,label", *rows]))
    program = (
        "import sys\n"
        "opened = []\n"
        "sys.addaudithook(lambda event, args: event == 'open' and opened.append(str(args[0])))\n"
        "from undamped.lab.tasks import build\n"
        f"task = build('recordings', file={str(path)!r})\n"
        "task.batch('train', 0, 4), task.chance, task.record()\n"
        f"print(opened.count({str(path)!r}))\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.split() == ["1"], run.stderr
