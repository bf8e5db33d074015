"""Trials: objects chosen at random, put into the places that a rule gives them.

A rule is a table of slots: row by row which object of the trial stands where. `aa` and `ab` are
the rules of same and different. Which glyphs the objects are has nothing to do with it, so
training and test can have different ones.
"""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped.lab.data.pictures.objects import read_objects
from undamped.lab.tasks.held_out import cut_from_blocks
from undamped.lab.tasks.relations.glyphs import glyph_pictures
from undamped.lab.tasks.relations.trivial import TRIALS, Rule, best_rule, distinct, ink
from undamped.lab.tasks.task import Baseline, Batch, Chance, GeneratedTask, Split, Task

Colours = Literal["none", "joint", "separated"]
OURS = "dejavu"
"""What the set of glyphs is called that is rendered here."""
COLOURS = 100


class Trials(NamedTuple):
    """What a batch shows, before it is pictures.

    Args:
        objects: (time, batch) numbers of the pictures.
        colours: (time, batch) numbers of the colours, if there are any.
        targets: (batch,) the answers.
    """

    objects: Tensor
    colours: Tensor | None
    targets: Tensor


class RelationTask(GeneratedTask):
    """A rule about a few objects; the objects of the test were never seen in training.

    Args:
        holdout: How many of the objects (m) are kept for the test; if none is given, as many as
            possible; with 0, training and test have the same.
        glyphs: "dejavu", or a folder of pictures, or an .npz file with an array `pictures`.
        colours: Whether the ground of every picture has a random colour that means nothing, and
            whether it is in the same picture or in one of its own behind it.
        seed: Where the random numbers of the data come from, and which objects are kept.
    """

    input_kind = "pictures"
    held_out: ClassVar = {"valid": 960, "test": 4800}
    recipes: ClassVar = {
        "*": {"train": {"steps": 2000, "batch_size": 96, "learning_rate": 5e-4, "clip": None}}
    }
    seen_part = "seen"
    fewest_seen: int
    """How many objects training keeps where nobody says how many are held out."""
    objects_in_trial: tuple[int, int]
    """Objects of a trial, in training and in the test."""
    new_relations: bool = False
    """Whether the rules of the test are not those of training."""

    def __init__(self, holdout: int | None, glyphs: str, colours: Colours, seed: int) -> None:
        super().__init__(seed)
        self.glyphs, self.colours = glyphs, colours
        self.familiar = False
        count = self.object_count
        self.holdout = max(0, count - self.fewest_seen) if holdout is None else holdout
        self._refuse_too_few(count)
        order = np.random.default_rng([seed, 1]).permutation(count)
        self.unseen = torch.from_numpy(order[: self.holdout] if self.holdout else order)
        self.seen = torch.from_numpy(order[self.holdout :])
        _, channels, height, width = self.pictures.shape
        self.picture_shape = (channels, height, width)
        self.input_size = channels * height * width
        if colours == "separated":
            self.rows = tuple(2 * row for row in self.rows)
            self.segments = tuple(2 * part for part in self.segments)

    @property
    def object_count(self) -> int:
        """How many objects there are to choose from."""
        return len(self.pictures)

    @cached_property
    def pictures(self) -> Tensor:
        """The objects: (objects, 3, height, width) with pixels between 0 and 1."""
        if self.glyphs == OURS:
            return glyph_pictures()
        return torch.from_numpy(read_objects(self.glyphs))

    def _refuse_too_few(self, count: int) -> None:
        train, test = self.objects_in_trial
        needed = test if self.holdout else max(train, test)
        most = count - train
        if not (self.holdout <= most and (self.holdout or count) >= needed):
            few = count < train + test and count < needed
            raise OptionError(
                explain(
                    f"{self.glyphs}, objects" if few else "holdout",
                    expected=f"at least {needed}, for a trial has as many"
                    if few
                    else f"0, or from {test} to {most} of the {count} objects, since a trial of "
                    f"training has {train} and one of the test {test}",
                    got=count if few else self.holdout,
                    remedy="Add pictures." if few else "Choose a number within.",
                )
            )

    @abstractmethod
    def trials(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return slots (size, time) and answers (size,).

        Args:
            size: How many trials.
            new: Whether the rules are those of the test.
            generator: Where the random numbers come from.
        """

    def shown(self, split: Split, number: int, size: int) -> Trials:
        """Return what batch `number` of a split shows.

        Args:
            split: The split.
            number: The number of the batch.
            size: How many trials.
        """
        new = split == "test" and not self.familiar

        def draw(drawn: int, count: int) -> Trials:
            return self.drawn(count, new, self.generator(split, drawn))

        if split == "train":
            return draw(number, size)
        total = self.held_out[split]
        parts = cut_from_blocks(draw, number, size, total=total, axes=(1, 1, 0))
        return Trials(*parts)  # type: ignore[arg-type]

    def drawn(self, size: int, new: bool, generator: torch.Generator) -> Trials:
        """Draw trials, of the rules and the objects of the test or of those of training.

        Args:
            size: How many trials.
            new: Whether they are those of the test.
            generator: Where the random numbers come from.
        """
        known = self.unseen if new else self.seen
        slots, targets = self.trials(size, new, generator)
        drawn = known[without_replacement(size, len(known), self.objects_in_trial[new], generator)]
        objects = drawn.gather(1, slots).T
        if self.colours == "none":
            return Trials(objects, None, targets)
        colours = torch.randint(COLOURS, objects.shape, generator=generator)
        return Trials(objects, colours, targets)

    def batch(self, split: Split, number: int, size: int) -> Batch:
        """Make the trials of batch `number`; each of their pictures is there once."""
        objects, colours, targets = self.shown(split, number, size)
        if colours is None:
            return Batch(objects.contiguous(), targets, distinct=self.pictures)
        if self.colours == "separated":
            numbers = torch.stack([objects, colours + len(self.pictures)], 1).flatten(0, 1)
            return Batch(numbers, targets, distinct=self._pictures_and_grounds)
        pairs, numbers = torch.unique(objects * COLOURS + colours, return_inverse=True)
        grounds = colour_table()[pairs % COLOURS, :, None, None]
        return Batch(numbers, targets, distinct=self.pictures[pairs // COLOURS] * grounds)

    @cached_property
    def _pictures_and_grounds(self) -> Tensor:
        plain = colour_table()[:, :, None, None].expand(-1, *self.pictures.shape[1:])
        return torch.cat([self.pictures, plain])

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """A batch of its own has no number; `batch` makes them."""
        raise NotImplementedError

    def attributes(self, split: Split, number: int, size: int) -> dict[str, Tensor]:
        """Return what the pictures of a batch show, (time, batch) each."""
        found = self.shown(split, number, size)
        if found.colours is None or self.colours == "separated":
            return {} if found.colours is not None else {"shape": found.objects}
        return {"shape": found.objects, "colour": found.colours}

    @property
    def chance(self) -> Chance:
        """All answers are equally likely."""
        classes = self.output_size
        return Chance(math.log(classes), 1 / classes, f"one of {classes} at random")

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do without the relation, by what they look at."""
        return {"the number of distinct pictures": distinct, **ink(self.pictures)}

    @property
    def baseline(self) -> Baseline | None:
        """The best trivial rule that can be learnt from training, on the trials of the test."""
        counted = self.drawn(TRIALS, False, self.generator("train", 0))
        asked = self.shown("test", 0, self.held_out["test"])
        return best_rule(
            self.trivial_rules(),
            (counted.objects, counted.targets),
            (asked.objects, asked.targets),
        )

    def test_parts(self) -> dict[str, Task]:
        """Objects and rules that are new, and those of training again."""
        if not self.holdout and not self.new_relations:
            return {"test": self}
        return {"test": self, "seen": self.as_in_training()}

    def as_in_training(self) -> Self:
        """Return the same task, tested on objects and rules of training."""
        again = copy.copy(self)
        again.familiar = True
        return again

    def harder(self) -> dict[str, Any]:
        """Colours that mean nothing."""
        return {"colours": "joint"} if self.colours == "none" else {}


def without_replacement(size: int, count: int, drawn: int, generator: torch.Generator) -> Tensor:
    """Return numbers below `count`, (size, drawn), no two alike in a row.

    Args:
        size: How many rows.
        count: How many there are to draw from.
        drawn: How many are drawn.
        generator: Where the random numbers come from.
    """
    return torch.rand(size, count, generator=generator).topk(drawn, dim=1).indices


def in_turn(size: int, kinds: int, generator: torch.Generator) -> Tensor:
    """Return numbers below `kinds`, (size,), as many of each as can be, in random order."""
    return (torch.randperm(size, generator=generator)) % kinds


def slots_of(words: Sequence[str]) -> Tensor:
    """Return rules written as letters, "aab", as a table of slots (rules, time)."""
    return torch.tensor([[ord(letter) - ord("a") for letter in word] for word in words])


def colour_table() -> Tensor:
    """Return the colours of grounds, (100, 3): those of the authors' program."""
    drawn = np.random.RandomState(0).uniform(size=(COLOURS, 3))
    return torch.from_numpy(drawn.astype(np.float32))
