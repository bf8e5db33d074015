"""Trials about relations: every answer follows from the pictures, and the test has new ones."""

import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from undamped._base.errors import DataError, OptionError
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.games.objects import COLOURS, family, polyominoes
from undamped.lab.tasks.relations.trials import GLYPHS, LEAST_DISTANCE, glyph_images

PLAIN = {
    "same-different": (2, 2, 98),
    "rmts": (6, 2, 95),
    "distribution-of-n": (9, 4, 95),
    "identity-rules": (9, 4, 95),
    "same-different-6": (6, 2, 98),
    "rmts-3": (9, 2, 94),
    "identity-rules-4": (13, 6, 94),
}


def pattern(objects):
    """Write a row as letters in the order in which its objects come: ABA."""
    distinct = []
    for item in objects:
        if item not in distinct:
            distinct.append(item)
    return "".join(chr(ord("A") + distinct.index(item)) for item in objects)


def completing(row, start, choices):
    """Return which choices make the second row follow the pattern of the first."""
    return [k for k, c in enumerate(choices) if pattern([*start, c]) == pattern(row)]


def answers(name, trial):
    """Return the answers that a person who sees the trial would accept."""
    trial = list(trial)
    if name == "same-different":
        return [int(trial[0] != trial[1])]
    if name == "same-different-6":
        return [int(trial[:3] != trial[3:])]
    if name in ("rmts", "rmts-3"):
        size = len(trial) // 3
        source, *targets = (pattern(trial[k * size : (k + 1) * size]) for k in range(3))
        return [k for k, target in enumerate(targets) if target == source]
    if name == "distribution-of-n":
        n = len(trial) // 3
        (missing,) = set(trial[:n]) - set(trial[n : 2 * n - 1])
        return [k for k, c in enumerate(trial[2 * n - 1 :]) if c == missing]
    row = 3 if name == "identity-rules" else 4
    return completing(trial[:row], trial[row : 2 * row - 1], trial[2 * row - 1 :])


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", PLAIN)
def test_answers_follow_from_what_is_shown(name, split):
    task = tasks.build(name)
    trials = task.trials(split, 0, 96)  # a block of held-out trials
    for trial, answer in zip(trials.objects.T.tolist(), trials.targets.tolist(), strict=True):
        # A new object would also complete a pattern like ABC; in these rules only one fits.
        assert answers(name, trial) == [answer], trial
    counts = torch.bincount(trials.targets, minlength=task.output_size)
    assert (counts > 0).all()
    if task.output_size == 2:
        assert counts[0] == counts[1]


@pytest.mark.parametrize("name", PLAIN)
def test_objects_of_the_test_are_new(name):
    steps, classes, holdout = PLAIN[name]
    task = tasks.build(name)
    assert (task.task_shape.length, task.output_size, task.holdout) == (steps, classes, holdout)
    training, new = (
        set(task.trials(s, 0, 200).objects.flatten().tolist()) for s in ("train", "test")
    )
    assert not training & new and len(training) == 100 - holdout
    valid = set(task.trials("valid", 0, 200).objects.flatten().tolist())
    familiar = set(task.test_tasks()["seen"].trials("test", 0, 200).objects.flatten().tolist())
    assert valid <= training and familiar <= training
    everything = tasks.build(name, holdout=0)
    assert (
        set(everything.train_objects.tolist())
        == set(everything.test_objects.tolist())
        == set(range(100))
    )


RULES = {
    ("same-different-6", "train"): {"AAA", "ABA", "ABB"},
    ("rmts-3", "train"): {"AAA", "ABA", "ABB"},
    ("rmts-3", "test"): {"AAB", "ABC"},
    ("identity-rules", "train"): {"AAA", "ABA", "ABB"},
    ("identity-rules-4", "train"): {"AAAA", "ABAA", "AABA", "ABBB", "ABBA", "ABAB", "AABB"},
    ("identity-rules-4", "test"): {"ABCA", "ABCB", "ABCC"},
}


@pytest.mark.parametrize(("name", "split"), RULES)
def test_rules_of_training_and_test(name, split):
    task = tasks.build(name)
    row = task.rows[0]
    trials = task.trials(split, 0, 300).objects.T.tolist()
    assert {pattern(trial[:row]) for trial in trials} == RULES[name, split]
    familiar = task.as_in_training().trials("test", 0, 300).objects.T.tolist()
    assert {pattern(trial[:row]) for trial in familiar} == RULES.get((name, "train"))


def test_a_triplet_of_the_test_has_a_pair_first():
    trials = tasks.build("same-different-6").trials("test", 0, 120).objects.T.tolist()
    assert all("AAB" in (pattern(t[:3]), pattern(t[3:])) for t in trials)


@pytest.mark.parametrize(
    ("variant", "train", "test"),
    [
        ("missing", "AAAA AABA ABBB ABBA AABB", "ABCA ABCB ABCC"),
        ("flipped", "ABCA ABCB ABCC", "AAAA ABAA AABA ABBB ABBA ABAB AABB"),
        ("flipped-missing", "ABCB ABCC", "AAAA ABAA AABA ABBB ABBA ABAB AABB"),
    ],
)
def test_variants_of_identity_rules(variant, train, test):
    task = tasks.build("identity-rules-4", variant=variant)
    for split, words in (("train", train), ("test", test)):
        trials = task.trials(split, 0, 300).objects.T.tolist()
        assert {pattern(trial[:4]) for trial in trials} == set(words.split())


@pytest.mark.parametrize("way", ["restricted", "restricted-as-coded"])
def test_restricted_permutations_are_not_those_of_the_test(way):
    task = tasks.build("distribution-of-n", n=10, permutations=way)
    assert task.holdout == 89 and task.output_size == 11 and sum(task.rows) == 30
    fixed = {}
    for split in ("train", "test"):
        trials = task.trials(split, 0, 200).objects.T.tolist()
        for trial, answer in zip(trials, task.trials(split, 0, 200).targets, strict=True):
            assert answers("distribution-of-n", trial) == [answer]
        fixed[split] = {set(t[10:17]) == set(t[:7]) for t in trials}
    assert fixed == ({"train": {True}, "test": {False}} if way == "restricted" else
                    {"train": {False}, "test": {True}})  # fmt: skip


def test_a_colour_is_on_the_ground_or_behind_the_picture():
    task = tasks.build("rmts", colours="joint")
    trials, batch = task.trials("train", 0, 20), task.batch("train", 0, 20)
    colours = np.random.RandomState(0).uniform(size=(100, 3)).astype("float32")
    images = batch.expanded().inputs
    for t, b in ((0, 0), (3, 7), (5, 19)):
        ground = torch.from_numpy(colours[trials.colours[t, b]])[:, None, None]
        expected = glyph_images()[trials.objects[t, b]] * ground
        torch.testing.assert_close(images[t, b], expected)
    assert len(batch.distinct) == len(torch.unique(trials.objects * 100 + trials.colours))
    separated = tasks.build("same-different", colours="separated")
    trials, batch = separated.trials("test", 0, 20), separated.batch("test", 0, 20)
    assert batch.inputs.shape == (4, 20) and separated.task_shape.length == 4
    images = batch.expanded().inputs
    torch.testing.assert_close(images[::2], glyph_images()[trials.objects])
    assert (images[1::2] == images[1::2, :, :, :1, :1]).all()
    assert set(task.attributes("train", 0, 20)) == {"shape", "colour"}


@pytest.mark.parametrize("transitive", [False, True])
def test_the_larger_one_is_larger(transitive):
    task = tasks.build("comparison", transitive=transitive)
    sizes = {}
    for split in ("train", "test"):
        batch = task.batch(split, 0, 60)
        ink = (1 - batch.expanded().inputs).sum((2, 3, 4))
        assert torch.equal(ink.argmax(0), batch.targets)
        attributes = task.attributes(split, 0, 60)
        assert torch.equal(attributes["shape"][0], attributes["shape"][1])
        sizes[split] = set(map(tuple, attributes["size"].T.tolist()))
    adjacent = {(1, 2), (2, 1), (0, 1), (1, 0)}
    assert sizes == {
        "train": adjacent if transitive else {(0, 2), (2, 0)},
        "test": {(0, 2), (2, 0)},
    }


def test_glyphs_are_a_hundred_and_no_two_alike():
    assert len(set(GLYPHS)) == 100
    images = glyph_images()
    assert images.shape == (100, 3, 32, 32) and 0 <= images.min() < images.max() <= 1
    distances = torch.cdist(images[:, 0].flatten(1), images[:, 0].flatten(1))
    assert distances.fill_diagonal_(99).min() >= LEAST_DISTANCE - 0.3  # another FreeType
    light = images.mean((1, 2, 3))
    assert light.min() > 0.3 and light.max() < 0.95


def test_objects_of_games_are_those_that_fit():
    for size, masks in ((5, 37), (6, 48)):
        shapes = polyominoes(size)
        assert len(shapes) == 8 and sum(map(len, shapes)) == masks
        assert all(mask.sum() == size for kind in shapes for mask in kind)
        assert len({m.tobytes() for kind in shapes for m in kind}) == masks
    assert len(COLOURS) == 25
    assert len(family("stripes").images) == 1 + 25 * 25
    images = family("pentominoes").images
    assert not images[0].any() and not images[:, :, 0].any() and not images[:, :, 10:].any()
    assert len(torch.unique(images.flatten(1), dim=0)) == len(images)


def judged(game, name, grid):
    """Return the answer that a person who sees the grid would give."""
    first, second = (a.tolist() for a in family(name).attributes(torch.tensor(grid)))
    occupied = [k for k in range(9) if grid[k]]
    if game in ("same", "colour-shape"):
        a, b = occupied
        alike = (first[a] == first[b], second[a] == second[b])
        kinds = [(True, True), (True, False), (False, True), (False, False)]
        return int(all(alike)) if game == "same" else kinds.index(alike)
    if game == "between":
        a, b, c = occupied
        lines = "012 345 678 036 147 258 048 246"
        return int(f"{a}{b}{c}" in lines and grid[a] == grid[c] != grid[b])
    if game in ("occurs", "xoccurs"):
        (above,), below = [k for k in occupied if k < 3], [grid[k] for k in (6, 7, 8)]
        count = below.count(grid[above])
        others = [item for item in below if item != grid[above]]
        return int(count > 0 if game == "occurs" else count == 1 and len(set(others)) == 2)
    if game == "row-matching":
        return int(pattern(grid[:3]) == pattern(grid[6:]))
    light = family(name).luminance.flatten()
    dark, bright = sorted(occupied, key=lambda k: light[grid[k] - 1])
    assert light[grid[dark] - 1] < light[grid[bright] - 1]
    return int(dark % 3 < bright % 3 or (dark % 3 == bright % 3 and dark > bright))


@pytest.mark.parametrize(
    "game",
    ["same", "between", "occurs", "xoccurs", "row-matching", "colour-shape", "left-of"],
)
def test_games_are_won_by_who_looks(game):
    task = tasks.build("relational-games", game=game)
    parts = task.test_tasks()
    assert ("stripes" in parts) == (game not in ("colour-shape", "left-of"))
    for name, part in parts.items():
        grids, targets = part.trials("test", 0, 96)  # a block, in which answers are balanced
        for grid, answer in zip(grids.tolist(), targets.tolist(), strict=True):
            assert judged(game, name, grid) == answer, (name, grid)
        counts = torch.bincount(targets, minlength=task.output_size)
        assert counts.min() >= (20 if game == "left-of" else 96 // task.output_size)
    grids, targets = task.trials("train", 0, 400)
    assert [judged(game, "pentominoes", g) for g in grids.tolist()] == targets.tolist()
    if game == "between":
        lines = [g for g, t in zip(grids.tolist(), targets, strict=True) if t]
        middle = sum(not any(g[:3]) and not any(g[6:]) for g in lines)
        assert 0.1 < middle / len(lines) < 0.35  # two ninths


def write_pictures(folder, count, size=(10, 9), seed=0):
    rng = np.random.default_rng(seed)
    folder.mkdir(exist_ok=True)
    for k in range(count):
        pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"object {k}.png")


def test_glyphs_of_ones_own(tmp_path):
    write_pictures(tmp_path / "own", 12)
    task = tasks.build("rmts", glyphs=str(tmp_path / "own"))
    assert task.holdout == 7 and task.picture_shape == (3, 9, 10)
    batch = task.batch("test", 0, 5)
    with Image.open(tmp_path / "own" / "object 10.png") as image:
        expected = torch.from_numpy(np.asarray(image).transpose(2, 0, 1) / 255).float()
    torch.testing.assert_close(batch.distinct[10], expected)
    grey = np.random.default_rng(1).random((8, 11, 11))
    np.savez(tmp_path / "own.npz", pictures=grey)
    small = tasks.build("same-different", glyphs=str(tmp_path / "own.npz"), holdout=3)
    torch.testing.assert_close(small.images[2, 1], torch.from_numpy(grey[2]).float())
    large = tasks.build("comparison", glyphs=str(tmp_path / "own"))
    assert large.object_count == 12 and len(large.images) == 36


@pytest.mark.parametrize(
    ("prepare", "options", "message"),
    [
        (lambda f: write_pictures(f, 3), {"holdout": 9}, "holdout must be 0, or from 2 to 1 of"),
        (lambda f: write_pictures(f, 1), {}, "has 1 objects, but a trial has 2"),
        (lambda f: f.mkdir(), {}, "own has no images"),
        (lambda f: None, {}, "No such file: "),
        (
            lambda f: (write_pictures(f, 4), shutil.copy(f / "object 2.png", f / "twin.png")),
            {},
            "'object 2.png' and 'twin.png' are the same",
        ),
        (
            lambda f: (write_pictures(f, 4), Image.new("RGB", (7, 7)).save(f / "small.png")),
            {},
            "small.png has 7 × 7 pixels, but 'object 0.png' has 10 × 9",
        ),
        (
            lambda f: (write_pictures(f, 4), (f / "text.png").write_text("no")),
            {},
            "text.png cannot be read as an image",
        ),
    ],
)  # fmt: skip
def test_bad_glyphs_are_one_sentence(prepare, options, message, tmp_path):
    prepare(tmp_path / "own")
    with pytest.raises((OptionError, DataError), match=message) as caught:
        tasks.build("same-different", glyphs=str(tmp_path / "own"), **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": np.full((5, 9, 9), np.nan)}, "image 0 has a pixel that is nan"),
        ({"pictures": np.full((5, 9, 9), 2.0)}, "pixels between 0 and 1, or bytes, got numbers"),
        ({"pictures": np.zeros((5, 9, 9), int)}, "must be bytes .uint8., or floating-point"),
        ({"pictures": np.zeros((5, 9))}, r"must have the shape \(images, height, width\) or"),
        ({"images": np.zeros((5, 9, 9))}, "has no array 'pictures', only images"),
        ({"pictures": np.array([{}, {}])}, "is not an .npz file of plain arrays"),
    ],
)
def test_bad_arrays_are_one_sentence(arrays, message, tmp_path):
    np.savez(tmp_path / "own.npz", **arrays)
    with pytest.raises(DataError, match=message):
        tasks.build("same-different", glyphs=str(tmp_path / "own.npz"))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("rmts", {"holdout": 96}, "holdout must be 0, or from 5 to 95 of the 100 objects, .*96"),
        (
            "rmts",
            {"holdout": 101},
            "holdout must be 0, or from 5 to 95 of the 100 objects, .*101",
        ),
        ("rmts-3", {"holdout": 3}, "and one of the test 8; got 3"),
        ("distribution-of-n", {"permutations": "restricted"}, "n must be > 3 with"),
        ("distribution-of-n", {"n": 100}, "but a trial has 101"),
    ],
)
def test_more_than_there_is_cannot_be_held_out(name, options, message):
    with pytest.raises(OptionError, match=message):
        tasks.build(name, **options)
