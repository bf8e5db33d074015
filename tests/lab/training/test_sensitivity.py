"""A threshold for a wanted sensitivity, and standard errors beside answers."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from undamped._base.errors import DataError, OptionError
from undamped.lab.cli import main
from undamped.lab.data.recordings.alarm import Alarm
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training import Run, fit
from undamped.lab.training.prediction import predict_series, with_standard_error


def waves(count, noise, steps=40, seed=0):
    """Slow waves, and a quarter of faster ones."""
    random = np.random.default_rng(seed)
    ill = np.arange(count) % 4 == 0
    rates = np.where(ill, 0.5, 0.6)[:, None]
    turns = random.uniform(0, 6, (count, 1))
    series = np.sin(rates * np.arange(steps) + turns) + noise * random.normal(size=(count, steps))
    return series[:, :, None], ["ill" if one else "well" for one in ill]


def command(monkeypatch, capsys, *words):
    monkeypatch.setattr(sys, "argv", ["undamped", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("wanted", [0.5, 0.9, 0.95, 1.0])
def test_the_threshold_is_the_highest_that_finds_enough(wanted):
    random = np.random.default_rng(0)
    truth = random.random(200) < 0.3
    likely = np.clip(0.4 * truth + 0.8 * random.random(200), 0, 1)
    found = Alarm.choose("ill", likely, truth, wanted)
    assert found.sensitivity == (likely[truth] >= found.threshold).mean() >= wanted
    assert found.specificity == (likely[~truth] < found.threshold).mean()
    higher = np.sort(likely[truth & (likely > found.threshold)])
    assert not len(higher) or (likely[truth] >= higher[0]).mean() < wanted
    assert found.series == (truth.sum(), (~truth).sum())


def test_a_class_below_its_threshold_is_not_said_even_if_it_is_the_likeliest():
    alarm = Alarm("a", 0.7, 0.5, 0.5, 1.0, (1, 1))
    classes = ["a", "b", "c"]
    assert alarm.label(classes, np.array([0.6, 0.1, 0.3])) == "c"
    assert alarm.label(classes, np.array([0.7, 0.2, 0.1])) == "a"


def test_the_run_keeps_the_threshold_and_predictions_heed_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    series, labels = waves(120, noise=1.5)
    rows = [
        {"walk": f"w{number}", "x": value, "state": labels[number]}
        for number, one in enumerate(series)
        for value in one[:, 0]
    ]
    pd.DataFrame(rows).to_csv("walks.csv", index=False)
    words = "train walks.csv bank target=state id=walk sensitivity=0.9 model.oscillators=40"
    said = command(monkeypatch, capsys, *words.split(), "--out", "runs")
    assert "'ill' is predicted from a probability of" in said
    run = Run.open(next((tmp_path / "runs").iterdir()))
    alarm = run.preparation().stored_alarm
    assert alarm.positive == "ill" and alarm.sensitivity >= 0.9
    assert 0 < alarm.threshold < 0.5  # a weak model of a rare class has to say it early
    test = run.settings["result"]["test"]
    assert set(test) >= {"sensitivity", "specificity", "accuracy"}
    assert "is predicted from a probability of" in (run.path / "report.html").read_text()
    answers = json.loads(command(monkeypatch, capsys, "predict", str(run.path), "--json"))
    for answer in answers:
        assert (answer["label"] == "ill") == (answer["probabilities"]["ill"] >= alarm.threshold)
        assert answer["standard_error"] > 0 and answer["margin"] >= 0
    ill = [answer for answer in answers if answer["truth"] == "ill"]
    assert np.mean([one["label"] == "ill" for one in ill]) == pytest.approx(test["sensitivity"])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"sensitivity": 1.5}, "sensitivity must be in"),
        ({"positive": "ill"}, "positive needs sensitivity"),
        ({"sensitivity": 0.9, "positive": "dead"}, "one of the classes ill, well"),
    ],
)
def test_what_cannot_be_asked_is_said(options, word):
    series, labels = waves(40, noise=1.0)
    with pytest.raises(OptionError, match=word):
        SeriesTask(SeriesSet.of(list(series), targets=labels), **options)


def test_classes_that_cannot_be_found_are_said():
    series, labels = waves(40, noise=1.0)
    third = ["other" if number % 4 == 1 else one for number, one in enumerate(labels)]
    with pytest.raises(OptionError, match="positive must be one of the classes"):
        SeriesTask(SeriesSet.of(list(series), targets=third), sensitivity=0.9)
    with pytest.raises(OptionError, match="needs kind=classification"):
        SeriesTask(SeriesSet.of(list(series), targets=np.linspace(0, 1, 40)), sensitivity=0.9)
    rare = ["once" if number == 5 else one for number, one in enumerate(labels)]
    with pytest.raises(DataError, match="validation split has no series"):
        SeriesTask(SeriesSet.of(list(series), targets=rare), sensitivity=0.9, positive="once")


def test_standard_errors_cover_numbers_that_were_not_learnt_from(tmp_path):
    random = np.random.default_rng(0)
    strength = random.uniform(1, 3, 300)
    series = strength[:, None] * np.sin(0.5 * np.arange(40)) + 0.5 * random.normal(size=(300, 40))
    target = 100 + 10 * strength + random.normal(size=300)
    task = SeriesTask(SeriesSet.of(list(series[:150, :, None]), targets=target[:150]))
    run = fit("bank", task, model_options={"oscillators": 40}, out=tmp_path, progress=False)
    model, preparation = run.model(), run.preparation()
    fresh = SeriesSet.of(list(series[150:, :, None]))
    outputs = predict_series(model, preparation, fresh)
    answers = [
        with_standard_error(preparation.answer(one)[0], one, model, preparation) for one in outputs
    ]
    errors = [abs(a["value"] - t) for a, t in zip(answers, target[150:], strict=True)]
    spread = answers[0]["standard_error"]
    assert 0.5 < spread < 4
    assert 0.55 < np.mean(np.array(errors) < spread) < 0.82  # about two thirds within one
    assert np.mean(np.array(errors) < 2 * spread) > 0.9
