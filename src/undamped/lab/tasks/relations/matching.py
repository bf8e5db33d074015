"""Same or different, relational match to sample, and comparison of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.registry import tasks
from undamped.lab.data.images import read_objects
from undamped.lab.tasks.relations.trials import (
    DEJAVU,
    SIDE,
    ColouredRelationTask,
    RelationTask,
    TrialOptions,
    Trials,
    balanced,
    glyph_images,
    slots_of,
)
from undamped.lab.tasks.relations.trivial import Rule, ink, pairs
from undamped.lab.tasks.task import Split


@tasks.register("same-different")
class SameDifferent(ColouredRelationTask):
    """Decide whether two objects are the same.

    Example:
        >>> build("same-different", holdout=98)

    Reference:
        T. W. Webb, I. Sinha, J. D. Cohen. Emergent symbols through binding in external memory.
        ICLR, 2021.
    """

    fewest_seen = 2
    objects_in_trial = (2, 2)
    rows = (2,)
    answer_names = ("same", "different")

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many pairs of both kinds."""
        different = balanced(size, 2, generator)
        return torch.stack([torch.zeros_like(different), different], 1), different

    def trivial_rules(self) -> dict[str, Rule]:
        """Return rules that do not use the relation; counting images would be the relation."""
        return ink(self.images)


SAME = ("aaaaaa", "abbabb", "abaaba")
DIFFERENT = ("aaabaa", "baaaaa", "baaaba", "ababaa", "abaaaa", "aaaaba")
NEW_SAME = ("aabaab",)
NEW_DIFFERENT = ("aaaaab", "aabaaa", "aabbaa", "baaaab", "aababa", "abaaab")


@tasks.register("same-different-6")
class SameDifferent6(RelationTask):
    """Decide whether two triplets of objects are the same; one kind is in the test only.

    A triplet has at most two objects. Training has AAA, ABA and BAA; every trial of the test has
    an AAB.

    Example:
        >>> build("same-different-6", holdout=98)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022.
    """

    recipes: ClassVar = {"*": {"train": {**RelationTask.recipes["*"]["train"], "batch_size": 384}}}
    fewest_seen = 2
    objects_in_trial = (2, 2)
    new_relations = True
    rows = (3, 3)
    answer_names = ("same", "different")
    position_rules = staticmethod(pairs)

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of both answers, and of every rule of an answer."""
        same, different = (NEW_SAME, NEW_DIFFERENT) if new else (SAME, DIFFERENT)
        repeated = same * (len(different) // len(same))
        rules = slots_of([*repeated, *different])
        kind = balanced(size, len(rules), generator)
        return rules[kind], (kind >= len(repeated)).long()


PAIRS = (("aa", "bb", "cd"), ("ab", "cd", "ee"))
"""A source, the target that matches and the one that does not."""
TRIPLETS = (
    ("aaa", "bbb", "cdc"),
    ("aaa", "bbb", "cdd"),
    ("aba", "cdc", "eee"),
    ("abb", "cdd", "eee"),
    ("aba", "cdc", "eff"),
    ("abb", "cdd", "efe"),
)
NEW_TRIPLETS = (("aab", "ccd", "efg"), ("abc", "fgh", "dde"))


def matches(
    rules: Sequence[tuple[str, str, str]], size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return slots and answers of trials, each rule with its targets in both orders.

    Args:
        rules: Sources, targets that match, and targets that do not.
        size: How many trials.
        generator: The random number generator.
    """
    match_first = [source + match + mismatch for source, match, mismatch in rules]
    match_last = [source + mismatch + match for source, match, mismatch in rules]
    kind = balanced(size, 2 * len(rules), generator)
    return slots_of([*match_first, *match_last])[kind], (kind >= len(rules)).long()


@tasks.register("rmts")
class RMTS(ColouredRelationTask):
    """Choose the pair that matches a first one: both have equal objects, or both different ones.

    Example:
        >>> build("rmts", holdout=95, colours="joint")

    Reference:
        T. W. Webb, I. Sinha, J. D. Cohen. Emergent symbols through binding in external memory.
        ICLR, 2021.
    """

    fewest_seen = 5
    objects_in_trial = (5, 5)
    segments = rows = (2, 2, 2)
    answer_names = ("the second row", "the third row")
    position_rules = staticmethod(pairs)

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many sources of equal and of different objects."""
        return matches(PAIRS, size, generator)


@tasks.register("rmts-3")
class RMTS3(RelationTask):
    """Choose the triplet with the structure of a first one; structures of the test are new.

    Training has AAA, ABA and ABB; the test has AAB against ABC.

    Example:
        >>> build("rmts-3", holdout=94)

    Reference:
        G. Kerg and others. On neural architecture inductive biases for relational tasks. 2022.
    """

    recipes: ClassVar = {"*": {"train": {**RelationTask.recipes["*"]["train"], "batch_size": 192}}}
    fewest_seen = 6
    objects_in_trial = (6, 8)
    new_relations = True
    segments = rows = (3, 3, 3)
    answer_names = ("the second row", "the third row")
    position_rules = staticmethod(pairs)

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every rule and every order of the targets."""
        return matches(NEW_TRIPLETS if new else TRIPLETS, size, generator)


SIZES = (10, 18, 26)
"""Small, medium and large, in pixels; the thesis does not state its sizes."""
SIZE_PAIRS = ((0, 2), (2, 0))
ADJACENT_PAIRS = ((1, 2), (2, 1), (0, 1), (1, 0))


@tasks.register("comparison")
class Comparison(RelationTask):
    """Choose the larger of two images of an object.

    Args:
        transitive: Whether training has only adjacent sizes, small and medium, medium and large,
            and the test small and large.

    Example:
        >>> build("comparison", transitive=True)

    Reference:
        G. Kerg. Inductive biases for efficient information transfer in artificial networks, section
        7.2. Thesis, Université de Montréal, 2022.
    """

    fewest_seen = 5
    objects_in_trial = (1, 1)
    rows = (2,)
    answer_names = ("the first", "the second")

    @checked
    def __init__(self, *, transitive: bool = False, **options: Unpack[TrialOptions]) -> None:
        self.transitive = self.new_relations = transitive
        self._set_up(options)

    @property
    def object_count(self) -> int:
        """The number of objects, each in three sizes."""
        return len(self.images) // len(SIZES)

    @cached_property
    def images(self) -> Tensor:
        """The objects small, medium and large: (3 × objects, 3, height, width)."""
        if self.glyphs == DEJAVU:
            return torch.cat([glyph_images(size) for size in SIZES])
        return torch.cat([_shrink(torch.from_numpy(read_objects(self.glyphs)), s) for s in SIZES])

    def draw_slots(self, size: int, new: bool, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return equally many trials of every pair of sizes; slots are sizes here."""
        pairs = torch.tensor(SIZE_PAIRS if new or not self.transitive else ADJACENT_PAIRS)
        sizes = pairs[balanced(size, len(pairs), generator)]
        return sizes, sizes.argmax(1)

    def draw_trials(self, size: int, new: bool, generator: torch.Generator) -> Trials:
        """Draw trials of one object in two sizes."""
        pool = self.test_objects if new else self.train_objects
        sizes, targets = self.draw_slots(size, new, generator)
        objects = pool[torch.randint(len(pool), (size, 1), generator=generator)]
        return Trials((sizes * self.object_count + objects).T, None, targets)

    def attributes(self, split: Split, index: int, size: int) -> dict[str, Tensor]:
        """Return shapes and sizes, (time, batch) each."""
        images = self.trials(split, index, size).objects
        count = self.object_count
        return {"shape": images % count, "size": images // count}


def _shrink(images: Tensor, size: int) -> Tensor:
    """Return images scaled by size / SIDE, on a background of the colour of their corner."""
    height, width = images.shape[-2:]
    small = (max(1, round(height * size / SIDE)), max(1, round(width * size / SIDE)))
    scaled = torch.nn.functional.adaptive_avg_pool2d(images, small)
    canvas = images[:, :, :1, :1].expand_as(images).clone()
    y, x = (height - small[0]) // 2, (width - small[1]) // 2
    canvas[:, :, y : y + small[0], x : x + small[1]] = scaled
    return canvas
