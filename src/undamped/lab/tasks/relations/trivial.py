"""Trivial rules: what answers reach that look at something else than the relation.

A rule turns a trial into one whole number, such as how many distinct pictures it has. To every
number belongs the answer that is commonest with it in training; how often that is right in the test
is what a model has to beat before it can be said to have seen a relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from undamped.lab.tasks.task import Baseline

Rule = Callable[[Tensor], Tensor]
"""Takes numbers of pictures (time, batch); returns whole numbers (batch,)."""
TRIALS = 4800
"""Of training, on which the answers to a rule's numbers are counted."""


def best_rule(
    rules: Mapping[str, Rule], counted: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor]
) -> Baseline | None:
    """Return the rule that is right most often, and how often that is; None without rules.

    Args:
        rules: The rules, by what they look at.
        counted: Numbers of pictures (time, batch) and answers (batch,) of training.
        asked: The same of the test.
    """
    scores = {name: _score(rule, counted, asked) for name, rule in rules.items()}
    if not scores:
        return None
    best = max(scores, key=scores.__getitem__)
    return Baseline(scores[best], best)


def _score(rule: Rule, counted: tuple[Tensor, Tensor], asked: tuple[Tensor, Tensor]) -> float:
    values = torch.cat([rule(counted[0]), rule(asked[0])])
    _, place = torch.unique(values, return_inverse=True)
    seen, met = place[: len(counted[1])], place[len(counted[1]) :]
    classes = int(torch.cat([counted[1], asked[1]]).max()) + 1
    table = torch.zeros(int(place.max()) + 1, classes)
    table.index_put_((seen, counted[1]), torch.ones(len(seen)), accumulate=True)
    table += 1e-3 * table.sum(0) / len(seen)  # numbers that training lacks: what is commonest there
    return float((table.argmax(1)[met] == asked[1]).double().mean())


# Rules


def distinct(objects: Tensor, blank: int | None = None) -> Tensor:
    """Return how many distinct pictures there are, those that show nothing left out."""
    ordered = objects.sort(0).values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return (new if blank is None else new & (ordered != blank)).sum(0)


def pairs(places: int) -> dict[str, Rule]:
    """Return rules that look at two places each: whether their pictures are equal."""
    return {
        f"whether pictures {i + 1} and {j + 1} are equal": _equal(i, j)
        for i in range(places)
        for j in range(i + 1, places)
    }


def choices(rows: tuple[int, int, int]) -> dict[str, Rule]:
    """Return rules for a choice that does without the first row.

    Args:
        rows: Pictures of the first row, of the second, and those to choose from.
    """
    first, second, offered = rows
    row = slice(first, first + second)
    rules: dict[str, Rule] = {
        f"the choice that equals picture {at + 1} of the second row": _place(first + at, offered)
        for at in range(second)
    }

    def absent(objects: Tensor) -> Tensor:
        there = (objects[-offered:, None] == objects[None, row]).any(1)
        return (~there).byte().argmax(0)

    return {**rules, "the first choice that is not in the second row": absent}


def ink(pictures: Tensor) -> dict[str, Rule]:
    """Return the rule that looks at whether the first picture is brighter than most.

    Args:
        pictures: (pictures, channels, height, width).
    """
    amount = pictures.flatten(1).mean(1)
    much = (amount > amount.median()).long()
    return {"the ink of the first picture": lambda objects: much[objects[0]]}


def _equal(i: int, j: int) -> Rule:
    return lambda objects: (objects[i] == objects[j]).long()


def _place(item: int, offered: int) -> Rule:
    return lambda objects: (objects[-offered:] == objects[item]).byte().argmax(0)
