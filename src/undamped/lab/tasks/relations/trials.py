"""Trials: random objects, arranged by a rule.

A rule is a table of slots: which object of the trial is at each position. `aa` and `ab` are the
rules of same and different. A rule does not depend on which glyphs the objects are, so training
and test can have different ones.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import Default, NonNegativeInt
from undamped._base.packages import require
from undamped.lab.data.images import read_objects
from undamped.lab.tasks.relations.trivial import TRIALS, Rule, best_rule, distinct, ink
from undamped.lab.tasks.task import Baseline, Batch, Chance, GeneratedTask, Split, Task

GLYPHS = (
    "∀∃∅∆∉∌∏∑∓∙∭≤≦≨≳≷≸⊞⊪⊴⊵⋈⋒⋓⋕⋪⋫⋵⋸⋽⌂⌦⌧⍳"
    "⍺⍽⏏⏨━┏╤╦▀▂▅▇▉▌▐▒▓▖▗▚▞▣▲▷▼◅◈●◒◓◚◞◟◢"
    "◣◤◥◩◪◯◸◹◺◿☌☢☬☸♍♐⚄⚖⚢⚤⚦⚩⚳⛃✉✜✪✰✲✿➀➊"
)
"""Symbols of DejaVu Sans, the font that matplotlib ships. They were selected from U+2200 to U+27BF:
blank, nearly black and nearly white glyphs were left out, then glyphs closer than `LEAST_DISTANCE`
to an earlier one, and the remaining ones that are furthest from each other were used."""
LEAST_DISTANCE = 11.0
"""The least distance of two glyphs, in one channel; that of black and white is 32."""
SIDE = 32
"""Rows and columns of a glyph."""
MARGIN = 3
_FONT_SIZE = 208  # rendered large and averaged, so that hinting has no effect

DEJAVU = "dejavu"
"""The name of the set of glyphs that is rendered here."""
COLOURS = 100


@cache
def glyph_images(size: int = SIDE - 2 * MARGIN) -> Tensor:
    """Return the glyphs, black on white: (100, 3, 32, 32) with pixels between 0 and 1.

    Args:
        size: Rows or columns that a glyph covers, whichever is more.
    """
    require("glyphs", "PIL", "matplotlib")
    return torch.from_numpy(np.stack([_render(glyph, size) for glyph in GLYPHS]))


def _render(glyph: str, size: int) -> NDArray[np.float32]:
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont

    file = Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf"
    font = ImageFont.truetype(str(file), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
    x0, y0, x1, y1 = map(int, font.getbbox(glyph))
    large = Image.new("L", (x1 - x0, y1 - y0), 255)
    ImageDraw.Draw(large).text((-x0, -y0), glyph, font=font, fill=0)
    scale = size / max(large.size)
    fitted = tuple(max(1, round(side * scale)) for side in large.size)
    image = Image.new("L", (SIDE, SIDE), 255)
    corner = ((SIDE - fitted[0]) // 2, (SIDE - fitted[1]) // 2)
    image.paste(large.resize(fitted, Image.Resampling.BOX), corner)  # type: ignore[arg-type]
    grey = np.asarray(image, dtype=np.float32) / np.float32(255)
    return np.stack([grey, grey, grey])


Colours = Literal["none", "joint", "separated"]


class TrialOptions(TypedDict, total=False):
    """Options of all relation tasks."""

    holdout: Annotated[
        NonNegativeInt | None,
        Default(
            None,
            "How many objects (m) only the test has, by default as many as possible; with 0, "
            "training and test have the same.",
        ),
    ]
    glyphs: Annotated[
        str, Default(DEJAVU, '"dejavu", or a folder of images, or an .npz file with `pictures`.')
    ]
    seed: Annotated[
        NonNegativeInt, Default(0, "Seed of the data, and of which objects are held out.")
    ]


class ColouredTrialOptions(TrialOptions, total=False):
    """Options of relation tasks whose images may have coloured backgrounds."""

    colours: Annotated[
        Colours,
        Default(
            "none",
            "Whether every image has a background of a random colour that is irrelevant, in the "
            'same image ("joint") or in another image after it ("separated").',
        ),
    ]


class Trials(NamedTuple):
    """The objects of a batch.

    Args:
        objects: (time, batch) indices of the images.
        colours: (time, batch) indices of the colours, if there are any.
        targets: (batch,) the answers.
    """

    objects: Tensor
    colours: Tensor | None
    targets: Tensor


class TrialTask(GeneratedTask):
    """Trials of a few images, with one of a few answers that are equally likely."""

    input_kind = "pictures"
    held_out: ClassVar = {"valid": 960, "test": 4800}

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """Not used: `batch` draws the trials."""
        raise NotImplementedError

    @property
    def chance(self) -> Chance:
        """All answers are equally likely."""
        classes = self.output_size
        return Chance(math.log(classes), 1 / classes, f"one of {classes} at random")


class RelationTask(TrialTask):
    """A rule about a few objects; the test has objects that training does not have."""

    recipes: ClassVar = {
        "*": {"train": {"steps": 2000, "batch_size": 96, "learning_rate": 5e-4, "clip": None}}
    }
    in_distribution = "seen"
    rows: tuple[int, ...]
    """Images of each row of a trial."""
    answer_names: tuple[str, ...]
    fewest_seen: int
    """How many objects training has by default."""
    objects_in_trial: tuple[int, int]
    """Objects of a trial, in training and in the test."""
    new_relations: bool = False
    """Whether the test has other rules than training."""
    position_rules: Callable[[tuple[int, ...]], dict[str, Rule]] | None = None
    """Returns the trivial rules about positions from the rows of a trial."""

    @checked
    def __init__(self, **options: Unpack[TrialOptions]) -> None:
        self._set_up(options)

    def _set_up(self, options: Any) -> None:
        """Use complete options, after a subclass has set its attributes."""
        super().__init__(options["seed"])
        self.glyphs: str = options["glyphs"]
        self.colours: Colours = options.get("colours", "none")
        self.output_size = len(self.answer_names)
        self.segments = self.segments or (sum(self.rows),)
        self.familiar = False
        count = self.object_count
        self.holdout: int = options["holdout"]
        if self.holdout is None:
            self.holdout = max(0, count - self.fewest_seen)
        self._check_count(count)
        order = np.random.default_rng([self.seed, 1]).permutation(count)
        self.test_objects = torch.from_numpy(order[: self.holdout] if self.holdout else order)
        self.train_objects = torch.from_numpy(order[self.holdout :])
        _, channels, height, width = self.images.shape
        self.picture_shape = (channels, height, width)
        self.input_size = channels * height * width
        self._object_rows = self.rows
        if self.colours == "separated":
            self.rows = tuple(2 * row for row in self.rows)
            self.segments = tuple(2 * length for length in self.segments)

    @property
    def object_count(self) -> int:
        """The number of objects."""
        return len(self.images)

    @cached_property
    def images(self) -> Tensor:
        """The objects: (objects, 3, height, width) with pixels between 0 and 1."""
        if self.glyphs == DEJAVU:
            return glyph_images()
        return torch.from_numpy(read_objects(self.glyphs))

    def _check_count(self, count: int) -> None:
        train, test = self.objects_in_trial
        needed = test if self.holdout else max(train, test)
        most = count - train
        if self.holdout <= most and (self.holdout or count) >= needed:
            return
        if count < train + test and count < needed:
            raise OptionError(
                f"{self.glyphs} has {count} objects, but a trial has {needed}. Add images."
            )
        raise OptionError(
            f"holdout must be 0, or from {test} to {most} of the {count} objects, since a trial of "
            f"training has {train} and one of the test {test}; got {self.holdout}."
        )

    @abstractmethod
    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return slots (size, time) and answers (size,).

        Args:
            size: How many trials.
            new: Whether the rules are those of the test.
            generator: The random number generator.
        """

    def trials(self, split: Split, index: int, size: int) -> Trials:
        """Return the trials of batch `index` of a split.

        Args:
            split: The split.
            index: The index of the batch.
            size: How many trials.
        """
        new = split == "test" and not self.familiar

        def draw(block: int, count: int) -> Trials:
            return self.draw_trials(count, new, self.generator(split, block))

        if split == "train":
            return draw(index, size)
        return Trials(*self.cut_from_blocks(draw, split, index, size, axes=(1, 1, 0)))

    def draw_trials(self, size: int, new: bool, generator: torch.Generator) -> Trials:
        """Draw trials with rules and objects of the test or of training.

        Args:
            size: How many trials.
            new: Whether they are those of the test.
            generator: The random number generator.
        """
        pool = self.test_objects if new else self.train_objects
        slots, targets = self.draw_slots(size, new, generator)
        count = self.objects_in_trial[new]
        objects = pool[without_replacement(size, len(pool), count, generator)].gather(1, slots).T
        if self.colours == "none":
            return Trials(objects, None, targets)
        colours = torch.randint(COLOURS, objects.shape, generator=generator)
        return Trials(objects, colours, targets)

    def batch(self, split: Split, index: int, size: int) -> Batch:
        """Return batch `index` as indices of its distinct images."""
        objects, colours, targets = self.trials(split, index, size)
        if colours is None:
            return Batch(objects.contiguous(), targets, distinct=self.images)
        if self.colours == "separated":
            images = torch.stack([objects, colours + len(self.images)], 1).flatten(0, 1)
            return Batch(images, targets, distinct=self._images_and_backgrounds)
        pairs, images = torch.unique(objects * COLOURS + colours, return_inverse=True)
        backgrounds = colour_table()[pairs % COLOURS, :, None, None]
        return Batch(images, targets, distinct=self.images[pairs // COLOURS] * backgrounds)

    @cached_property
    def _images_and_backgrounds(self) -> Tensor:
        plain = colour_table()[:, :, None, None].expand(-1, *self.images.shape[1:])
        return torch.cat([self.images, plain])

    def attributes(self, split: Split, index: int, size: int) -> dict[str, Tensor]:
        """Return shape and colour of the images of a batch, (time, batch) each."""
        trials = self.trials(split, index, size)
        if trials.colours is None:
            return {"shape": trials.objects}
        if self.colours == "separated":
            return {}
        return {"shape": trials.objects, "colour": trials.colours}

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the relation, by what they use."""
        by_position = {} if self.position_rules is None else self.position_rules(self._object_rows)
        return {"the number of distinct images": distinct, **ink(self.images), **by_position}

    @property
    def baseline(self) -> Baseline | None:
        """The best trivial rule, fitted on training, on the trials of the test."""
        train = self.draw_trials(TRIALS, False, self.generator("train", 0))
        test = self.trials("test", 0, self.held_out["test"])
        return best_rule(
            self.trivial_rules(), (train.objects, train.targets), (test.objects, test.targets)
        )

    def test_tasks(self) -> dict[str, Task]:
        """Return the test with new objects and rules, and one with those of training."""
        if not self.holdout and not self.new_relations:
            return {"test": self}
        return {"test": self, "seen": self.as_in_training()}

    def as_in_training(self) -> Self:
        """Return the same task, tested on objects and rules of training."""
        task = copy.copy(self)
        task.familiar = True
        return task

    def harder(self) -> dict[str, Any]:
        """Return coloured backgrounds."""
        return {"colours": "joint"} if self.colours == "none" else {}


class ColouredRelationTask(RelationTask):
    """A relation task whose images may have coloured backgrounds."""

    @checked
    def __init__(self, **options: Unpack[ColouredTrialOptions]) -> None:
        self._set_up(options)


def without_replacement(size: int, count: int, columns: int, generator: torch.Generator) -> Tensor:
    """Return integers below `count`, (size, columns), that differ within each row.

    Args:
        size: How many rows.
        count: The upper bound.
        columns: How many are drawn for each row.
        generator: The random number generator.
    """
    return torch.rand(size, count, generator=generator).topk(columns, dim=1).indices


def balanced(size: int, kinds: int, generator: torch.Generator) -> Tensor:
    """Return integers below `kinds`, (size,), equally many of each, in random order."""
    return (torch.randperm(size, generator=generator)) % kinds


def slots_of(words: Sequence[str]) -> Tensor:
    """Return rules written as letters, "aab", as a table of slots (rules, time)."""
    return torch.tensor([[ord(letter) - ord("a") for letter in word] for word in words])


def colour_table() -> Tensor:
    """Return the colours of backgrounds, (100, 3): those of the authors' program."""
    colours = np.random.RandomState(0).uniform(size=(COLOURS, 3))
    return torch.from_numpy(colours.astype(np.float32))
