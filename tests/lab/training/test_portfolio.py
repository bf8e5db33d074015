"""`auto`: a race on validation data, the winner as an ordinary run, and budgets that hold."""

import importlib
import json

import numpy as np
import pandas as pd
import pytest

import undamped
from lab.baselines.test_baselines import task_of, waves
from undamped.__main__ import main
from undamped._base.errors import OptionError, UnknownNameError
from undamped.lab.baselines.closed_form import NaiveBaseline
from undamped.lab.training import Run, TrainOptions, fit
from undamped.lab.training.portfolio import closed_form_candidates, networks
from undamped.lab.training.portfolio.attempt import (
    Attempt,
    Clock,
    Selection,
    check_auto_options,
    in_short,
    is_better,
    standard_error,
)
from undamped.lab.training.portfolio.closed_form_candidates import try_closed_form
from undamped.lab.training.portfolio.fit_best import (
    _why_no_networks,
    select,
    streaming_candidates,
)

# A few models to compare, so that tests are short.
SMALL = {"candidates": ("guess", "boosting", "gru")}


def noise(count=40):
    """Return series whose classes have nothing to do with them."""
    series, classes = waves(count)
    return series, np.random.default_rng(1).permutation(classes)


@pytest.mark.slow
def test_a_race_with_a_budget_of_steps_is_a_function_of_the_seed(tmp_path):
    runs = [
        fit(
            "auto",
            task_of(*noise(160)),
            model_options=SMALL,
            train={"steps": 3, "batch_size": 8},
            seed=2,
            out=tmp_path,
            progress=False,
        )
        for _ in range(2)
    ]
    told = [
        [{k: v for k, v in one.items() if k != "seconds"} for one in run.settings["tried"]]
        for run in runs
    ]
    assert told[0] == told[1]
    assert [one["model"] for one in told[0]] == ["guess", "boosting", "gru", "gru"]
    assert [one["steps"] for one in told[0]] == [0, 0, 1, 3]
    assert [one["draws"] for one in told[0]] == [5, 5, 1, 1]
    assert runs[0].settings["result"]["test"] == runs[1].settings["result"]["test"]
    assert runs[0].settings["why"]


@pytest.mark.slow
def test_the_run_is_an_ordinary_run_of_the_winner(tmp_path):
    lines = []
    task, options = task_of(*waves(60)), {"train": {"steps": 3}, "model_options": SMALL}
    run = fit("auto", task, **options, out=tmp_path, progress=lines.append)
    assert [path.name for path in tmp_path.iterdir()] == [run.path.name]
    settings = Run.open(run.path).settings
    assert settings["model"]["name"] == "boosting" and settings["status"] == "finished"
    alone = fit("boosting", task_of(*waves(60)), out=tmp_path, progress=False)
    assert alone.settings["result"]["test"] == settings["result"]["test"]
    # It cannot be beaten, so that no time is spent on networks.
    assert "nothing can be better than boosting" in settings["tried"][-1]["why_not"]
    assert any(line.startswith("boosting: accuracy 1 in") for line in lines)


@pytest.mark.slow
def test_the_test_part_is_looked_at_once_and_at_the_end(tmp_path, monkeypatch):
    from undamped.lab.tasks.series import SeriesTask

    seen = []
    take = SeriesTask.take

    def spy(self, split, index, generator):
        seen.append(split)
        return take(self, split, index, generator)

    monkeypatch.setattr(SeriesTask, "take", spy)
    options = {"train": {"steps": 2}, "model_options": SMALL}
    fit("auto", task_of(*noise()), **options, out=tmp_path, progress=False)
    first = seen.index("test")
    assert set(seen[first:]) == {"test"} and {"train", "valid"} <= set(seen[:first])


def test_a_second_is_enough_for_a_guess(tmp_path):
    run = fit("auto", task_of(*noise()), train={"seconds": 1}, out=tmp_path, progress=False)
    settings = run.settings
    assert settings["model"]["name"] == "guess" and "accuracy" in settings["result"]["test"]
    said = {one["model"]: one.get("why_not", "") for one in settings["tried"]}
    assert "no time left" in said["bank"] and "no time left" in said["gru"]


def test_a_member_that_would_take_too_long_is_not_begun(monkeypatch):
    monkeypatch.setattr(closed_form_candidates, "_cost", lambda *args: 100.0)
    task = task_of(*noise())
    found = try_closed_form("boosting", Selection(task, {}, 0), Clock(60.0, {}))
    assert found.why_not == "it would have taken about 400 s." and not found.usable
    monkeypatch.setattr(closed_form_candidates, "_cost", lambda *args: 6.0)
    assert try_closed_form("boosting", Selection(task, {}, 0), Clock(60.0, {})).draws == 2


def test_the_last_fit_of_the_best_so_far_is_kept_in_reserve(monkeypatch):
    """Members find less time the more it takes to fit the one that leads."""
    limits = []

    def attempt(name, selection, clock):
        limits.append(clock.limit)
        score = {"guess": 0.5, "bank": 0.9, "boosting": 0.8}[name]
        return Attempt(name, score, 1.0, score, 2, ((score, 1.0),) * 2, seconds=4.0)

    module = importlib.import_module("undamped.lab.training.portfolio.fit_best")
    monkeypatch.setattr(closed_form_candidates, "try_closed_form", attempt)
    monkeypatch.setattr(networks, "try_networks", lambda *args: [])
    selection = Selection(task_of(*noise()), {}, 0, candidates=("guess", "bank", "boosting"))
    module.compare(selection, Clock(60.0, {}))
    assert limits == [60.0, 54.0, 54.0]


def test_what_a_member_always_costs_does_not_count_for_every_series(monkeypatch):
    """A second for every look and a hundredth for every series, on a clock of our own."""
    now = [0.0]
    looks = []

    def learn(self, part):
        count = sum(batch.inputs.shape[1] for batch in part)
        looks.append(count)
        now[0] += 1.0 + 0.01 * count

    monkeypatch.setattr(closed_form_candidates.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(NaiveBaseline, "fit_closed_form", learn)
    task = task_of(*waves(2000, steps=9))
    options = TrainOptions(batch_size=64)
    price = closed_form_candidates._cost("guess", task, {}, options, 0, Clock(100.0, {}, 0.0))
    assert looks == [16, 16, 64, 256, 1024] and price == pytest.approx(15.4, rel=0.01)
    looks.clear()
    closed_form_candidates._cost("guess", task, {}, options, 0, Clock(10.0, {}, now[0]))
    assert looks == [16, 16]  # four times as many would not fit


def test_attempts_are_compared_on_the_draws_that_both_have_seen():
    task = task_of(*waves(20))
    lucky = Attempt("a", 1.0, 0.1, 1.0, 2, ((1.0, 0.1), (1.0, 0.1)))
    thorough = Attempt("b", 0.9, 0.2, 1.0, 3, ((1.0, 0.0), (1.0, 0.1), (0.7, 0.5)))
    assert is_better(thorough, lucky, task) and not is_better(lucky, thorough, task)


def test_validation_data_are_drawn_anew_without_the_test_part():
    series, classes = waves(60)
    task = task_of(series, classes)
    pool = set(task.splits["train"]) | set(task.splits["valid"])
    drawn = [task.redrawn(number) for number in (1, 2)]
    for one in drawn:
        assert one is not None and set(one.splits["test"]) == set(task.splits["test"])
        assert set(one.splits["train"]) | set(one.splits["valid"]) == pool
        assert not set(one.splits["train"]) & set(one.splits["valid"])
        assert len(one.splits["valid"]) == pytest.approx(len(task.splits["valid"]), abs=2)
    assert set(drawn[0].splits["valid"]) != set(drawn[1].splits["valid"])
    assert task_of(series, classes, split="time").redrawn(1) is None


def test_groups_stay_on_one_side_when_validation_data_are_drawn_anew():
    from undamped.lab.data.recordings.series import SeriesSet
    from undamped.lab.tasks.series import SeriesTask

    series, classes = waves(60)
    groups = np.arange(60) // 5
    found = SeriesSet.of(list(series.transpose(0, 2, 1)), targets=classes, groups=groups)
    again = SeriesTask(found).redrawn(3)
    assert not set(groups[again.splits["train"]]) & set(groups[again.splits["valid"]])


def test_a_handful_of_validation_series_is_not_asked_about_networks():
    task = task_of(*waves(60))
    assert "9 validation targets" in _why_no_networks(Attempt("bank", 0.6, 0.4, 5 / 9, 5), task)
    assert "nothing can be better" in _why_no_networks(Attempt("bank", 1.0, 0.1, 1.0, 5), task)
    assert not _why_no_networks(Attempt("guess", 0.5, 0.7, 0.5, 5), task)
    assert not _why_no_networks(None, task)
    assert not _why_no_networks(Attempt("bank", 0.6, 0.4, 0.6, 5), task_of(*waves(160)))


def test_a_network_has_to_be_better_by_more_than_chance():
    task = task_of(*waves(60))  # nine validation series
    members = [Attempt("bank", 0.7, 0.4, 6 / 9, 5), Attempt("guess", 0.5, 0.7, 5 / 9, 1)]
    close = Attempt("gru", 8 / 9, 0.3, 8 / 9, 1, steps=5)  # two of nine are no evidence
    winner, why = select([*members, close], task)
    assert winner.model == "bank" and "5 draws of validation data" in why
    clear = Attempt("gru", 1.0, 0.1, 1.0, 1, steps=5)
    winner, why = select([*members, clear], task)
    assert winner is clear and "more than two standard errors" in why
    known_better = Attempt("bank", 0.85, 0.4, 6 / 9, 5)  # and unlucky on this part
    assert select([known_better, clear], task)[0] is known_better
    assert is_better(members[0], members[1], task)
    assert not is_better(Attempt("a", 0.7, 0.5), members[0], task)
    assert standard_error(0.5, 100, task) == pytest.approx(0.05, abs=0.001)
    with pytest.raises(OptionError, match="can be used: no reason"):
        select([Attempt("bank", why_not="no reason")], task)


@pytest.mark.slow
def test_estimators_race_by_default():
    series, classes = waves(40)
    labels = np.array(["slow", "fast"])[classes]
    options = {"model_options": SMALL, "steps": 2, "random_state": 0}
    model = undamped.SequenceClassifier(**options).fit(series[:, 0], labels)
    assert model.model == "auto" and model.score(series[:, 0], labels) > 0.9
    assert {"guess", "boosting", "gru"} == {one["model"] for one in model.tried_}
    numbers = undamped.SequenceRegressor(**options).fit(series[:, 0], series.std((1, 2)))
    assert np.isfinite(numbers.predict(series[:3, 0])).all()
    with pytest.raises(OptionError, match=r"model\.hidden_size.*cannot be set with auto"):
        undamped.SequenceClassifier(hidden_size=3).fit(series[:, 0], labels)
    with pytest.raises(OptionError, match="needs validation data to compare models on"):
        undamped.SequenceClassifier(validation_fraction=0).fit(series[:, 0], labels)


def invoke(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["undamped", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


@pytest.mark.slow
def test_a_file_without_a_model_is_raced(tmp_path, monkeypatch, capsys):
    series, classes = waves(40)
    rows = [(i, "ab"[c], *one[0]) for i, (one, c) in enumerate(zip(series, classes, strict=True))]
    columns = ["id", "label", *(f"t{k}" for k in range(series.shape[2]))]
    pd.DataFrame(rows, columns=columns).drop(columns="id").to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.chdir(tmp_path)
    words = ("train", "a.csv", "target=label", "train.steps=2")
    words = (*words, "model.candidates=guess,boosting,gru")
    code, out, err = invoke(monkeypatch, capsys, *words)
    assert not code, err
    (page,) = tmp_path.rglob("report.html")
    assert "Models compared" in page.read_text(encoding="utf-8")
    words = (*words, "--no-page")
    assert "Models that were tried" in out and "boosting" in out and "Not tried: gru" in out
    assert err.index("series of 40 steps") < err.index("auto: guess")
    code, out, err = invoke(monkeypatch, capsys, *words, "--json")
    told = json.loads(out)
    assert not code and told["tried"][0]["model"] == "guess" and told["why"]
    code, _, err = invoke(monkeypatch, capsys, "predict", told["run"], "a.csv", "--json")
    assert not code, err
    code, _, err = invoke(monkeypatch, capsys, *words, "model.hidden_size=3")
    assert code == 2 and "cannot be set with auto" in err
    words = ("compare", "a.csv", "auto", "guess", "target=label", "train.steps=2")
    code, out, err = invoke(monkeypatch, capsys, *words, "auto.candidates=guess,boosting")
    assert not code and "auto" in out, err


def test_means_over_different_draws_are_not_shown_alone(capsys):
    from rich.console import Console

    from undamped.lab.cli.verbs.train import portfolio_table

    def shown(draws):
        tried = [
            Attempt("ridge-lags", 0.91, 0.1, 0.87, 3).to_dict(),
            Attempt("ets", 0.89, 0.1, 0.88, draws).to_dict(),
        ]
        Console(width=120).print(portfolio_table(tried, undamped.lab.tasks.build("digits")))
        return capsys.readouterr().out

    assert "first split" in shown(1) and "that both have" in shown(1) and "87.0 %" in shown(1)
    assert "first split" not in shown(3) and "that both have" not in shown(3)


def test_refusals_in_short():
    whole = "MiniROCKET: expected series of one length, got 15 to 29 steps. Choose bank."
    assert in_short(whole) == "expected series of one length, got 15 to 29 steps."
    assert in_short("there was no time left for it.") == "there was no time left for it."


def test_members_that_refuse_say_why(tmp_path, monkeypatch):
    from undamped._base import packages

    monkeypatch.setattr(packages, "_is_installed", lambda package: package != "aeon")
    options = {"train": {"steps": 1}, "model_options": {"candidates": ("guess", "minirocket")}}
    run = fit("auto", task_of(*waves(30)), **options, out=tmp_path, progress=False)
    assert "aeon" in run.settings["tried"][1]["why_not"]
    assert isinstance(Run.open(run.path).model(), NaiveBaseline)


@pytest.mark.slow
def test_a_class_with_one_series_and_a_constant_channel_are_raced(tmp_path):
    series, classes = waves(24, channels=2)
    series[:, 1] = 3.0
    labels = np.array(["a", "b"])[classes]
    labels[5] = "only"
    options = {"train": {"steps": 1}, "model_options": SMALL}
    run = fit("auto", task_of(series, labels), **options, out=tmp_path, progress=False)
    assert np.isfinite(run.settings["result"]["test"]["loss"])
    assert all("score" in one or one["why_not"] for one in run.settings["tried"])


def test_candidates_are_models():
    task = task_of(*waves(20))
    for names in (("guess", "no-such-network"), ("auto",)):
        with pytest.raises(UnknownNameError, match=names[-1]):
            fit("auto", task, model_options={"candidates": names}, progress=False)
    with pytest.raises(OptionError, match="at least one model"):
        fit("auto", task, model_options={"candidates": ()}, progress=False)
    names = ("gru", "ets", "gru", "guess")
    assert check_auto_options({"candidates": names}) == {"candidates": ("gru", "ets", "guess")}
    assert closed_form_candidates.candidates(task, names) == ["ets", "guess"]


def test_candidates_that_stream_or_can_be_exported():
    streams = ("bank", "location-bank", "unicornn", "linoss", "gru")
    assert streaming_candidates(None) == ("guess", *streams)
    assert streaming_candidates(None, exportable=True) == streams
    assert streaming_candidates(("quant", "gru")) == ("gru",)
    with pytest.raises(OptionError, match="None of quant, rdst follows a stream"):
        streaming_candidates(("quant", "rdst"))
