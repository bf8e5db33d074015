"""What pooled windows can know of the order of events."""

from itertools import pairwise, permutations, product

import pytest

from undamped.lab.benchmarks.memory_bounds import _orders, bounds_table, pooled_windows_bound
from undamped.lab.tasks import build

TASKS = ("last-event", "event-order", "flags", "first-is-last", "next-event", "prefix-depth")


@pytest.mark.parametrize("connected", list(product([False, True], repeat=4)))
def test_orders_agree_with_what_windows_show(connected):
    """All permutations in which connected events are neighbours, in their order."""

    def agrees(order):
        neighbours = set(pairwise(order))
        shown = all((event - 1, event) in neighbours for event in (1, 2, 3) if connected[event])
        return shown and (not connected[0] or order[0] == 0)

    expected = {order for order in permutations(range(4)) if agrees(order)}
    orders = [tuple(order) for order in _orders(connected).T.tolist()]
    assert len(orders) == len(set(orders)) and set(orders) == expected


@pytest.mark.parametrize("name", TASKS)
def test_bounds_lie_between_chance_and_certainty(name):
    task = build(name)
    assert pooled_windows_bound(task, 256, 1, size=20) == pytest.approx(task.chance.metric)
    assert pooled_windows_bound(task, 256, 256, size=20) == 1
    bounds = [pooled_windows_bound(task, 1024, width, size=40) for width in (3, 9, 64)]
    assert abs(bounds[0] - task.chance.metric) < 0.05 and max(bounds[:2]) < bounds[2] < 1


def test_two_events_in_one_window():
    """Symbols 0 and 1 are neighbours with a gap below w, or in a chain; else it is a coin toss."""
    task, width, half = build("event-order"), 5, 128
    rare = width / half  # the probability of a pair in one window is 2 w/half, and chains are rarer
    bound = pooled_windows_bound(task, 2 * half, width, size=4000)
    assert 0.5 + 0.5 * rare < bound < 0.5 + 2 * rare


def test_the_table_has_the_tasks_of_events():
    table = bounds_table(((1 << 14, 3),), ("last-event", "last-digit"))
    assert [row[0] for row in table.rows] == ["last-event"]
    assert table.header == ("task", "chance", "3 of 16,384")
