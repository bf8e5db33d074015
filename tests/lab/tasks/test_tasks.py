"""Tasks: exactly the published construction, the same data for everybody, and what a guess has."""

import math

import pytest
import torch

from undamped._base.errors import DataError, OptionError
from undamped._base.registry import tasks as registry
from undamped.lab import tasks
from undamped.lab.tasks.task import Task


@pytest.mark.parametrize("name", ["copy", "denoise", "adding", "digits"])
def test_another_seed_is_other_data(name):
    first, second = tasks.build(name, seed=1), tasks.build(name, seed=2)
    assert not torch.equal(first.batch("train", 0, 4).inputs, second.batch("train", 0, 4).inputs)


@pytest.mark.parametrize("name", ["copy", "denoise", "adding"])
def test_held_out_parts_differ_from_training_and_end(name):
    task = tasks.build(name)
    batches = [task.batch(split, 0, 8).inputs for split in ("train", "valid", "test")]
    assert not torch.equal(batches[0], batches[1]) and not torch.equal(batches[1], batches[2])
    count = task.count("test", 100)
    assert (
        sum(task.batch("test", i, 100).inputs.shape[1] for i in range(count))
        == task.held_out["test"]
    )


SAME_FOR_ALL = {
    "copy": {"delay": 3},
    "denoise": {"delay": 15},
    "adding": {"length": 6},
    "annuli": {},
    "density": {},
    "rmts": {"colours": "joint"},
    "comparison": {},
    "relational-games": {"game": "between"},
    "periodic": {"series": 5},
    "digits": {"length": 12, "fresh_noise": True},
}


@pytest.mark.parametrize("name", SAME_FOR_ALL)
def test_held_out_sequences_do_not_depend_on_the_size_of_batches(name):
    task = tasks.build(name, **SAME_FOR_ALL[name])
    axis = 1 if task.sequential else 0

    def first(size):
        batches = [task.batch("test", i, size).expanded().inputs for i in range(120 // size)]
        return torch.cat(batches, axis)

    assert torch.equal(first(30), first(40))
    assert torch.equal(first(30), first(120))


def test_held_out_sequences_of_several_lengths_are_refused():
    class Growing(registry["copy"]):
        def draw(self, size, generator):
            self.delay += 1
            return super().draw(size, generator)

    with pytest.raises(DataError, match="one shape"):
        Growing(3).batch("test", 0, 100)


def test_copy_after_the_marker():
    batch = tasks.build("copy", delay=5).batch("train", 0, 3)
    assert batch.inputs.shape == (25, 3)
    symbols = batch.inputs[:10]
    assert symbols.min() >= 1 and symbols.max() <= 8
    assert (batch.inputs[10:14] == 0).all()
    assert (batch.inputs[14] == 9).all()
    assert (batch.inputs[15:] == 0).all()
    assert (batch.targets[:15] == 0).all()
    assert torch.equal(batch.targets[15:], symbols)


def test_copy_at_the_marker():
    batch = tasks.build("copy", delay=5, convention="at-marker").batch("train", 0, 3)
    assert batch.inputs.shape == (25, 3)
    assert (batch.inputs[15] == 9).all()
    assert (batch.inputs == 9).sum() == 3
    assert torch.equal(batch.targets[15:], batch.inputs[:10])


def test_copy_as_numbers():
    batch = tasks.build("copy", delay=5, encoding="number").batch("train", 0, 3)
    assert batch.inputs.shape == (25, 3, 1) and batch.inputs.is_floating_point()
    assert batch.inputs.max() == 9


@pytest.mark.usefixtures("all_held_out")  # of which it takes 200
def test_copy_chance_is_that_of_a_model_that_says_symbols_at_random():
    task = tasks.build("copy", delay=200)
    assert task.chance.loss == pytest.approx(10 * math.log(8) / 220)
    batch = task.batch("test", 0, 200)
    prediction = torch.full((220, 200, 9), -1e4)
    prediction[:210, :, 0] = 0
    prediction[210:, :, 1:] = 0
    assert task.loss(prediction, batch).item() == pytest.approx(task.chance.loss, rel=1e-4)
    noisy = prediction.clone()
    noisy[210:, :, 1:] += 1e-3 * torch.rand(10, 200, 8)
    right, count = task.score(noisy, batch)
    assert right / count == pytest.approx(1 / 8, abs=0.03)


def test_transfer_copy_is_tested_at_other_delays():
    task = tasks.build("transfer-copy", delay=5, test_delays=(5, 50))
    parts = task.test_tasks()
    assert list(parts) == ["delay 5", "delay 50"]
    assert parts["delay 50"].batch("test", 0, 2).inputs.shape[0] == 70


def test_denoise():
    batch = tasks.build("denoise", delay=30).batch("train", 0, 6)
    assert batch.inputs.shape == (50, 6)
    noisy = batch.inputs[:39]
    assert ((noisy > 0).sum(0) == 10).all(), "ten different places each"
    for i in range(6):
        column = noisy[:, i]
        assert torch.equal(column[column > 0], batch.targets[40:, i])
    assert (batch.inputs[39] == 10).all() and (batch.inputs[40:] == 0).all()
    assert (batch.targets[:40] == 0).all()


def test_adding():
    task = tasks.build("adding", length=21)
    batch = task.batch("train", 0, 500)
    numbers, marks = batch.inputs[..., 0], batch.inputs[..., 1]
    assert (marks[:10].sum(0) == 1).all() and (marks[10:].sum(0) == 1).all()
    assert torch.allclose((numbers * marks).sum(0), batch.targets[:, 0])
    squared, count = task.score(torch.ones(500, 1), batch)
    assert squared / count == pytest.approx(1 / 6, abs=0.03)


def test_digits_are_real_and_the_noise_is_shared():
    from sklearn.datasets import load_digits

    task = tasks.build("digits", length=50)
    batch = task.batch("train", 0, 16)
    assert batch.inputs.shape == (50, 16, 8)
    images, labels = load_digits(return_X_y=True)
    for i in range(16):
        flat = (batch.inputs[:8, i].flatten() * 16).round().numpy()
        matches = (images == flat).all(1).nonzero()[0]
        assert batch.targets[i] in labels[matches]
    assert (batch.inputs[8:] == batch.inputs[8:, :1]).all()
    valid = task.batch("valid", 0, 16)
    assert torch.equal(valid.inputs[8:, :16], batch.inputs[8:]), "one noise for all parts"


def test_digits_fresh_noise_and_uniform_noise():
    fresh = tasks.build("digits", length=50, fresh_noise=True)
    batch = fresh.batch("train", 0, 4)
    assert not torch.equal(batch.inputs[8:, 0], batch.inputs[8:, 1])
    uniform = tasks.build("digits", length=500, noise="uniform").batch("train", 0, 4).inputs[8:]
    assert (
        uniform.min() >= 0 and uniform.max() < 1 and uniform.mean() == pytest.approx(0.5, abs=0.03)
    )


def test_digit_parts_do_not_overlap_and_a_pass_sees_each_once():
    task = tasks.build("digits", length=8)
    sizes = {split: task.sequences(split) for split in ("train", "valid", "test")}
    assert sizes == {"train": 1257, "valid": 270, "test": 270}
    per_pass = task.count("train", 100)
    images = torch.cat([task.batch("train", i, 100).inputs for i in range(per_pass)], dim=1)
    assert len(images.transpose(0, 1).flatten(1).unique(dim=0)) >= 1195
    first, second = task.batch("train", 0, 100), task.batch("train", per_pass, 100)
    assert not torch.equal(first.inputs, second.inputs), "shuffled anew"
    different = tasks.build("digits", length=8, split_seed=1)
    assert not torch.equal(different.batch("test", 0, 50).inputs, task.batch("test", 0, 50).inputs)


def test_hello():
    task = tasks.build("characters")
    assert task.vocabulary == "ehlo"
    batch = task.batch("train", 0, 8)
    assert task.decode(batch.inputs[:, 0]) == "hell" and task.decode(batch.targets[:, 0]) == "ello"
    with pytest.raises(OptionError, match="Use only"):
        task.encode("world")


def test_a_text_file_is_read_in_order_with_places_that_go_on(tmp_path):
    text = "".join(chr(97 + (i * i) % 26) for i in range(2000))
    file = tmp_path / "text.txt"
    file.write_text(text)
    task = tasks.build("characters", file=str(file), length=50)
    assert task.carries_state
    first, second = task.batch("train", 0, 4), task.batch("train", 1, 4)
    assert first.inputs.shape == (50, 4)
    assert task.decode(first.inputs[:, 0]) == text[:50]
    assert task.decode(second.inputs[:, 0]) == text[50:100], "goes on where it stopped"
    assert torch.equal(first.inputs[1:], first.targets[:-1])
    read = [task.batch("train", i, 4).inputs[:, 0] for i in range(task.count("train", 4))]
    assert text.startswith(task.decode(torch.cat(read)))
    train, test = task.splits["train"], task.splits["test"]
    assert len(train) == 1800 and len(test) == 100
    assert task.chance.metric == pytest.approx(task.chance.loss / math.log(2))


def test_bad_texts(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        tasks.build("characters", file=str(tmp_path / "missing.txt"))
    with pytest.raises(DataError, match="a folder"):
        tasks.build("characters", file=str(tmp_path))
    (tmp_path / "empty.txt").write_text("")
    with pytest.raises(DataError, match="at least two characters"):
        tasks.build("characters", file=str(tmp_path / "empty.txt"))
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(DataError, match="not UTF-8"):
        tasks.build("characters", file=str(tmp_path / "bytes.txt"))
    (tmp_path / "short.txt").write_text("abc")
    with pytest.raises(DataError, match="at least 6 characters"):
        tasks.build("characters", file=str(tmp_path / "short.txt")).batch("train", 0, 1)


def test_the_contract_of_tasks_is_small():
    """What only training, reports or a few tasks need is in `undamped.lab.tasks.optional`."""
    assert len([name for name in dir(Task) if not name.startswith("_")]) <= 28
