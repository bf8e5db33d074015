"""Recordings compared: one subject held out after the other, and models ranked over files."""

import json

import numpy as np
import pandas as pd
import pytest

from lab.baselines.test_baselines import waves
from lab.training.test_portfolio import invoke
from undamped._base.errors import DataError, OptionError, UnknownNameError
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.data.recordings.splits import hold_out
from undamped.lab.tasks.series import SeriesTask


def grouped(count=24, groups=4):
    series, classes = waves(count)
    who = np.array([f"s{i % groups}" for i in range(count)])
    return SeriesSet.of(list(series.transpose(0, 2, 1)), targets=classes, groups=who), who


def write(path, groups=3, seed=0):
    series, classes = waves(18)
    series = series + seed
    table = pd.DataFrame(series[:, 0], columns=[f"t{k}" for k in range(series.shape[2])])
    table.insert(0, "label", np.array(["a", "b"])[classes])
    table.insert(0, "who", [f"s{i % groups}" for i in range(len(table))])
    table.to_csv(path, index=False)


def test_a_subject_that_is_held_out_is_seen_by_the_test_alone():
    found, who = grouped()
    task = SeriesTask(found, held_out="s2")
    assert set(who[task.splits["test"]]) == {"s2"} and len(task.splits["test"]) == 6
    train, valid = (set(who[task.splits[name]]) for name in ("train", "valid"))
    assert train and valid and not train & valid and train | valid == {"s0", "s1", "s3"}
    assert any("s2 is held out" in line for line in task.notes())
    again = task.redrawn(1)
    assert again is not None and set(who[again.splits["test"]]) == {"s2"}


def test_copies_of_what_is_tested_are_not_learnt_from():
    found, who = grouped()
    found.series[1] = found.series[0].copy()  # s1 now has a series of s0
    parts = hold_out(found, "s0", seed=0)
    assert not set(who[np.concatenate([parts["train"], parts["valid"]])]) & {"s0", "s1"}
    found, who = grouped(groups=2)
    parts = hold_out(found, "s0", seed=0)  # one subject is left to learn from
    assert len(parts["valid"]) and len(parts["train"]) and not set(who[parts["train"]]) & {"s0"}
    found.series[1] = found.series[0].copy()
    with pytest.raises(DataError, match="leaves no other groups for training"):
        hold_out(found, "s0", seed=0)


def test_bad_groups_are_one_sentence():
    found, _ = grouped()
    with pytest.raises(UnknownNameError, match="s2"):
        SeriesTask(found, held_out="s22")
    with pytest.raises(OptionError, match="a split by group, got split=time"):
        SeriesTask(found, held_out="s2", split="time")
    series, classes = waves(10)
    alone = SeriesSet.of(list(series.transpose(0, 2, 1)), targets=classes)
    with pytest.raises(OptionError, match="a group column"):
        SeriesTask(alone, held_out="s2")


@pytest.mark.slow
def test_one_subject_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write("a.csv")
    words = ("compare", "a.csv", "guess", "dtw", "target=label", "--leave-one-out", "--json")
    code, out, err = invoke(monkeypatch, capsys, *words, "group=who")
    assert not code, err
    told = json.loads(out)
    assert [len(row["test"]["scores"]) for row in told["models"]] == [3, 3]
    assert "dtw, seed 0, without s2" in err
    pd.read_csv("a.csv").drop(columns="who").to_csv("a.csv", index=False)
    code, _, err = invoke(monkeypatch, capsys, *words)
    assert code == 2 and "group=COLUMN" in err


def test_models_are_ranked_over_several_files(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write("a.csv")
    write("b.csv", seed=1)
    words = ("compare", "a.csv", "b.csv", "dtw", "guess", "target=label", "group=who")
    code, out, err = invoke(monkeypatch, capsys, *words)
    assert not code, err
    assert "2 files: mean rank" in out and "mean rank" in out
    code, out, _ = invoke(monkeypatch, capsys, *words, "--json")
    told = json.loads(out)
    assert told["files_ranked"] == 2 and set(told["files"]) == {"a.csv", "b.csv"}
    assert sum(told["rank"].values()) == pytest.approx(3)
    ahead = told["better"]["dtw"]["guess"] + told["better"]["guess"]["dtw"]
    assert ahead <= 2 and (told["rank"]["dtw"] < told["rank"]["guess"]) == (
        told["better"]["dtw"]["guess"] > told["better"]["guess"]["dtw"]
    )
    code, _, err = invoke(monkeypatch, capsys, *words, "--figure", "x.png")
    assert code == 2 and "single file of recordings, got 2" in err
