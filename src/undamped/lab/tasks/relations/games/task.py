"""Relational games as a task: trained with pentominoes, tested with hexominoes and stripes."""

from __future__ import annotations

import copy
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeInt
from undamped._base.registry import tasks
from undamped.lab.tasks.relations.games.objects import BLANK, CELL, Family, Sampler, family
from undamped.lab.tasks.relations.games.rules import HARD_RULES, RULES, SHAPE_GAMES, Game
from undamped.lab.tasks.relations.games.rules import Rule as GameRule
from undamped.lab.tasks.relations.trials import TrialTask
from undamped.lab.tasks.relations.trivial import TRIALS, Rule, best_rule, distinct
from undamped.lab.tasks.task import Baseline, Batch, Split, Task

Negatives = Literal["published", "hard"]


@tasks.register("relational-games")
class RelationalGames(TrialTask):
    """Decide whether a relation holds among objects on a grid, which is read cell by cell.

    The grid has nine cells. Training has pentominoes, the test hexominoes and stripes. The images
    are generated like the published ones.

    Args:
        game: "same": two objects have the same shape, colour and orientation; "between": three in
            a line, the outer ones the same; "occurs": the object above is among those below;
            "xoccurs": and the other two differ; "row-matching": two rows have the same pattern;
            "colour-shape": two objects are the same in both, in shape, in colour or in neither;
            "left-of": the darker of two is to the left.
        negatives: How false cases are drawn: "published", like the published images as far as they
            are known, where counting distinct objects often reveals them; "hard", for "between",
            "occurs" (then with six objects below), "xoccurs" and "row-matching", so that it
            reveals as little as it can.
        seed: Seed of the data.

    Example:
        >>> build("relational-games", game="between")

    Reference:
        M. Shanahan and others. An explicitly relational neural network architecture. ICML, 2020;
        one cell after another, and left-of: G. Kerg and others. 2022.
    """

    recipes: ClassVar = {"*": {"train": {"steps": 2500, "batch_size": 64, "learning_rate": 5e-4}}}
    picture_shape = (3, CELL, CELL)
    input_size = 3 * CELL * CELL
    segments = (9,)
    rows = (3, 3, 3)
    in_distribution = "pentominoes"

    def __init__(
        self, game: Game = "same", *, negatives: Negatives = "published", seed: NonNegativeInt = 0
    ) -> None:
        super().__init__(seed)
        if negatives == "hard" and game not in HARD_RULES:
            raise OptionError(
                f"negatives=hard needs one of the games {', '.join(HARD_RULES)}, got {game}, in "
                "which counting is the relation, or reveals nothing. Leave it out."
            )
        self.game: Game = game
        self.negatives: Negatives = negatives
        self.test_family: Family = "hexominoes"
        self.answer_names = (
            ("same shape and colour", "same shape", "same colour", "neither")
            if game == "colour-shape"
            else ("false", "true")
        )
        self.output_size = len(self.answer_names)

    def trials(self, split: Split, index: int, size: int) -> tuple[Tensor, Tensor]:
        """Return grids (size, 9) of object indices, and answers (size,), of batch `index`."""
        objects = family(self._family(split))

        def draw(block: int, count: int) -> tuple[Tensor, Tensor]:
            return self._rule(Sampler(objects, count, self.generator(split, block)))

        if split == "train":
            return draw(index, size)
        grids, targets = self.cut_from_blocks(draw, split, index, size, axes=(0, 0))
        return grids, targets

    @property
    def _rule(self) -> GameRule:
        return (HARD_RULES if self.negatives == "hard" else RULES)[self.game]

    @property
    def baseline(self) -> Baseline | None:
        """The best trivial rule, which counts objects or uses which cells are occupied."""
        train = self._rule(Sampler(family("pentominoes"), TRIALS, self.generator("train", 0)))
        test = self.trials("test", 0, self.held_out["test"])
        start, rows = (
            (3, "below the first row") if "occurs" in self.game else (6, "in the last row")
        )
        rules: dict[str, Rule] = {
            "the number of distinct objects": lambda grids: distinct(grids, BLANK),
            f"the number of distinct objects {rows}": lambda grids: distinct(grids[start:], BLANK),
            "which cells are occupied": _occupied,
        }
        return best_rule(rules, (train[0].T, train[1]), (test[0].T, test[1]))

    def _family(self, split: Split) -> Family:
        return self.test_family if split == "test" else "pentominoes"

    def batch(self, split: Split, index: int, size: int) -> Batch:
        """Return batch `index` as indices of its distinct objects."""
        grids, targets = self.trials(split, index, size)
        return Batch(grids.T.contiguous(), targets, distinct=family(self._family(split)).images)

    def attributes(self, split: Split, index: int, size: int) -> dict[str, Tensor]:
        """Return the attributes of the cells, (time, batch) each; −1 where they are empty."""
        name, grids = self._family(split), self.trials(split, index, size)[0].T
        words = ("outer colour", "inner colour") if name == "stripes" else ("shape", "colour")
        return dict(zip(words, family(name).attributes(grids), strict=True))

    def test_tasks(self) -> dict[str, Task]:
        """Return a test with each family of objects, those of training included."""
        families: tuple[Family, ...] = ("hexominoes", "stripes", "pentominoes")
        if self.game in SHAPE_GAMES:
            families = ("hexominoes", "pentominoes")
        return {name: self._on(name) for name in families}

    def _on(self, name: Family) -> Self:
        task = copy.copy(self)
        task.test_family = name
        return task


def _occupied(grids: Tensor) -> Tensor:
    """Return which of the cells (9, batch) have an object, as bits of integers (batch,)."""
    return ((grids != BLANK) * 2 ** torch.arange(9).unsqueeze(1)).sum(0)
