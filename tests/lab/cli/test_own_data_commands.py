"""From a file to a run to answers, on the command line and from Python; and what goes wrong."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from undamped.lab.cli import main
from undamped.lab.cli.next_steps import next_steps
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.training import Run, fit

QUICK = ["model.hidden_size=4", "train.steps=3", "train.batch_size=4"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def undamped(monkeypatch, capsys, *words):
    """Run the command line here; return exit code, output and errors."""
    monkeypatch.setattr(sys, "argv", ["undamped", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    said = capsys.readouterr()
    return code, said.out, said.err


def walks(count=24, seed=0):
    random = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        slow = number % 2
        for step in range(int(random.integers(20, 30))):
            rows.append(
                {
                    "walk": f"w{number}",
                    "x": np.sin(step * (0.3 if slow else 1.2)) + 0.1 * random.normal(),
                    "y": random.normal(),
                    "gait": "slow" if slow else "fast",
                    "who": f"p{number // 4}",
                }
            )
    return pd.DataFrame(rows)


def test_train_then_predict(tmp_path, monkeypatch, capsys):
    frame = walks()
    frame.to_csv("walks.csv", index=False)
    code, out, err = undamped(
        monkeypatch,
        capsys,
        *("train", "walks.csv", "gru", "target=gait", "id=walk", "group=who"),
        *("--no-page", "--json", *QUICK),
    )
    assert code == 0, err
    said = json.loads(out)
    assert "24 series" in err and "Split by group" in err
    assert said["split"]["by"] == "group" and said["split"]["hash"]
    assert said["preparation"]["classes"] == ["fast", "slow"]
    assert said["columns"]["id"] == "walk"

    frame.drop(columns=["gait", "who"]).to_csv("new.csv", index=False)
    (tmp_path / "walks.csv").unlink()  # the run needs its data no more
    code, out, err = undamped(
        monkeypatch, capsys, "predict", said["run"], "new.csv", "--json", "--out", "answers.csv"
    )
    assert code == 0, err
    answers = json.loads(out)
    assert [a["id"] for a in answers] == [f"w{n}" for n in range(24)]
    assert {a["label"] for a in answers} <= {"fast", "slow"}
    assert sum(answers[0]["probabilities"].values()) == pytest.approx(1)
    table = pd.read_csv("answers.csv")
    assert table.columns.tolist() == ["id", "label", "p_fast", "p_slow"] and len(table) == 24
    code, out, err = undamped(monkeypatch, capsys, "predict", said["run"], "new.csv")
    assert code == 0 and "w0: " in out and "probability" in out and "more" in out
    code, _, err = undamped(monkeypatch, capsys, "predict", said["run"])
    assert code == 2 and "walks.csv" in err


def test_screen_at_the_end(monkeypatch, capsys):
    walks().to_csv("walks.csv", index=False)
    code, out, err = undamped(
        monkeypatch,
        capsys,
        "train",
        "walks.csv",
        "gru",
        "target=gait",
        "id=walk",
        "--no-page",
        *QUICK,
    )
    assert code == 0, err
    assert "classify series into 2 classes" in out and "chance level" in out
    steps = next_steps(Run.open("runs/recordings-gru-1"))
    file = Path("walks.csv").absolute()
    assert steps[0] == f"undamped compare {file} gru lstm unicornn target=gait id=walk --seeds 3"
    assert steps[1] == f"undamped data check {file} target=gait id=walk"
    assert "undamped compare" in out and "target=gait" in out
    code, out, err = undamped(monkeypatch, capsys, "predict", "runs/recordings-gru-1")
    assert code == 0 and "true slow" in out, err


@pytest.mark.slow
def test_compare_takes_a_file(monkeypatch, capsys):
    walks().to_csv("walks.csv", index=False)
    code, out, err = undamped(
        monkeypatch,
        capsys,
        *("compare", "walks.csv", "gru", "lstm", "target=gait", "id=walk", "--json", *QUICK),
    )
    assert code == 0, err
    assert [row["model"] for row in json.loads(out)["models"]] == ["gru", "lstm"]


def test_regression_steps_and_forecasts(monkeypatch, capsys):
    random = np.random.default_rng(0)
    x = random.normal(size=(20, 15, 2))
    np.savez("numbers.npz", X=x, y=100 + 7 * x.mean((1, 2)))
    np.savez("steps.npz", X=x, y=np.where(x[:, :, 0] > 0, "up", "down"))
    pd.DataFrame({"price": np.cumsum(random.normal(size=300))}).to_csv("price.csv", index=False)
    cases = {
        "numbers.npz": ([], "value"),
        "steps.npz": ([], "labels"),
        "price.csv": (["horizon=3", "window=10", "target=price"], "forecast"),
    }
    for number, (file, (options, kind)) in enumerate(cases.items(), start=1):
        code, _, err = undamped(
            monkeypatch, capsys, "train", file, "gru", *options, "--no-page", "--json", *QUICK
        )
        assert code == 0, err
        run = f"runs/recordings-gru-{number}"
        code, out, err = undamped(
            monkeypatch, capsys, "predict", run, file, "--json", "--out", "a.csv"
        )
        assert code == 0, err
        (first, *_) = json.loads(out)
        assert kind in first
        assert len(pd.read_csv("a.csv")) == {"value": 20, "labels": 300, "forecast": 3}[kind]
    assert len(first["forecast"]["price"]) == 3


def test_the_same_from_python(tmp_path):
    walks().to_csv("walks.csv", index=False)
    run = fit(
        "gru",
        "recordings",
        task_options={"file": "walks.csv", "target": "gait", "id": "walk", "group": "who"},
        train={"steps": 2},
        out=tmp_path / "runs",
        progress=False,
    )
    settings = Run.open(run.path).settings
    assert (
        settings["train"]["batch_size"] == 4 and settings["model"]["options"]["hidden_size"] == 32
    )


BAD = {
    "ragged": "id,x,label\na,1,u\na,2\n",
    "text": "id,x,label\na,1,u\na,two,u\nb,1,v\nb,2,v\n",
    "missing": "id,x,label\n" + "".join(f"s{n},,{'uv'[n % 2]}\n" * 2 for n in range(20)),
    "one_class": "id,x,label\n" + "".join(f"s{n},{n},u\n" * 2 for n in range(20)),
    "timestamps": "id,time,x,label\na,0,1,u\na,0,2,u\n",
    "empty": "",
    "single": "id,x,label\n" + "".join(f"s{n},{n},{'uv'[n % 2]}\n" for n in range(20)),
}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ragged", "line 3: 2 fields, but there are 3 column names"),
        ("text", "column 'x', row 2: 'two' is not a number"),
        ("missing", "every value of channel 'x' is missing"),
        ("one_class", "all targets are 'u', two or more classes"),
        ("timestamps", "two rows with the timestamp"),
        ("empty", "is empty; it needs"),
        ("single", "has 1 time step, at least 2"),
    ],
)
def test_bad_tables_end_in_one_sentence(name, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "a.csv").write_text(BAD[name])
    code, out, err = undamped(monkeypatch, capsys, "train", "a.csv", "gru", "target=label")
    assert code == 2 and out == ""
    assert said in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "runs").exists() and not (tmp_path / "cache").exists()


def test_other_bad_input_ends_in_one_sentence(tmp_path, monkeypatch, capsys):
    (tmp_path / "latin.csv").write_bytes("id,x,label\né,1,u\n".encode("latin-1"))
    walks().to_csv("walks.csv", index=False)
    wide = pd.DataFrame(np.ones((4, 10)), columns=[f"t{i}" for i in range(10)])
    wide.assign(id=[1, 2, 3, 3], label=list("uvuv")).to_csv("wide.csv", index=False)
    np.savez("objects.npz", X=np.array([{}], dtype=object))
    np.save("objects.npy", np.array([{}], dtype=object))
    (tmp_path / "folder").mkdir()
    for words, said in (
        (["latin.csv"], "UTF-8"),
        (["walks.csv", "target=gate"], "Did you mean 'gait'"),
        (["walks.csv", "targt=gait"], "Did you mean 'target'"),
        (["walks.csv", "hidden_size=4"], "Did you mean 'model.hidden_size'"),
        (["walks.csv", "target=gait", "channels="], "channels must be a list"),
        (["wide.csv"], "id '3' is in 2 rows"),
        (["objects.npz"], "pickled objects"),
        (["objects.npy"], "pickled objects"),
        (["folder"], "has no .csv or .parquet files"),
        (["nowhere.csv"], "No such file or folder"),
        (["walks.csv", "target=gait", "id=walk", "fractions=0.5,0.5"], "three numbers for"),
        (["walks.csv", "target=gait", "id=walk", "split=time", "gap=50"], "split is empty"),
    ):
        file, *options = words
        code, out, err = undamped(monkeypatch, capsys, "train", file, "gru", *options)
        assert (code, out) == (2, ""), words
        assert said in err and len(err.strip().splitlines()) == 1, err
        assert not (tmp_path / "runs").exists()


def test_predict_says_what_does_not_fit(tmp_path, monkeypatch, capsys):
    walks().to_csv("walks.csv", index=False)
    run = fit(
        "gru",
        "recordings",
        model_options={"hidden_size": 4},
        task_options={"file": "walks.csv", "target": "gait", "id": "walk"},
        train={"steps": 2, "batch_size": 4},
        out=tmp_path / "runs",
        progress=False,
    )
    (tmp_path / "other.csv").write_text("walk,x\na,1\na,2\n")
    np.savez("other.npz", X=np.zeros((2, 5, 1)))
    for words, said in (
        (["other.csv"], "column 'y'"),
        (["other.npz"], "the model was trained on x, y"),
        (["walks.csv", "--out", tmp_path], f"'{tmp_path}' is a folder"),
        (["walks.csv", "--prompt", "h"], "--prompt"),
    ):
        code, out, err = undamped(monkeypatch, capsys, "predict", run.path, *words)
        assert (code, out) == (2, ""), words
        assert said in err and len(err.strip().splitlines()) == 1
    code, _, err = undamped(
        monkeypatch, capsys, "predict", run.path, "walks.csv", "--out", "new/folder/a.csv"
    )
    assert code == 0 and (tmp_path / "new/folder/a.csv").is_file(), err


def test_windows_are_averaged_and_answers_do_not_depend_on_the_batch(tmp_path):
    from undamped.lab.tasks.series import SeriesTask
    from undamped.lab.training.prediction import predict_series

    random = np.random.default_rng(0)
    series = [random.normal(size=(int(n), 1)) for n in random.integers(24, 60, 20)]
    data = SeriesSet.of(series, targets=["a", "b"] * 10)
    task = SeriesTask(data, window=12)
    run = fit(
        "gru",
        task,
        model_options={"hidden_size": 4},
        train={"steps": 2, "batch_size": 4},
        out=tmp_path,
        progress=False,
    )
    model, prepared = run.model(), run.preparation()
    together = predict_series(model, prepared, data)
    for number in range(len(data)):
        (alone,) = predict_series(model, prepared, data.take([number]))
        np.testing.assert_allclose(together[number], alone, atol=1e-5)
    cut = SeriesSet.of([series[0][:12], series[0][12:24]])
    halves = predict_series(model, prepared, cut)
    whole = predict_series(model, prepared, SeriesSet.of([series[0][:24]]))[0]
    np.testing.assert_allclose(whole, (halves[0] + halves[1]) / 2, atol=1e-5)


def counted(monkeypatch, calls, module, name):
    inner = getattr(module, name)

    def count(*arguments, **options):
        calls.append(name)
        return inner(*arguments, **options)

    monkeypatch.setattr(module, name, count)


@pytest.mark.slow
@pytest.mark.parametrize("baseline", [(), ("--baseline", "rnn")])
def test_a_training_reads_splits_and_prepares_its_file_once(baseline, monkeypatch, capsys):
    from undamped.lab.data.recordings import splits
    from undamped.lab.data.recordings.preparation import Preparation
    from undamped.lab.tasks import recordings
    from undamped.lab.training import run as runs

    walks(12).to_csv("walks.csv", index=False)
    calls: list[str] = []
    counted(monkeypatch, calls, recordings, "read_recordings")
    counted(monkeypatch, calls, splits, "split")
    counted(monkeypatch, calls, Preparation, "fit")
    counted(monkeypatch, calls, runs, "read_json")
    words = ("train", "walks.csv", "gru", "target=gait", "id=walk", *QUICK, *baseline)
    code, out, err = undamped(monkeypatch, capsys, *words)
    assert code == 0, err
    assert "Page:" in out
    data = [name for name in calls if name != "read_json"]
    assert sorted(data) == ["fit", "read_recordings", "split"]
    # Written twice a run (started, finished), so there is something new to read twice.
    assert calls.count("read_json") <= (4 if baseline else 2)


def test_the_models_of_a_comparison_share_the_data_of_a_seed(monkeypatch, capsys):
    from undamped.lab.tasks import recordings

    walks(12).to_csv("walks.csv", index=False)
    calls: list[str] = []
    counted(monkeypatch, calls, recordings, "read_recordings")
    code, _, err = undamped(
        monkeypatch,
        capsys,
        *("compare", "walks.csv", "gru", "rnn", "target=gait", "id=walk", "--seeds", "2", *QUICK),
    )
    assert code == 0, err
    assert len(calls) == 3  # the check before anything is trained, and one a seed
