"""The contract of a network of timestamped samples: flow over a gap, jump at a sample.

    h⁻ = flow(h, Δt),    h = jump(x, h⁻)

Every sequence has its own gaps. An iteration takes the next sample of each sequence, whatever its
time, and flows each over its own gap. No common grid is needed, so that a batch of B sequences with
m samples takes m iterations and not B·m, and no prediction depends on the other sequences.

A state is a tuple of tensors (batch, size), the last of them the time of the state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypedDict

import torch
from torch import Tensor, nn

from undamped._base.errors import ShapeError
from undamped._base.options import Default, PositiveFloat, PositiveInt
from undamped._base.promises import Promise
from undamped.models.timestamped import last_before, refuse_before, time_gaps
from undamped.nn.sequence_tensors import in_full_precision, padding_mask

Parts = tuple[Tensor, ...]


class SampleOptions(TypedDict, total=False):
    """Options of the samples of a network, which the task sets."""

    missing: Annotated[
        bool,
        Default(
            False, "Whether features may be missing; the mask is then an input. Set by the task."
        ),
    ]
    gap: Annotated[
        PositiveFloat, Default(1.0, "The usual time between two samples. Set by the task.")
    ]


class TimestampedNetwork(nn.Module, ABC):
    """A recurrent network whose state also changes between samples.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        missing: Whether features may be missing; the mask is then an input.
        gap: The usual time between two samples, the network's unit of time.

    Example:
        >>> net = undamped.models.TimestampedNetwork(3, 16)
        >>> output, state = net(torch.randn(20, 4, 3), torch.rand(20, 4).cumsum(0))
    """

    promises: tuple[Promise, ...] = ()
    recipe: ClassVar[dict[str, dict[str, Any]]] = {}
    usual_choice: ClassVar[bool] = False
    longest_gap: float | None = None
    """The longest gap that the network can solve, in usual gaps; None for no limit."""

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        missing: bool = False,
        gap: PositiveFloat = 1.0,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size = input_size, hidden_size
        self.missing, self.gap = missing, gap

    # Parts that a network defines

    @property
    @abstractmethod
    def state_sizes(self) -> tuple[int, ...]:
        """Size of every tensor of the state, without the time."""

    @abstractmethod
    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Any:
        """Return the input of `scan`, computed for all samples at once.

        Args:
            x: (time, batch, input), 0 for missing values.
            observed: (time, batch, input) mask of the measured values.
            gaps: (time, batch) time since the previous sample in usual gaps, in double precision
                so that sums are exact enough; 0 after the end of a sequence.
            state: The state before the first gap.
        """

    @abstractmethod
    def scan(self, projected: Any, gaps: Tensor, alive: Tensor | None, state: Parts) -> Parts:
        """Return the state after every sample, (time, batch, size).

        Args:
            projected: The result of `project`.
            gaps: As for `project`.
            alive: (time, batch, 1) whether there is a sample; None if there always is.
            state: The state before the first gap.
        """

    @abstractmethod
    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Return the state after a time without samples, (batch,) in usual gaps."""

    def output(self, state: Parts) -> Tensor:
        """Return the output of a state, (…, output)."""
        return state[0]

    @property
    def output_size(self) -> int:
        """Number of features of the output."""
        return self.state_sizes[0]

    # Calls

    def initial_state(self, batch: int, like: Tensor | None = None) -> Parts:
        """Return the state at the start of every sequence, at time 0."""
        like = next(self.parameters()) if like is None else like
        zeros = tuple(like.new_zeros(batch, size) for size in self.state_sizes)
        return (*zeros, torch.zeros(batch, dtype=torch.float64, device=like.device))

    @in_full_precision
    def forward(
        self,
        input: Tensor,
        times: Tensor | None = None,
        observed: Tensor | None = None,
        lengths: Tensor | None = None,
        state: Parts | None = None,
    ) -> tuple[Tensor, Parts]:
        """Run over sequences; return the outputs after every sample and the final state.

        Args:
            input: (time, batch, input); missing values may be anything.
            times: (time, batch) timestamps, never decreasing, in double precision if they are
                large; by default multiples of the usual gap from time 0 on.
            observed: (time, batch, input) mask of the measured values; by default all are.
            lengths: (batch,) the true length of each sequence; steps after it are ignored.
            state: The state to continue from.
        """
        states, final = self.states(input, times, observed, lengths, state)
        output = self.output(states)
        if lengths is not None:
            output = output.masked_fill(padding_mask(output, lengths), 0)
        return output, final

    def states(
        self,
        input: Tensor,
        times: Tensor | None = None,
        observed: Tensor | None = None,
        lengths: Tensor | None = None,
        state: Parts | None = None,
    ) -> tuple[Parts, Parts]:
        """Return the state after every sample (time, batch, size), and the final one.

        Arguments are those of `forward`. After the end of a sequence its state does not change.
        """
        self.check(input, times, observed)
        before = self.initial_state(input.shape[1], input) if state is None else state
        timestamps = self.timestamps(input, times, before[-1], fresh=state is None)
        running = None if lengths is None else ~padding_mask(input, lengths)
        gaps = self._gaps(timestamps, before[-1], lengths)
        alive, mask = self._alive(input, observed, running)
        x = input.masked_fill(~mask, 0)
        projected = self.project(x, mask, gaps, before[:-1])
        states = self.scan(projected, gaps, alive, before[:-1])
        last = before[-1] + gaps.sum(0) * self.gap
        return states, (*(part[-1] for part in states), last)

    def at(
        self, states: Parts, times: Tensor, lengths: Tensor | None, queries: Tensor, start: Parts
    ) -> Tensor:
        """Return outputs (outputs, batch, output) at query times, each from the samples before it.

        Queries do not change the states: flows branch off from the states after the samples.

        Args:
            states: The states after the samples, as `states` returns them.
            times: (time, batch) timestamps of the samples.
            lengths: (batch,) the true length of each sequence.
            queries: (outputs, batch) times in any order, not before that of `start`.
            start: The initial state.
        """
        order = Queries(times, lengths, queries, start[-1])
        self._refuse_long(order.since / self.gap, "target_times")
        flows = order.follow(states, start[:-1], lambda s, dt: self.flow(s, dt / self.gap))
        return self.output(flows)

    @in_full_precision
    def step(
        self,
        x: Tensor,
        state: Parts | None = None,
        dt: Tensor | float | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Parts]:
        """Process one sample of a stream (batch, input); return the output and the state.

        Args:
            x: The sample.
            state: The state after the previous sample; None before the first.
            dt: (batch,) or a number, the time since the previous sample, or for the first since
                time 0; by default a usual gap, and 0 for the first.
            observed: (batch, input) mask of the measured values; by default all are.
        """
        if dt is None:
            dt = 0.0 if state is None else self.gap
        before = self.initial_state(len(x), x) if state is None else state
        now = before[-1] + torch.as_tensor(dt, dtype=torch.float64, device=x.device)
        mask = None if observed is None else observed.unsqueeze(0)
        _, final = self.states(x.unsqueeze(0), now.unsqueeze(0), mask, None, before)
        return self.output(final[:-1]), final

    # Checks of arguments

    def timestamps(self, x: Tensor, times: Tensor | None, now: Tensor, *, fresh: bool) -> Tensor:
        """Return timestamps (time, batch); by default regular ones in double precision."""
        if times is not None:
            return times
        first = 0 if fresh else 1
        steps = torch.arange(first, first + len(x), dtype=torch.float64, device=x.device)
        return now + self.gap * steps.unsqueeze(1)

    def _gaps(self, timestamps: Tensor, now: Tensor, lengths: Tensor | None) -> Tensor:
        """Return the gap before each sample (time, batch), 0 after the end of a sequence."""
        gaps = time_gaps(timestamps, lengths, self.gap, now) / self.gap
        self._refuse_long(gaps, "times")
        return gaps

    def _refuse_long(self, gaps: Tensor, name: str) -> None:
        """Refuse gaps that are too long for the fixed steps of the network."""
        if self.longest_gap is None or not bool((gaps > self.longest_gap).any()):
            return
        raise ShapeError(
            f"{name} has a gap of {float(gaps.max()):,.0f} times the usual one ({self.gap:g}), and "
            f"{type(self).__name__} can solve at most {self.longest_gap:,.0f}. Count time from the "
            "start of each sequence, split sequences at long gaps, or set the usual gap (gap=)."
        )

    def _alive(
        self, x: Tensor, observed: Tensor | None, running: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Return where there is a sample (time, batch, 1) or None, and the mask of its values."""
        if observed is None:
            mask = torch.ones_like(x, dtype=torch.bool) if running is None else running
            return running, mask.expand_as(x)
        mask = observed if running is None else observed & running
        return mask.any(-1, keepdim=True), mask

    def check(self, x: Tensor, times: Tensor | None, observed: Tensor | None) -> None:
        """Refuse inputs, times and masks whose shapes do not match each other or the network."""
        name = type(self).__name__
        if x.dim() != 3 or x.shape[-1] != self.input_size or not len(x):
            raise ShapeError(
                f"{name} input must be (time, batch, {self.input_size}) with at least one step, "
                f"got {tuple(x.shape)}."
            )
        if times is not None and times.shape != x.shape[:2]:
            raise ShapeError(
                f"{name} times must be (time, batch) = {tuple(x.shape[:2])}, got "
                f"{tuple(times.shape)}."
            )
        if observed is None:
            return
        if not self.missing:
            raise ShapeError(
                f"{name} was built without missing features and takes no mask `observed`. Build it "
                "with missing=True."
            )
        if observed.dtype != torch.bool or observed.shape != x.shape:
            raise ShapeError(
                f"{name} observed must be torch.bool of shape {tuple(x.shape)}, got "
                f"{observed.dtype} of {tuple(observed.shape)}."
            )


class JumpNetwork(TimestampedNetwork):
    """A network that flows over a gap, and then jumps."""

    @abstractmethod
    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """Return the state after a sample (batch, …)."""

    def constants(self) -> Parts:
        """Return tensors that are the same at every sample of a pass."""
        return ()

    def scan(self, projected: Any, gaps: Tensor, alive: Tensor | None, state: Parts) -> Parts:
        """Flow and jump at every sample; without a sample, only flow."""
        states, constants = [], self.constants()
        for t, (sample, gap) in enumerate(zip(projected.unbind(0), gaps.unbind(0), strict=True)):
            # The first gap is usually zero, since recordings start with their first sample.
            flowed = state if t == 0 and not gap.any() else self.flow(state, gap)
            state = self.jump(sample, flowed, constants)
            if alive is not None:
                state = tuple(
                    torch.where(alive[t], new, old) for new, old in zip(state, flowed, strict=True)
                )
            states.append(state)
        return tuple(torch.stack(parts) for parts in zip(*states, strict=True))


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
