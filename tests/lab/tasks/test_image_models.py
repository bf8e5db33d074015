"""Pictures as wholes: the tasks, the convolutional models, and their comparison."""

import json

import numpy as np
import pytest
import torch
from canonical_files import cifar10, mnist, record

from undamped._base.errors import DataError, OptionError, ShapeError
from undamped._base.registry import models
from undamped.lab.papers import mnist_odes
from undamped.lab.tasks import CIFAR10Images, MNISTImages
from undamped.models.continuous.images import ConvHBNODE, ConvolutionalField, ConvolutionalStart
from undamped.ode.fields.heavy_ball import HeavyBallField


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    mnist(tmp_path / "mnist", train=60, test=25)
    cifar10(tmp_path / "cifar10")
    for folder in tmp_path.iterdir():
        record(folder)
    return tmp_path


def test_mnist_images(data):
    task = MNISTImages(validation=20, training=30, pool=2)
    assert [task.sequences(part) for part in ("train", "valid", "test")] == [30, 20, 25]
    batch = task.batch("train", 0, 8)
    assert batch.inputs.shape == (8, 196) and batch.inputs.dtype == torch.float32
    assert float(batch.inputs.min()) >= 0 and float(batch.inputs.max()) <= 1
    plain = MNISTImages(validation=20).batch("test", 0, 4)
    small = MNISTImages(validation=20, pool=2).batch("test", 0, 4)
    averaged = plain.inputs.view(4, 14, 2, 14, 2).mean((2, 4)).flatten(1)
    torch.testing.assert_close(small.inputs, averaged)
    assert 0.1 <= task.chance.metric < 0.2
    with pytest.raises(OptionError, match="divisor of 28"):
        MNISTImages(pool=5)


@pytest.mark.slow
def test_cifar_images(data):
    task = CIFAR10Images(validation=10)
    assert task.sequences("train") == 40 and task.batch("test", 0, 3).inputs.shape == (3, 3072)
    model = models.build(
        "conv-node", input_size=3072, output_size=10, colours=3, hidden_size=2, tolerance=1e-1
    )
    assert model(task.batch("test", 0, 3).inputs).shape == (3, 10)


def test_pictures_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    with pytest.raises(DataError, match="undamped data fetch mnist"):
        MNISTImages().batch("train", 0, 4)


def test_the_field_is_three_convolutions_that_see_the_time():
    torch.manual_seed(0)
    field = ConvolutionalField(2, 3).double()
    y = torch.randn(4, 2, 5, 5, dtype=torch.float64)
    a, b, c = field.layers
    kernels = [layer.weight.detach().numpy() for layer in (a, b, c)]
    biases = [layer.bias.detach().numpy()[:, None, None] for layer in (a, b, c)]
    time = np.full((1, 5, 5), 0.3)
    for sample, output in zip(y.numpy(), field(0.3, y).detach().numpy(), strict=True):
        inputs = np.concatenate((sample, time))
        hidden = np.maximum(np.einsum("oc,cxy->oxy", kernels[0][:, :, 0, 0], inputs) + biases[0], 0)
        padded = np.pad(np.concatenate((hidden, time)), ((0, 0), (1, 1), (1, 1)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
        hidden = np.maximum(np.einsum("ocij,cxyij->oxy", kernels[1], windows) + biases[1], 0)
        inputs = np.concatenate((hidden, time))
        expected = np.einsum("oc,cxy->oxy", kernels[2][:, :, 0, 0], inputs) + biases[2]
        np.testing.assert_allclose(output, expected, atol=1e-12)


@pytest.mark.parametrize("general", [False, True])
def test_a_heavy_ball_of_pictures_is_one_of_vectors_pixel_by_pixel(general):
    class Force(torch.nn.Module):
        def forward(self, t, h):
            return torch.sin(h + t)

    field_of_images = HeavyBallField(Force(), general=general, dim=1)
    vectors = HeavyBallField(Force(), general=general)
    state = torch.randn(3, 4, 2, 2)
    rows = state.permute(0, 2, 3, 1)
    expected = vectors(0.2, rows).permute(0, 3, 1, 2)
    torch.testing.assert_close(field_of_images(0.2, state), expected)


def test_models_of_pictures():
    x = torch.rand(2, 16)
    for name, more in (
        ("conv-node", {"augmented_channels": 2}),
        ("conv-sonode", {"channels": 2}),
        ("conv-hbnode", {"channels": 2, "general": True}),
    ):
        model = models.build(name, input_size=16, output_size=3, hidden_size=4, **more)
        model(x).sum().backward()
        assert model.evaluations > 0 and model.evaluations_backward > 0
        assert all(p.grad is not None for p in model.parameters() if p.requires_grad), name
    initial = ConvolutionalStart(1, 3, 4)(torch.rand(2, 1, 4, 4))
    assert initial.shape == (2, 6, 4, 4)
    with pytest.raises(ShapeError, match="square image"):
        models.build("conv-node", input_size=15, output_size=3)
    with pytest.raises(ShapeError, match="a position starts with the image"):
        ConvHBNODE(48, 3, colours=3, channels=2)


def test_the_comparison(data, monkeypatch):
    monkeypatch.setattr(
        mnist_odes,
        "MNISTImages",
        lambda **more: MNISTImages(validation=20, **more),
    )
    names = []
    result = mnist_odes.run(
        epochs=2, images=16, test_images=10, width=0.05, pool=7, batch=8, tolerance=1e-2,
        progress=names.append,
    )  # fmt: skip
    assert names == list(mnist_odes.MODELS)
    for run in result.records:
        assert len(run.forward) == len(run.backward) == len(run.accuracy) == 2
        assert min(run.forward) > 0 and min(run.backward) > 0 and 0 <= run.accuracy[-1] <= 1
    assert "81 / 197" in result.markdown() and json.dumps(result.to_dict())
    assert list(result.figures()) == ["mnist_odes"]
    with pytest.raises(OptionError, match="the 16 training images"):
        mnist_odes.run(images=16, batch=64)
