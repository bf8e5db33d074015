"""Sequences of pictures of one's own: read, split, learnt, predicted; and what cannot be read."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from undamped._base.errors import DataError, OptionError
from undamped._base.registry import tasks
from undamped.lab import cli
from undamped.lab.data.images import read_image_sequences


def some_pictures(count=6, side=9):
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)


def pairs(count=60):
    """Numbers of pictures: the first half equal pairs, the others different ones."""
    rng = np.random.default_rng(1)
    first = rng.integers(0, 6, count)
    second = np.where(np.arange(count) < count // 2, first, (first + rng.integers(1, 6, count)) % 6)
    return np.stack([first, second], 1), np.repeat(["same", "other"], count // 2)


@pytest.fixture
def folder(tmp_path):
    images, (numbers, labels) = some_pictures(), pairs()
    for k, (row, label) in enumerate(zip(numbers, labels, strict=True)):
        directory = tmp_path / "own" / label / f"trial {k}"
        directory.mkdir(parents=True)
        for t, number in enumerate(row):
            Image.fromarray(images[number]).save(directory / f"{t}.png")
    return tmp_path / "own"


def write_npz(path, **changes):
    numbers, labels = pairs()
    arrays = {"pictures": some_pictures()[numbers], "labels": labels, **changes}
    np.savez(path, **{name: a for name, a in arrays.items() if a is not None})
    return path


def test_folders_and_files_of_both_forms_are_read_alike(folder, tmp_path):
    numbers, _ = pairs()
    complete = write_npz(tmp_path / "whole.npz")
    numbered = write_npz(tmp_path / "numbered.npz", pictures=some_pictures(), sequences=numbers)
    built = [tasks.build("picture-sequences", file=str(p)) for p in (folder, complete, numbered)]
    for task in built:
        assert task.picture_shape == (3, 9, 9) and task.answer_names == ("other", "same")
        assert task.task_shape.length == 2 and len(task.source.images) == 6
        assert sum(len(part) for part in task.splits.values()) == 60
        assert "6 of them distinct; 2 classes: other, same" in task.notes()[0]
        everything = torch.cat([task.batch(s, 0, 100).targets for s in ("train", "valid", "test")])
        assert torch.bincount(everything).tolist() == [30, 30]
        # Copies of a sequence are on one side.
        split_of = {}
        for split in ("train", "valid", "test"):
            for row in task.source.sequences[task.splits[split]].tolist():
                assert split_of.setdefault(tuple(row), split) == split
    batch = built[1].batch("train", 0, 30)
    images = batch.expanded().inputs
    assert images.dtype == torch.uint8
    equal = (images[0] == images[1]).flatten(1).all(1)
    assert torch.equal(equal, batch.targets == 1)


def test_a_split_that_the_source_brings_is_kept(folder, tmp_path):
    words = np.array(["train"] * 40 + ["test"] * 20)
    task = tasks.build("picture-sequences", file=str(write_npz(tmp_path / "s.npz", split=words)))
    assert task.splits["test"].tolist() == list(range(40, 60)) and len(task.splits["valid"]) > 0
    deep = tmp_path / "deep"
    deep.mkdir()
    for part in ("train", "test"):
        (deep / part).symlink_to(folder)
    published = tasks.build("picture-sequences", file=str(deep))
    assert len(published.splits["test"]) == 60 and len(published.source.images) == 6


def test_from_a_folder_to_an_answer(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["train", str(folder), "corelnet", "train.steps=25", "model.encoder=frozen"]
    result = CliRunner().invoke(cli.app, [*words, "train.batch_size=8", "--no-page", "--json"])
    assert result.exit_code == 0, result.output
    run = json.loads(result.stdout)
    assert run["task"]["name"] == "picture-sequences" and run["answer_names"] == ["other", "same"]
    result = CliRunner().invoke(cli.app, ["predict", run["run"], str(folder / "same"), "--json"])
    assert result.exit_code == 0, result.output
    answers = json.loads(result.stdout)
    assert len(answers) == 30 and answers[2]["sequence"] == "trial 2"
    assert set(answers[0]["probabilities"]) == {"other", "same"}
    result = CliRunner().invoke(cli.app, ["predict", run["run"], str(folder / "same")])
    assert result.stdout.startswith("trial 0: ")


def one_shorter(folder):
    (folder / "same" / "trial 3" / "1.png").unlink()


def one_larger(folder):
    Image.new("RGB", (12, 9)).save(folder / "same" / "trial 3" / "1.png")


def one_class(folder):
    (folder / "other").rename(folder.parent / "gone")


def single(folder):
    for image in folder.glob("*/*/1.png"):
        image.unlink()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (one_shorter, "trial 3 has 1 images, but .* has 2"),
        (one_larger, "1.png has 12 × 9 pixels, but '0.png' has 9 × 9"),
        (one_class, "must have at least two classes, got same"),
        (single, "a sequence must have at least two images, got one"),
    ],
)
def test_bad_folders_are_one_sentence(folder, spoil, message):
    spoil(folder)
    with pytest.raises(DataError, match=message) as caught:
        tasks.build("picture-sequences", file=str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": None}, "has no array 'labels', only pictures"),
        (
            {"labels": np.zeros(3, int)},
            r"labels must be an integer or a word for each of 60 sequences, got int64 \(3,\)",
        ),
        ({"pictures": np.zeros((60, 9))}, r"must have the shape \(sequences, time, height, width"),
        ({"pictures": np.full((60, 2, 9, 9), np.nan)}, "image 0 has a pixel that is nan"),
        ({"pictures": np.zeros((60, 1, 9, 9))}, "at least two images, got one"),
        (
            {"sequences": np.full((60, 2), 9), "pictures": some_pictures()},
            "indices of the images .* from 0 to 5",
        ),
        ({"split": np.array(["train", "exam"] * 30)}, "split must be one of train, valid, test"),
        ({"split": np.array(["train"] * 60)}, "the test split has none of the 60 sequences"),
    ],
)
def test_bad_files_are_one_sentence(changes, message, tmp_path):
    path = write_npz(tmp_path / "own.npz", **changes)
    with pytest.raises(DataError, match=message):
        tasks.build("picture-sequences", file=str(path))


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(DataError, match=r"No such file: .*nothing"):
        read_image_sequences(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty has no images"):
        read_image_sequences(tmp_path / "empty")
    with pytest.raises(OptionError, match="fractions must be three positive numbers"):
        path = write_npz(tmp_path / "own.npz")
        tasks.build("picture-sequences", file=str(path), fractions=(0.5, 0.5))
