"""The experiments run from end to end on next to nothing."""

import json
from dataclasses import replace

import pytest
from canonical_files import everything, record, ucr

from undamped._base.errors import DataError, NonFiniteError, UnknownNameError
from undamped._base.registry import experiments
from undamped.lab.papers import lorenz96, published_scores
from undamped.lab.papers import ucr as archive
from undamped.lab.report.table import silent
from undamped.lab.tasks import build
from undamped.lab.training import fit


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    everything(tmp_path)
    ucr(tmp_path / "ucr" / "JapaneseVowels", unequal=True)
    record(tmp_path / "ucr" / "JapaneseVowels")
    return tmp_path


def test_archive_sets_beside_the_nearest_neighbour(data):
    done = []
    result = archive.run(
        sets=("GunPoint",),
        networks=("unicornn", "cornn"),
        steps=2,
        hidden_size=4,
        out=str(data / "runs"),
        progress=done.append,
    )
    assert done == ["GunPoint"]
    (scores,) = result.records
    assert scores.distance == "Euclidean" and scores.nearest == 1
    assert 0 <= scores.accuracy["cornn"] <= 1
    assert "| GunPoint | 11 + 8, 20, 2 |" in result.markdown()
    assert set(result.figures()) == {"ucr"} and result.to_dict()["records"][0]["test"] == 8
    with pytest.raises(DataError, match="undamped data fetch Coffee"):
        archive.run(sets=("GunPoint", "Coffee"))


def test_all_sets_by_all_models_without_doing_anything_twice(data, monkeypatch):
    from undamped.lab.papers import archive as whole

    fractions = []
    options = {
        "sets": ("GunPoint", "JapaneseVowels"),
        "models": ("guess", "minirocket", "auto", "unicornn"),
        "seeds": 2,
        "steps": 1,
        "minutes": 0.02,  # enough for auto to try a guess
        "out": str(data / "runs"),
    }
    result = whole.run(**options, progress=lambda line, fraction: fractions.append(fraction))
    assert fractions[0] == 0 and fractions == sorted(fractions) and len(fractions) == 8
    first, second = result.records
    counts = {name: len(scores.accuracy) for name, scores in first.scores.items()}
    assert counts == {"guess": 1, "minirocket": 2, "auto": 2, "unicornn": 2}
    selected = whole.ModelScores([0.5, 0.5, 0.8], models=["bank", "dtw", "bank"])
    assert selected.cell() == "60.0% ± 17.3 (2 bank, 1 dtw)"
    assert second.scores["minirocket"].refused and not second.scores["minirocket"].accuracy
    assert result.to_dict()["common"] == ["GunPoint"]
    text = result.markdown()
    assert "| GunPoint | 11 + 8, 20, 2 |" in text and "of 1 sets that all models answer" in text
    assert "| – |" in text and f"({first.scores['auto'].models[0]})" in text
    assert set(result.figures()) == {"archive"}

    def fit_again(model, *words, **options):
        assert model == "minirocket"  # which only refused
        return fit(model, *words, **options)

    monkeypatch.setattr("undamped.lab.papers.runs.fit", fit_again)
    assert whole.run(**options).to_dict() == result.to_dict()
    with pytest.raises(UnknownNameError):
        whole.run(models=("minirockett",), sets=("GunPoint",))


@pytest.mark.parametrize("experiment", ["archive", "each-side"])
def test_one_training_that_fails_does_not_take_the_others_with_it(data, monkeypatch, experiment):
    def fit_once(model, *words, **options):
        if model == "unicornn":
            raise NonFiniteError("The norm of the gradient at step 7 is inf.")
        return fit(model, *words, out=options["out"], task_options=options["task_options"])

    monkeypatch.setattr("undamped.lab.papers.runs.fit_once", fit_once)
    only = {"seeds": 1} if experiment == "archive" else {"tasks": ()}
    models = ("unicornn", "guess")
    run = experiments[experiment]
    result = run(sets=("GunPoint",), models=models, out=str(data / "runs"), **only)
    text = json.dumps(result.to_dict())
    assert "at step 7 is inf" in text and "| – |" in result.markdown()
    assert set(result.figures()) == {experiment}


def test_unequal_lengths_are_warped(data, monkeypatch):
    seen = []

    def warped(test, train):
        import numpy as np

        seen.append((len(test), len(train)))
        return np.abs(np.array([len(one) for one in test])[:, None] - [len(one) for one in train])

    monkeypatch.setattr(archive, "_warped", warped)
    accuracy, name = archive.nearest_neighbour(build("ucr", dataset="JapaneseVowels"))
    assert name == "DTW" and seen == [(8, 11)] and 0 <= accuracy <= 1


def test_lorenz_table_and_picture(monkeypatch, tmp_path):
    original = lorenz96._linear_map
    from undamped.lab.tasks import Lorenz96

    monkeypatch.setitem(Lorenz96.recipes, "lstm", {"model": {"hidden_size": 3}})
    result = lorenz96.run(
        epochs=1, forces=(0.9,), networks=("lstm",), batch_size=4, trajectories=4, window=1000,
        out=str(tmp_path),
    )  # fmt: skip
    (forecast,) = result.records
    assert 0 < forecast.nrmse < 5
    assert result.numbers["linear_map"][0.9] < result.numbers["mean_state"][0.9]
    assert "| lstm |" in result.markdown() and "2.0e-02" in result.markdown()
    assert set(result.figures()) == {"lorenz96"}
    assert original is lorenz96._linear_map
    with pytest.raises(UnknownNameError, match="network of this experiment"):
        lorenz96.run(networks=("gru",))


def test_each_side_on_next_to_nothing(data):
    fractions = []
    result = experiments["each-side"](
        tasks=("adding", "first-cue"),
        sets=("GunPoint",),
        models=("rnn", "guess"),
        network_seconds=0.01,
        batches=1,
        length=100,
        out=str(data / "runs"),
        progress=lambda line, fraction: fractions.append(fraction),
    )
    assert len(fractions) == 6 and fractions == sorted(fractions)
    assert result.settings["recurrent"] == ["rnn"]
    adding, cue, gun = result.records
    assert cue.about == "100 steps, 2 classes" and adding.about == "200 steps, a number"
    assert abs(adding.scores["guess"].skill) < 0.2 and 0 <= gun.scores["guess"].score <= 1
    table = result.markdown()
    assert "| adding | 200 steps, a number | mse " in table and "| GunPoint |" in table
    assert set(result.figures()) == {"each-side"}
    assert result.to_dict()["records"][1]["winner"] in ("recurrent", "closed form", "both")
    with pytest.raises(DataError, match="undamped data fetch Coffee"):
        experiments["each-side"](sets=("Coffee",))


def test_what_is_counted_says_nothing_about_the_first_cue():
    task = build("first-cue", length=1000, noise=0.0, bursts=6)
    batch = task.batch("train", 0, 64)
    series, up = batch.inputs[:, :, 0], batch.targets == 1
    assert batch.targets.float().mean() == pytest.approx(0.5, abs=0.25)
    assert ((series == 1).sum(0) == 30).all() and ((series == -1).sum(0) == 30).all()
    first = (series != 0).float().argmax(0)
    assert first.max() < 20
    assert ((series.gather(0, first.unsqueeze(0))[0] > 0) == up).all()
    assert (series[30:200] == 0).all()


def test_published_scores_say_the_share_of_the_budget_and_are_reused(data, monkeypatch):
    small = {
        name: replace(
            published_scores.ROWS[name],
            model_options={"hidden_size": 4, "num_layers": 2},
            task_options={"validation": 8} if name == "psmnist-unicornn" else {},
            train={"batch_size": 8, "validate_every": 1},
        )
        for name in ("psmnist-unicornn", "ptb-lstm")
    }
    options = {"seed": 0, "out": str(data / "runs"), "progress": silent}
    result = published_scores.report_of(small, 1, options)
    pixels, text = result.records
    assert pixels.metric == "accuracy" and text.metric == "bits_per_character"
    (first, second) = result.tables[0].rows
    assert first[1] == "97.8 %" and first[4:6] == ("1", "0.038 %")
    assert second[1] == "–" and second[5] == "–"
    assert len(pixels.curve[0]) > 0 and set(result.figures()) == {"published-scores"}
    monkeypatch.setattr("undamped.lab.papers.runs.fit", None)
    assert published_scores.report_of(small, 1, options).records == result.records
    with pytest.raises(UnknownNameError, match="psmnist-unicornn"):
        published_scores.run(rows=("psmnist-unicorn",))
