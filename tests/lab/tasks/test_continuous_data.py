"""Data generators: shapes, geometry, seeds."""

import pytest
import torch

from undamped._base.errors import UnknownNameError
from undamped.lab import tasks
from undamped.lab.tasks.points import (
    DENSITIES,
    SHAPES,
    annuli,
    density,
    shape_points,
    spirals,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_annuli_are_a_ball_in_a_shell(dimension):
    x, y = annuli(400, dimension, seeded())
    radius = torch.linalg.vector_norm(x, dim=1)
    assert x.shape == (400, dimension)
    assert float(radius[y == 0].max()) <= 0.5 + 1e-6
    assert float(radius[y == 1].min()) >= 1 - 1e-6 and float(radius[y == 1].max()) <= 1.5 + 1e-6
    # filled evenly: half of a ball's volume lies within 2^(−1/d) of its radius
    inside = (radius[y == 0] < 0.5 * 0.5 ** (1 / dimension)).float().mean()
    assert abs(float(inside) - 0.5) < 0.12


def test_the_same_seed_gives_the_same_data():
    for make in (
        lambda g: annuli(20, 2, g)[0],
        lambda g: spirals(20, g)[0],
        *[lambda g, name=name: shape_points(name, 20, g) for name in SHAPES],
        *[lambda g, name=name: density(name, 20, g) for name in DENSITIES],
    ):
        assert torch.equal(make(seeded(3)), make(seeded(3)))
        assert not torch.equal(make(seeded(3)), make(seeded(4)))


@pytest.mark.parametrize("name", DENSITIES)
def test_densities_lie_in_the_picture(name):
    points = density(name, 2000, seeded())
    assert points.shape == (2000, 2) and float(points.abs().max()) < 4
    assert float(points.std()) > 0.5


def test_checkerboard_has_no_black_squares():
    x, y = density("checkerboard", 4000, seeded()).unbind(1)
    assert bool(((torch.floor(x) + torch.floor(y)) % 2 == 0).all())


def test_spirals_and_shapes():
    x, y = spirals(100, seeded(), noise=0.0)
    assert x.shape == (100, 2) and len(x[y == 0]) == 50
    for name in SHAPES:
        points = shape_points(name, 50, seeded())
        assert points.shape == (50, 3) and points.abs().max() < 1.1
    sphere = torch.linalg.vector_norm(shape_points("sphere", 50, seeded()), dim=1)
    assert torch.allclose(sphere, torch.ones(50), atol=1e-5)


def test_unknown_densities_are_refused():
    with pytest.raises(UnknownNameError, match="moons"):
        density("moon", 3, seeded())


def test_breast_cancer_is_split_by_class_and_scaled_by_what_is_learnt_from():
    task = tasks.build("breast-cancer", split_seed=3)
    parts = {split: task.batch(split, 0, 1000) for split in ("train", "valid", "test")}
    assert [len(part.targets) for part in parts.values()] == [341, 85, 143]
    fractions = [part.targets.double().mean().item() for part in parts.values()]
    assert max(fractions) - min(fractions) < 0.01 and task.chance.metric == fractions[-1]
    x = parts["train"].inputs.double()
    assert x.mean(0).abs().max() < 1e-6 and (x.std(0, correction=0) - 1).abs().max() < 1e-5
    # The wider sample is the malignant one: classes are those of scikit-learn.
    wide = [x[parts["train"].targets == k, 0].mean() for k in (0, 1)]
    assert task.answer_names[0] == "malignant" and wide[0] > wide[1]
