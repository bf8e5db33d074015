"""Trivial rules: answers that use something else than the relation.

A rule maps a trial to an integer, such as the number of its distinct images. The answer to an
integer is the most frequent one in training. The accuracy in the test is what a model has to beat
before it can be said to use the relation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from undamped.lab.tasks.task import Baseline

Rule = Callable[[Tensor], Tensor]
"""Maps indices of images (time, batch) to integers (batch,)."""
TRIALS = 4800
"""Training trials on which a rule is fitted."""


def best_rule(
    rules: Mapping[str, Rule], train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]
) -> Baseline | None:
    """Return the most accurate rule and its accuracy; None without rules.

    Args:
        rules: The rules, by what they use.
        train: Indices of images (time, batch) and answers (batch,) of training.
        test: The same of the test.
    """
    scores = {name: _score(rule, train, test) for name, rule in rules.items()}
    if not scores:
        return None
    best = max(scores, key=scores.__getitem__)
    return Baseline(scores[best], best)


def _score(rule: Rule, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> float:
    values = torch.cat([rule(train[0]), rule(test[0])])
    _, codes = torch.unique(values, return_inverse=True)
    train_codes, test_codes = codes[: len(train[1])], codes[len(train[1]) :]
    classes = int(torch.cat([train[1], test[1]]).max()) + 1
    table = torch.zeros(int(codes.max()) + 1, classes)
    table.index_put_((train_codes, train[1]), torch.ones(len(train_codes)), accumulate=True)
    # Integers that training lacks have the answer that is most frequent there.
    table += 1e-3 * table.sum(0) / len(train_codes)
    return float((table.argmax(1)[test_codes] == test[1]).double().mean())


# Rules


def distinct(objects: Tensor, blank: int | None = None) -> Tensor:
    """Return the number of distinct images, the blank one not counted."""
    ordered = objects.sort(0).values
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[1:] = ordered[1:] != ordered[:-1]
    return (new if blank is None else new & (ordered != blank)).sum(0)


def pairs(rows: tuple[int, ...]) -> dict[str, Rule]:
    """Return rules that use whether the images at two positions are equal.

    Args:
        rows: Images of each row.
    """
    count = sum(rows)
    return {
        f"whether images {i + 1} and {j + 1} are equal": _equal(i, j)
        for i in range(count)
        for j in range(i + 1, count)
    }


def choices(rows: tuple[int, ...]) -> dict[str, Rule]:
    """Return rules for a choice that do not use the first row.

    Args:
        rows: Images of the first row, of the second, and those to choose from.
    """
    first, second, offered = rows
    row = slice(first, first + second)
    rules: dict[str, Rule] = {
        f"the choice that equals image {k + 1} of the second row": _equal_choice(first + k, offered)
        for k in range(second)
    }

    def absent(objects: Tensor) -> Tensor:
        present = (objects[-offered:, None] == objects[None, row]).any(1)
        return (~present).byte().argmax(0)

    return {**rules, "the first choice that is not in the second row": absent}


def ink(images: Tensor) -> dict[str, Rule]:
    """Return the rule that uses whether the first image is brighter than the median.

    Args:
        images: (images, channels, height, width).
    """
    brightness = images.flatten(1).mean(1)
    bright = (brightness > brightness.median()).long()
    return {"the ink of the first image": lambda objects: bright[objects[0]]}


def _equal(i: int, j: int) -> Rule:
    return lambda objects: (objects[i] == objects[j]).long()


def _equal_choice(position: int, offered: int) -> Rule:
    return lambda objects: (objects[-offered:] == objects[position]).byte().argmax(0)
