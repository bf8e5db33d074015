"""States at query times between samples, by flows that branch off from the samples."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from undamped.models.timestamped import last_before, refuse_before

Parts = tuple[Tensor, ...]


class Queries:
    """Query times in the order in which the states at them are computed.

    Queries between the same two samples follow one another, each flow starting from the query
    before it, so that no flow is longer than necessary; all gaps of all sequences are solved at
    once. The number of rounds is the largest number of queries in one gap.

    Args:
        times: (time, batch) timestamps of the samples.
        lengths: (batch,) the true length of each sequence.
        queries: (outputs, batch) the query times, in any order.
        start: (batch,) the time of the initial state, from which earlier queries start.
    """

    def __init__(
        self, times: Tensor, lengths: Tensor | None, queries: Tensor, start: Tensor
    ) -> None:
        times = times.double()
        refuse_before(queries, start)
        queries, order = queries.double().sort(0)
        self.original = order.argsort(0)
        self.sample, _ = last_before(times, lengths, queries)
        sampled = torch.where(self.sample >= 0, times.gather(0, self.sample.clamp(min=0)), start)
        order = torch.arange(len(queries), device=queries.device).unsqueeze(1)
        first = torch.ones_like(self.sample, dtype=torch.bool)
        first[1:] = self.sample[1:] != self.sample[:-1]
        # The number of earlier queries in the same gap.
        self.rank = order - torch.where(first, order, 0).cummax(0).values
        previous = torch.cat([queries[:1], queries[:-1]])
        self.since = queries - torch.where(first, sampled, previous)

    def follow(self, states: Parts, start: Parts, flow: Callable[[Parts, Tensor], Parts]) -> Parts:
        """Return the states at all query times, (outputs, batch, size) each.

        Args:
            states: (time, batch, size) the states after the samples.
            start: (batch, size) the initial state.
            flow: From states (rows, size) and times (rows,) to the states after these times.
        """
        outputs, batch = self.rank.shape
        # A level has the queries with that many earlier ones in their gap.
        rows = torch.empty(outputs, batch, dtype=torch.int64, device=self.rank.device)
        levels, offset = [], 0
        last: Parts = start
        for level in range(int(self.rank.max()) + 1 if outputs else 0):
            out, sequence = (self.rank == level).nonzero(as_tuple=True)
            if level == 0:
                sample = self.sample[out, sequence]
                inside = (sample >= 0).unsqueeze(-1)
                before = tuple(
                    torch.where(inside, part[sample.clamp(min=0), sequence], first[sequence])
                    for part, first in zip(states, start, strict=True)
                )
            else:
                above = rows[out - 1, sequence] - offset
                before = tuple(part[above] for part in last)
                offset += len(last[0])
            last = flow(before, self.since[out, sequence])
            rows[out, sequence] = torch.arange(len(out), device=rows.device) + offset
            levels.append(last)
        every = tuple(torch.cat(parts) for parts in zip(*levels, strict=True))
        rows = rows.gather(0, self.original)
        return tuple(part[rows] for part in every)
