"""Tasks of pictures: the published orders, layouts and noise."""

import numpy as np
import pytest
import torch
from canonical_files import cifar_arrays, everything

from undamped._base.errors import DataError, OptionError
from undamped.lab import tasks
from undamped.lab.data.published.formats.images import read_idx_folder
from undamped.lab.tasks.images import pixel_order

FIRST = {
    "exprnn": [319, 576, 323, 107, 355, 716],
    "nnrnn": [529, 511, 328],
    "unicornn": [327, 72, 48, 129],
    "cornn": [91, 97, 471, 426],
    "bit-reversal": [0, 512, 256, 768, 128, 640, 384, 64],
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    everything(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", FIRST)
def test_orders_start_as_in_the_published_programs(name):
    order = pixel_order(name)
    assert order[: len(FIRST[name])].tolist() == FIRST[name]
    assert sorted(order.tolist()) == list(range(784))


def test_the_global_random_numbers_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    pixel_order("unicornn")
    assert torch.rand(1) == expected


@pytest.mark.parametrize("images", ["mnist", "fashion-mnist"])
def test_pixels_come_row_after_row(data, images):
    task = tasks.build("smnist", images=images, validation=10)
    mnist = read_idx_folder(data / images)
    batch = task.batch("test", 0, 20)
    assert batch.inputs.dtype == torch.uint8 and batch.inputs.shape == (784, 20, 1)
    assert np.array_equal(batch.inputs[:, 3, 0].numpy(), mnist.test[3].ravel())
    assert batch.targets.tolist() == mnist.test_labels.tolist()


def test_permuted_pixels(data):
    plain = tasks.build("smnist", validation=10).batch("valid", 0, 5)
    permuted = tasks.build("psmnist", validation=10, permutation="exprnn").batch("valid", 0, 5)
    assert torch.equal(permuted.inputs, plain.inputs[pixel_order("exprnn")])
    assert torch.equal(permuted.targets, plain.targets)


def test_validation_is_held_out_of_training(data):
    task = tasks.build("smnist", validation=15)
    sizes = {split: task.sequences(split) for split in ("train", "valid", "test")}
    assert sizes == {"train": 25, "valid": 15, "test": 20}
    rows = torch.cat([task._data[split][0] for split in ("train", "valid")])
    assert len(rows.unique(dim=0)) == 40
    different = tasks.build("smnist", validation=15, split_seed=1)
    assert not torch.equal(different._data["valid"][0], task._data["valid"][0])
    with pytest.raises(OptionError, match="less than the 40 training images"):
        tasks.build("smnist", validation=40).batch("train", 0, 2)


def test_cifar_rows_and_the_one_noise(data):
    task = tasks.build("noise-cifar", validation=10)
    batch = task.batch("test", 0, 10)
    assert batch.inputs.shape == (1000, 10, 96)
    images, labels = cifar_arrays()["test_batch"]
    expected = torch.from_numpy(images).float().div(255)
    expected = expected.permute(0, 2, 1, 3).reshape(10, 32, 96).transpose(0, 1)
    assert torch.equal(batch.inputs[:32], expected)
    assert batch.targets.tolist() == labels
    noise = batch.inputs[32:]
    assert (noise == noise[:, :1]).all() and abs(noise.std() - 1) < 0.02
    different = tasks.build("noise-cifar", validation=10, seed=7).batch("train", 3, 4)
    assert torch.equal(different.inputs[32:], noise[:, :4]), "every pass, part and run has the same"
    fresh = tasks.build("noise-cifar", validation=10, noise_seed=1).batch("train", 3, 4)
    assert not torch.equal(fresh.inputs[32:], noise[:, :4])


@pytest.mark.parametrize(
    "name, needed", [("smnist", "mnist"), ("psmnist", "mnist"), ("noise-cifar", "cifar10")]
)
def test_missing_data_names_the_command(tmp_path, monkeypatch, name, needed):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path / "empty"))
    with pytest.raises(DataError, match=f"undamped data fetch {needed}"):
        tasks.build(name).batch("train", 0, 2)
