"""What pooled windows of a few steps can know of the order of events.

A convolution with global pooling, a shapelet or a bag of n-grams reads every window of w steps and
forgets where it was. Two events in one window are in a known order. Events that are further apart
are not, unless a chain of windows connects them; and a window that begins before the first step
shows that its events are the first. So such a model knows groups of events and the order within
each, but not the order of the groups, except perhaps which is first. The best answer to that is
computed here by trying all orders of the groups. It is a bound for models that pool windows
independently; one that puts overlapping windows together by their distractors has the sequence,
that is, a memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, permutations

import torch
from torch import Tensor

from undamped._base.registry import tasks as task_registry
from undamped.lab.benchmarks.memory_scores import TASKS
from undamped.lab.report.table import Table
from undamped.lab.tasks.events import EventTask


def pooled_windows_bound(
    task: EventTask, steps: int, width: int, *, size: int = 400, seed: int = 0
) -> float:
    """Return the mean accuracy of the best answer to pooled windows.

    Args:
        task: A task of events.
        steps: Length of the sequences.
        width: Steps of a window.
        size: Number of sequences over which the mean is taken.
        seed: Seed of the sequences.
    """
    generator = torch.Generator().manual_seed(seed)
    events, times = task.draw_events(size, steps, generator)
    before_first = torch.full_like(times[:1], -1)  # a convolution pads here
    connected = times.diff(dim=0, prepend=before_first) < width
    queries = range(max(1, task.queries))
    separate = task.frequencies().amax(1).mean().item()
    total = 0.0
    for sequence, pattern in zip(events.T, connected.T.tolist(), strict=True):
        if not any(pattern):
            total += separate
            continue
        orders = _orders(tuple(pattern))
        for query in queries:
            answers = task.answers_of(sequence[orders], torch.full((orders.shape[1],), query))
            total += torch.bincount(answers).max().item() / orders.shape[1] / len(queries)
    return total / size


@cache
def _orders(connected: tuple[bool, ...]) -> Tensor:
    """Return all orders of events (events, orders) that agree with what windows show.

    Args:
        connected: For every event, whether a window shows it with the event before it; for the
            first one, whether a window shows it with the step before the sequence.
    """
    groups: list[list[int]] = []
    for event, joined in enumerate(connected):
        if joined and groups:
            groups[-1].append(event)
        else:
            groups.append([event])
    first = groups[:1] if connected[0] else []
    rest = permutations(groups[len(first) :])
    return torch.tensor([list(chain(*first, *order)) for order in rest]).T


def bounds_table(
    sizes: tuple[tuple[int, int], ...] = ((256, 9), (1024, 3), (1024, 9), (1024, 64), (16384, 64)),
    names: Sequence[str] = TASKS,
) -> Table:
    """Return the bounds of tasks of events; `last-value`, with nine events, takes longest.

    Args:
        sizes: Lengths of sequences and of windows.
        names: Names of tasks.

    Example:
        >>> print(undamped.lab.benchmarks.memory_bounds.bounds_table().markdown())
    """
    rows = []
    for name in names:
        task = task_registry[name]()
        if isinstance(task, EventTask):
            bounds = (pooled_windows_bound(task, steps, width) for steps, width in sizes)
            chance = f"{100 * task.chance.metric:.1f}"
            rows.append((name, chance, *(f"{100 * bound:.1f}" for bound in bounds)))
    header = (f"{width} of {steps:,}" for steps, width in sizes)
    title = "Largest accuracy in % of windows that are pooled, by their steps and the length"
    return Table(("task", "chance", *header), rows, title)
