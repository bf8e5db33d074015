"""Relational games as a task: learnt with pentominoes, tested with hexominoes and stripes."""

from __future__ import annotations

import copy
import math
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from undamped._base.errors import OptionError, explain
from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.games.draw import Drawer
from undamped.lab.tasks.relations.games.objects import BLANK, CELL, Family, family
from undamped.lab.tasks.relations.games.rules import HARD_RULES, RULES, SHAPE_GAMES, Game
from undamped.lab.tasks.relations.games.rules import Rule as GameRule
from undamped.lab.tasks.relations.trivial import TRIALS, Rule, best_rule, distinct
from undamped.lab.tasks.task import (
    Baseline,
    Batch,
    Chance,
    GeneratedTask,
    Split,
    Task,
    cut_from_blocks,
)

Negatives = Literal["published", "hard"]


@tasks.register("relational-games")
class RelationalGames(GeneratedTask):
    """Say whether a relation holds among objects on a grid of nine cells, seen one after another.

    Training has pentominoes, the test hexominoes and stripes, which were never seen. The pictures
    are drawn here after the published ones.

    Args:
        game: "same": two objects have one shape, colour and orientation; "between": three in a
            line, the outer ones the same; "occurs": the object above is among those below;
            "xoccurs": and the other two differ; "row-matching": two rows have one pattern;
            "colour-shape": two objects are the same in both, in shape, in colour or in neither;
            "left-of": the darker of two is to the left.
        negatives: How false cases are drawn: "published", after what is known of the published
            pictures, where counting distinct objects often tells them; "hard", for "between",
            "occurs", "xoccurs" and "row-matching", so that it does not.
        seed: Where the random numbers of the data come from.

    Example:
        >>> build("relational-games", game="between")

    Reference:
        M. Shanahan and others. An explicitly relational neural network architecture. ICML, 2020;
        one cell after another, and left-of: G. Kerg and others. 2022.
    """

    input_kind = "pictures"
    held_out: ClassVar = {"valid": 960, "test": 4800}
    recipes: ClassVar = {"*": {"train": {"steps": 2500, "batch_size": 64, "learning_rate": 5e-4}}}
    picture_shape = (3, CELL, CELL)
    input_size = 3 * CELL * CELL
    segments = (9,)
    rows = (3, 3, 3)
    seen_part = "pentominoes"

    def __init__(
        self, game: Game = "same", *, negatives: Negatives = "published", seed: NonNegativeInt = 0
    ) -> None:
        super().__init__(seed)
        if negatives == "hard" and game not in HARD_RULES:
            raise OptionError(
                explain(
                    "negatives",
                    expected=f"'hard' for one of the games {', '.join(HARD_RULES)}",
                    got=f"the game {game}, in which counting is the relation, or tells nothing",
                    remedy="Leave it out.",
                )
            )
        self.game: Game = game
        self.negatives: Negatives = negatives
        self.output_size = 4 if game == "colour-shape" else 2
        self.tested: Family = "hexominoes"
        self.answer_names = (
            ("same shape and colour", "same shape", "same colour", "neither")
            if game == "colour-shape"
            else ("false", "true")
        )

    def shown(self, split: Split, number: int, size: int) -> tuple[Tensor, Tensor]:
        """Return grids (size, 9) of object numbers, and answers (size,)."""

        def draw(drawn: int, count: int) -> tuple[Tensor, Tensor]:
            objects, generator = family(self._family(split)), self.generator(split, drawn)
            return self._rule(Drawer(objects, count, generator))

        if split == "train":
            return draw(number, size)
        total = self.held_out[split]
        grids, targets = cut_from_blocks(draw, number, size, total=total, axes=(0, 0))
        assert grids is not None and targets is not None
        return grids, targets

    @property
    def _rule(self) -> GameRule:
        return (HARD_RULES if self.negatives == "hard" else RULES)[self.game]

    @property
    def baseline(self) -> Baseline | None:
        """The best trivial rule: counting objects, or looking at which cells are occupied."""
        drawer = Drawer(family("pentominoes"), TRIALS, self.generator("train", 0))
        counted, asked = self._rule(drawer), self.shown("test", 0, self.held_out["test"])
        rules: dict[str, Rule] = {
            "the number of distinct objects": lambda grids: distinct(grids, BLANK),
            "the number of distinct objects in the last row": lambda grids: distinct(
                grids[6:], BLANK
            ),
            "which cells are occupied": _occupied,
        }
        return best_rule(rules, (counted[0].T, counted[1]), (asked[0].T, asked[1]))

    def _family(self, split: Split) -> Family:
        return self.tested if split == "test" else "pentominoes"

    def batch(self, split: Split, number: int, size: int) -> Batch:
        """Make the grids of batch `number`; each of their objects is there once."""
        grids, targets = self.shown(split, number, size)
        return Batch(grids.T.contiguous(), targets, distinct=family(self._family(split)).pictures)

    def draw(self, size: int, generator: torch.Generator) -> Batch:
        """A batch of its own has no number; `batch` makes them."""
        raise NotImplementedError

    def attributes(self, split: Split, number: int, size: int) -> dict[str, Tensor]:
        """Return what the cells show, (time, batch) each; −1 where they are empty."""
        grids, _ = self.shown(split, number, size)
        name = self._family(split)
        found = family(name).attributes(grids.T)
        words = ("outer colour", "inner colour") if name == "stripes" else ("shape", "colour")
        named = dict(zip(words, found, strict=True))
        return {key: values.masked_fill(grids.T == BLANK, -1) for key, values in named.items()}

    @property
    def chance(self) -> Chance:
        """All answers are equally likely."""
        classes = self.output_size
        return Chance(math.log(classes), 1 / classes, f"one of {classes} at random")

    def test_tasks(self) -> dict[str, Task]:
        """Objects that are new, and those of training again."""
        families: tuple[Family, ...] = ("hexominoes", "stripes", "pentominoes")
        if self.game in SHAPE_GAMES:
            families = ("hexominoes", "pentominoes")
        return {name: self._on(name) for name in families}

    def _on(self, name: Family) -> Self:
        again = copy.copy(self)
        again.tested = name
        return again


def _occupied(grids: Tensor) -> Tensor:
    """Return which of the nine cells (9, batch) show an object, as one number each (batch,)."""
    return ((grids != BLANK) * 2 ** torch.arange(9).unsqueeze(1)).sum(0)
