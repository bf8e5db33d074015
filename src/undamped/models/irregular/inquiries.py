"""Questions about moments between samples: flows that branch off, and lead nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from undamped.models.stamped import last_before, refuse_before

Parts = tuple[Tensor, ...]


class Inquiries:
    """Where questions at given times branch off, and in which order they are followed.

    Questions between the same two samples are followed one after the other, each from the one
    before it, so that no flow is longer than it has to be; all gaps of all sequences at once. The
    number of turns is the largest number of questions in one gap.

    Args:
        times: (time, batch) when samples came.
        lengths: (batch,) how many of them count.
        asked: (outputs, batch) when the questions are, in any order.
        begin: (batch,) the time before the first sample, from which earlier questions start.
    """

    def __init__(self, times: Tensor, lengths: Tensor | None, asked: Tensor, begin: Tensor) -> None:
        times = times.double()
        refuse_before(asked, begin)
        asked, order = asked.double().sort(0)
        self.original = order.argsort(0)
        self.place, _ = last_before(times, lengths, asked)
        known = torch.where(self.place >= 0, times.gather(0, self.place.clamp(min=0)), begin)
        order = torch.arange(len(asked), device=asked.device).unsqueeze(1)
        fresh = torch.ones_like(self.place, dtype=torch.bool)
        fresh[1:] = self.place[1:] != self.place[:-1]
        # How many questions came before in the same gap.
        self.rank = order - torch.where(fresh, order, 0).cummax(0).values
        before = torch.cat([asked[:1], asked[:-1]])
        self.since = asked - torch.where(fresh, known, before)

    def follow(self, states: Parts, start: Parts, flow: Callable[[Parts, Tensor], Parts]) -> Parts:
        """Return the states at all asked times, (outputs, batch, size) each.

        Args:
            states: (time, batch, size) the states after the samples.
            start: (batch, size) the state before the first one.
            flow: Takes states (rows, size) and times (rows,) and returns the states afterwards.
        """
        outputs, batch = self.rank.shape
        # The rows of a level are those questions with as many before them in their gap.
        rows = torch.empty(outputs, batch, dtype=torch.int64, device=self.rank.device)
        levels, offset = [], 0
        last: Parts = start
        for level in range(int(self.rank.max()) + 1 if outputs else 0):
            out, sequence = (self.rank == level).nonzero(as_tuple=True)
            if level == 0:
                place = self.place[out, sequence]
                inside = (place >= 0).unsqueeze(-1)
                held = tuple(
                    torch.where(inside, part[place.clamp(min=0), sequence], first[sequence])
                    for part, first in zip(states, start, strict=True)
                )
            else:
                above = rows[out - 1, sequence] - offset
                held = tuple(part[above] for part in last)
                offset += len(last[0])
            last = flow(held, self.since[out, sequence])
            rows[out, sequence] = torch.arange(len(out), device=rows.device) + offset
            levels.append(last)
        every = tuple(torch.cat(parts) for parts in zip(*levels, strict=True))
        rows = rows.gather(0, self.original)
        return tuple(part[rows] for part in every)
