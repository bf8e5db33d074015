"""Tasks of texts, recordings and a weather-like system, on tiny files in the canonical formats."""

import math

import numpy as np
import pytest
import torch
from canonical_files import everything, imdb_folders, record, ucr

from undamped._base.errors import DataError, OptionError
from undamped.lab import tasks
from undamped.lab.data.published.formats.vital_signs import heart_rate, respiratory_rate
from undamped.lab.tasks.lorenz96 import integrate
from undamped.lab.tasks.ucr import lem_parts
from undamped.lab.training import fit


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    everything(tmp_path)
    return tmp_path


# Penn Treebank


def test_ptb_parts_places_and_state(data):
    task = tasks.build("ptb", length=20)
    assert task.carries_state and task.readout == "every"
    train = task.decode(task.splits["train"])
    assert train.startswith("the <unk> fell") and "\n" in task.vocabulary
    first, second = task.batch("train", 0, 3), task.batch("train", 1, 3)
    assert first.inputs.shape == (20, 3)
    assert train.startswith(task.decode(first.inputs[:, 0]) + task.decode(second.inputs[:, 0]))
    assert torch.equal(first.inputs[1:], first.targets[:-1])
    assert task.decode(task.splits["test"]).endswith("said no\n")


# Lorenz-96


def test_lorenz_against_small_steps():
    start = 8 + np.random.default_rng(0).uniform(-0.5, 0.5, (2, 5))
    states = integrate(start, 8.0, 30)
    x, expected = start.copy(), [start.copy()]

    def field(x):
        out = np.empty_like(x)
        for i in range(5):
            out[:, i] = (x[:, (i + 1) % 5] - x[:, i - 2]) * x[:, i - 1] - x[:, i] + 8
        return out

    for _ in range(29):
        for _ in range(10):
            h = 0.001
            a = field(x)
            b = field(x + h / 2 * a)
            c = field(x + h / 2 * b)
            d = field(x + h * c)
            x = x + h / 6 * (a + 2 * b + 2 * c + d)
        expected.append(x.copy())
    assert np.allclose(states, expected, atol=1e-6)


def test_lorenz_parts_answers_and_metric():
    task = tasks.build("lorenz96", force=0.9, length=50)
    batch = task.batch("valid", 0, 128)
    assert batch.inputs.shape == batch.targets.shape == (50, 128, 5)
    assert torch.equal(batch.inputs[25:], batch.targets[:-25]), "25 readings later"
    assert (batch.inputs[0] - 0.9).abs().max() <= 0.5
    assert not torch.equal(batch.inputs, task.batch("test", 0, 128).inputs)
    prediction = batch.targets + 0.1
    total, size = task.score(prediction, batch)
    expected = 0.1 / batch.targets.square().mean().sqrt().item()
    assert task.finish(total.item() / size) == pytest.approx(expected, rel=1e-4)
    mean = task.batch("train", 0, 128).targets.mean((0, 1)).expand_as(batch.targets)
    test = task.batch("test", 0, 128)
    total, size = task.score(mean, test)
    assert task.finish(total.item() / size) == pytest.approx(task.chance.metric, rel=1e-3)


# Archives


def test_ucr_by_name_leaves_copies_out(data):
    task = tasks.build("ucr", dataset="GunPoint")
    assert task.output_size == 2 and task.sequences("test") == 8
    assert task.sequences("train") + task.sequences("valid") == 11, "one copy of a test series"
    assert any("are not used" in note for note in task.notes())
    assert task.record()["split"]["name"] == "given"


def test_ucr_by_file_and_other_splits(data, tmp_path):
    ucr(tmp_path / "Waves", unequal=True)
    task = tasks.build("ucr", file=str(tmp_path / "Waves" / "Waves_TRAIN.ts"))
    assert task.sequences("test") == 8
    pooled = tasks.build("ucr", file=str(tmp_path / "Waves"), split="stratified")
    sizes = {part: pooled.sequences(part) for part in ("train", "valid", "test")}
    assert sum(sizes.values()) == 20 and sizes["train"] > sizes["test"] > 0
    single = tasks.build("ucr", file=str(tmp_path / "Waves" / "Waves_TEST.ts"))
    assert sum(single.sequences(part) for part in ("train", "valid", "test")) == 8


def test_the_split_of_lem_has_the_published_sizes():
    parts = lem_parts(259)
    counts = {name: int((parts == name).sum()) for name in ("train", "valid", "test")}
    assert counts == {"train": 181, "valid": 39, "test": 39}
    assert np.array_equal(parts, lem_parts(259))
    with pytest.raises(OptionError, match="at least 7 series"):
        lem_parts(5)


def test_a_set_that_is_not_there_names_the_command(data):
    with pytest.raises(DataError, match="undamped data fetch Coffee"):
        tasks.build("ucr", dataset="Coffee")


# IMDB


def test_imdb_half_says_so(data):
    task = tasks.build("imdb")
    assert task.input_kind == "vectors" and task.input_size == 100
    assert "not those of the published test" in " ".join(task.notes())
    batch = task.batch("train", 0, 4)
    assert batch.inputs.shape == (int(batch.lengths.max()), 4, 100)
    assert sum(task.sequences(part) for part in ("train", "valid", "test")) == 40


def test_imdb_with_both_halves(data):
    (data / "imdb" / "imdb-half.csv").unlink()
    (data / "imdb" / "undamped.json").unlink()
    imdb_folders(data / "imdb")
    record(data / "imdb")
    task = tasks.build("imdb", length=3)
    assert task.sequences("test") == 12 and "published half" in " ".join(task.notes())
    assert task.batch("test", 0, 12).inputs.shape[0] == 3, "cut off"


def test_a_trained_embedding_starts_from_glove(data, tmp_path):
    settings = {"steps": 1, "batch_size": 4, "learning_rate": 1e-9}
    run = fit(
        "gru",
        "imdb",
        model_options={"hidden_size": 4},
        task_options={"embedding": "trained"},
        train=settings,
        out=tmp_path / "runs",
        progress=False,
    )
    task, model = run.task(), run.model()
    vectors = task.initial_embedding
    good = task.vocabulary.index("good")
    assert vectors[good].any() and not vectors[0].any()
    assert torch.allclose(model.embedding.weight[good], vectors[good], atol=1e-6)
    with pytest.raises(OptionError, match="embedding_size must be 100"):
        fit(
            "gru",
            "imdb",
            model_options={"hidden_size": 4, "embedding_size": 8},
            task_options={"embedding": "trained"},
            train=settings,
            out=tmp_path / "runs",
            progress=False,
        )


# Vital signs


def test_rates_are_read_off_clean_signals():
    time = np.arange(4000) / 125
    assert respiratory_rate(np.sin(2 * np.pi * time * 15 / 60)) == pytest.approx(15, abs=0.3)
    beat = np.exp(-((((time * 72 / 60) % 1 - 0.5) / 0.03) ** 2))
    assert heart_rate(beat) == pytest.approx(72, abs=1)
    assert math.isnan(respiratory_rate(np.zeros(4000)))


def test_systole_is_split_by_time_with_a_gap(data):
    task = tasks.build("vitals", stride_seconds=8.0)
    begins = {part: task.series_set.origin[index, 1] for part, index in task.splits.items()}
    assert begins["train"].max() + 4000 <= begins["valid"].min() - 4000
    assert begins["valid"].max() + 4000 <= begins["test"].min() - 4000
    rates = np.asarray(task.series_set.targets)
    assert 10 < rates.min() < rates.max() < 20 and rates[-1] > rates[0]
    assert tasks.build("vitals", signals="ecg", stride_seconds=8.0).input_size == 1
    heart = tasks.build("vitals", rate="heart", stride_seconds=8.0)
    beats = np.asarray(heart.series_set.targets)
    assert np.allclose(beats, 70, atol=6) and beats[-1] > beats[0] + 5


def test_simulated_people_are_on_one_side(data):
    pytest.importorskip("neurokit2")
    task = tasks.build("vitals", data="simulated", subjects=5, windows=2)
    sides = [set(task.series_set.groups[index]) for index in task.splits.values()]
    assert not (sides[0] & sides[1] or sides[0] & sides[2] or sides[1] & sides[2])
    assert task.series_set.series[0].shape == (4000, 2)


def test_vitals_from_a_file(data, tmp_path):
    folder = tmp_path / "Rates"
    folder.mkdir()
    for first, part in ((0, "TRAIN"), (8, "TEST")):
        rows = "\n".join(f"{i},{i + 1},{i + 3}:{i}.5" for i in range(first, first + 8))
        (folder / f"Rates_{part}.ts").write_text(f"@targetLabel true\n@data\n{rows}\n")
    task = tasks.build("vitals", file=str(folder))
    assert task.kind == "regression" and task.metric == "rmse"
    with pytest.raises(OptionError, match="signals=ecg is not possible with a file"):
        tasks.build("vitals", file=str(folder), signals="ecg")
