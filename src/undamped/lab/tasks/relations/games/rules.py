"""The games: for each, how a grid is drawn on which a relation holds, and one on which it does not.

Where the literature does not say how often which false case comes, a choice was made; it stands
with the game.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from undamped.lab.tasks.relations.games.draw import Drawer, grid

Game = Literal["same", "between", "occurs", "xoccurs", "row-matching", "colour-shape", "left-of"]
Rule = Callable[[Drawer], tuple[Tensor, Tensor]]
"""Takes a drawer; returns grids (size, 9) and answers (size,)."""

LINES = torch.tensor(
    [[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]]
)
LIKELY_LINES = torch.tensor([1.0, 2, 1, 1, 1, 1, 1, 1])
"""The middle row comes twice as often, as in the published pictures."""
OFF_LINE = 0.22
"""How often a false "between" has its objects anywhere, as in the published pictures."""
PATTERNS = torch.tensor([[0, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 1], [0, 1, 2]])


def _answers(draw: Drawer, classes: int = 2) -> Tensor:
    return torch.randperm(draw.size, generator=draw.generator) % classes


def same(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Two objects anywhere; false: they share shape only, colour only or neither, a third each."""
    answer, one = _answers(draw), draw.any()
    other = torch.where(answer == 1, one, draw.nearly(one))
    return grid(draw.cells(2), torch.stack([one, other], 1)), answer


def between(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Three in a line, the ends the same and the middle another; false: as the pictures have it.

    In 78 of 100 the ends share shape only, colour only or neither, a third each; in the others
    three objects that have nothing to do with each other lie anywhere but in a line.
    """
    answer = _answers(draw)
    line = LINES[
        torch.multinomial(LIKELY_LINES, draw.size, replacement=True, generator=draw.generator)
    ]
    one = draw.any()
    end = torch.where(answer == 1, one, draw.nearly(one))
    objects = torch.stack([one, draw.unlike(one, end), end], 1)
    anywhere = torch.rand(draw.size, generator=draw.generator) < OFF_LINE
    anywhere = (anywhere & (answer == 0)).unsqueeze(1)
    strangers = torch.stack([draw.any() for _ in range(3)], 1)
    return grid(
        torch.where(anywhere, _off_line(draw), line), torch.where(anywhere, strangers, objects)
    ), answer


def _off_line(draw: Drawer) -> Tensor:
    """Return three cells that are no line, (size, 3)."""
    cells = draw.cells(3)
    while (lined := _in_line(cells)).any():
        cells = torch.where(lined.unsqueeze(1), draw.cells(3), cells)
    return cells


def _in_line(cells: Tensor) -> Tensor:
    ordered = cells.sort(1).values
    return (ordered.unsqueeze(1) == LINES).all(2).any(1)


def occurs(draw: Drawer) -> tuple[Tensor, Tensor]:
    """One object above, in any column, three below; is it among them?

    The others differ from it. Where it is not among them, one shares with it shape only, colour
    only or nothing, a third each.
    """
    answer, above = _answers(draw), draw.any()
    found = torch.where(answer == 1, above, draw.nearly(above))
    below = torch.stack([found, draw.unlike(above), draw.unlike(above)], 1)
    return _above_and_below(draw, above, below), answer


def xoccurs(draw: Drawer) -> tuple[Tensor, Tensor]:
    """One object above, three below; is it among them, and do the other two differ?

    Half of the false cases have the object and two others that are the same; in the other half it
    is not there, and one shares with it shape only, colour only or nothing.
    """
    kind = _answers(draw, 4)  # 0 and 1 true, 2 twins, 3 absent
    above = draw.any()
    found = torch.where(kind == 3, draw.nearly(above), above)
    second = draw.unlike(above, found)
    third = torch.where(kind == 2, second, draw.unlike(above, found, second))
    below = torch.stack([found, second, third], 1)
    return _above_and_below(draw, above, below), (kind < 2).long()


def _above_and_below(draw: Drawer, above: Tensor, below: Tensor) -> Tensor:
    """Return grids with one object in the first row and three, in any order, in the last."""
    cells = torch.cat([draw.below(3).unsqueeze(1), 6 + draw.order(3)], 1)
    return grid(cells, torch.cat([above.unsqueeze(1), below], 1))


def row_matching(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Do the first and the last row have one pattern of AAA, AAB, ABA, ABB and ABC?

    The rows have no object in common. False: any two patterns that differ.
    """
    return _matching_rows(draw, PATTERNS)


def _matching_rows(draw: Drawer, patterns: Tensor) -> tuple[Tensor, Tensor]:
    answer, first = _answers(draw), draw.below(len(patterns))
    other = (first + 1 + draw.below(len(patterns) - 1)) % len(patterns)
    last = torch.where(answer == 1, first, other)
    drawn: list[Tensor] = [draw.any()]
    for _ in range(5):
        drawn.append(draw.unlike(*drawn))
    objects = torch.stack(drawn, 1)
    rows = torch.cat([patterns[first], 3 + patterns[last]], 1)
    cells = torch.tensor([0, 1, 2, 6, 7, 8]).expand(draw.size, 6)
    return grid(cells, objects.gather(1, rows)), answer


def colour_shape(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Two objects anywhere: same in both, in shape alone, in colour alone, or in neither."""
    answer, one = _answers(draw, 4), draw.any()
    other = torch.where(answer == 0, one, draw.akin(one, answer - 1))
    return grid(draw.cells(2), torch.stack([one, other], 1)), answer


def left_of(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Two objects of unequal luminance: is the darker one further left, or below in one column?

    Half of the pairs share their shape. Below counts as left as in the authors' program.
    """
    one, light = draw.any(), draw.objects.luminance.flatten()
    shared = 2 * draw.below(2)  # the first attribute, or nothing
    other = draw.akin(one, shared)
    while (equal := light[one - 1] == light[other - 1]).any():
        other = torch.where(equal, draw.akin(one, shared), other)
    cells = draw.cells(2)
    darker_first = light[one - 1] < light[other - 1]
    dark = torch.where(darker_first, cells[:, 0], cells[:, 1])
    bright = torch.where(darker_first, cells[:, 1], cells[:, 0])
    left, beside = dark % 3 < bright % 3, dark % 3 == bright % 3
    answer = left | (beside & (dark > bright))
    return grid(cells, torch.stack([one, other], 1)), answer.long()


# False cases that are not told by counting


def hard_between(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Like `between`, but most false cases have two equal objects too.

    In 70 of 100 all are in a line and the equal ones are neighbours; in 15 an object and two equal
    ones lie anywhere but in a line; in 15 the ends differ, as in most published pictures.
    """
    answer, chance = _answers(draw), torch.rand(draw.size, generator=draw.generator)
    line = LINES[
        torch.multinomial(LIKELY_LINES, draw.size, replacement=True, generator=draw.generator)
    ]
    one = draw.any()
    other = draw.unlike(one)
    true = torch.stack([one, other, one], 1)
    first = draw.below(2).bool().unsqueeze(1)
    beside = torch.where(
        first, torch.stack([one, one, other], 1), torch.stack([other, one, one], 1)
    )
    end = draw.nearly(one)
    published = torch.stack([one, draw.unlike(one, end), end], 1)
    wrong = torch.where((chance < 0.7).unsqueeze(1), beside, published)
    off = ((chance >= 0.85) & (answer == 0)).unsqueeze(1)
    wrong = torch.where(off, true, wrong)
    objects = torch.where((answer == 1).unsqueeze(1), true, wrong)
    return grid(torch.where(off, _off_line(draw), line), objects), answer


def hard_occurs(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Like `occurs`, but the objects below may be equal.

    Of true cases 20 % have one object below, three times, 40 % two and 40 % three; of false ones
    40, 40 and 20 %: neither the objects below nor all of them, counted, tell much.
    """
    answer, above = _answers(draw), draw.any()
    shares = torch.where((answer == 1).unsqueeze(1), torch.tensor(_TRUE), torch.tensor(_FALSE))
    count = 1 + torch.multinomial(shares, 1, generator=draw.generator).squeeze(1)
    found = torch.where(answer == 1, above, draw.nearly(above))
    second = draw.unlike(above, found)
    third = draw.unlike(above, found, second)
    twice = torch.where(draw.below(2).bool(), found, second)
    below = torch.stack(
        [
            found,
            torch.where(count == 1, found, second),
            torch.where(count == 1, found, torch.where(count == 2, twice, third)),
        ],
        1,
    )
    return _above_and_below(draw, above, below), answer


_TRUE, _FALSE = (0.2, 0.4, 0.4), (0.4, 0.4, 0.2)


def hard_xoccurs(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Like `xoccurs`, but half of the false cases lack the object and have two equal ones.

    In the other half it is not there either, and all three below differ: that equal ones are below
    tells one half, the number of objects the other, and no mixture hides both.
    """
    kind = _answers(draw, 4)  # 0 and 1 true, 2 twins, 3 absent
    above = draw.any()
    found = torch.where(kind >= 2, draw.nearly(above), above)
    second = draw.unlike(above, found)
    third = torch.where(kind == 2, second, draw.unlike(above, found, second))
    below = torch.stack([found, second, third], 1)
    return _above_and_below(draw, above, below), (kind < 2).long()


def hard_row_matching(draw: Drawer) -> tuple[Tensor, Tensor]:
    """Like `row_matching`, but every row has two objects: AAB, ABA or ABB."""
    return _matching_rows(draw, PATTERNS[1:4])


RULES: dict[Game, Rule] = {
    "same": same,
    "between": between,
    "occurs": occurs,
    "xoccurs": xoccurs,
    "row-matching": row_matching,
    "colour-shape": colour_shape,
    "left-of": left_of,
}
HARD_RULES: dict[Game, Rule] = {
    "between": hard_between,
    "occurs": hard_occurs,
    "xoccurs": hard_xoccurs,
    "row-matching": hard_row_matching,
}
SHAPE_GAMES = ("colour-shape", "left-of")
"""Games that stripes cannot play: they have no shape, and two colours each."""
