"""The contract of a network that knows when its samples came: flow over a gap, jump at a sample.

    h⁻ = flow(h, Δt),    h = jump(x, h⁻)

Every sequence has its own gaps. A turn of a loop takes the next sample of each, whatever their
times, and flows each over its own gap; nothing is ever brought to a grid that all share, so a
batch of B sequences with m samples takes m turns and not B·m, and no sequence's answer depends on
what else is in its batch.

A state is a tuple of tensors (batch, size), the last of them the time at which it holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from undamped._base.errors import ShapeError, explain
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Promise
from undamped.models.irregular.inquiries import Inquiries
from undamped.models.stamped import time_gaps
from undamped.nn.full_precision import in_full_precision

Parts = tuple[Tensor, ...]


class StampedNetwork(nn.Module, ABC):
    """A recurrent network whose state changes between samples too.

    Args:
        input_size: Features of a sample.
        hidden_size: Number of hidden units.
        missing: Whether features may be missing; which were measured is then an input too.
        gap: The usual time between two samples, in which the network counts.
    """

    promises: tuple[Promise, ...] = ()
    recipe: ClassVar[dict[str, dict[str, Any]]] = {}
    usual_choice: ClassVar[bool] = False
    longest_gap: float | None = None
    """The longest gap that can be crossed, in usual ones; None where any can."""

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

    # What a network is made of

    @property
    @abstractmethod
    def state_sizes(self) -> tuple[int, ...]:
        """Number of features of every tensor of the state, without the time."""

    @abstractmethod
    def project(self, x: Tensor, observed: Tensor, gaps: Tensor, state: Parts) -> Any:
        """Return what `scan` takes of all samples at once; nothing in it waits for a state.

        Args:
            x: (time, batch, input), 0 where nothing was measured.
            observed: (time, batch, input) what was measured.
            gaps: (time, batch) usual gaps since the sample before, in double precision, for sums
                of them lose what is short beside what is long; 0 beyond a sequence's end.
            state: The state before the first gap.
        """

    @abstractmethod
    def scan(self, projected: Any, gaps: Tensor, alive: Tensor | None, state: Parts) -> Parts:
        """Go through all samples; return the state after each of them, (time, batch, size).

        Args:
            projected: What `project` returned.
            gaps: (time, batch) usual gaps before each sample, in double precision; 0 beyond a
                sequence's end.
            alive: (time, batch, 1) whether there was a sample, or None where there always was.
            state: The state before the first gap.
        """

    @abstractmethod
    def flow(self, state: Parts, gaps: Tensor) -> Parts:
        """Return the state after a time without samples, (batch,) usual gaps of any precision."""

    def output(self, state: Parts) -> Tensor:
        """Return what a readout sees of a state, (…, output)."""
        return state[0]

    @property
    def output_size(self) -> int:
        """Number of features of the output."""
        return self.state_sizes[0]

    # Calls

    def initial_state(self, batch: int, like: Tensor | None = None) -> Parts:
        """Return the state in which every sequence begins, at time 0."""
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
            input: (time, batch, input); anything where nothing was measured.
            times: (time, batch) when the samples came, never decreasing, in double precision where
                they are large; one usual gap after the other, from time 0 on, if none are given.
            observed: (time, batch, input) what was measured; everything if not given.
            lengths: (batch,) the true length of each sequence; what lies beyond is ignored.
            state: The state to go on from.
        """
        states, final = self.states(input, times, observed, lengths, state)
        output = self.output(states)
        if lengths is not None:
            steps = torch.arange(len(output), device=output.device).unsqueeze(1)
            output = output.masked_fill((steps >= lengths).unsqueeze(-1), 0)
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

        Arguments are those of a call. Beyond a sequence's length its state stays as it is.
        """
        self.check(input, times, observed)
        before = self.initial_state(input.shape[1], input) if state is None else state
        stamps = self.stamps(input, times, before[-1], fresh=state is None)
        running = _running(input, lengths)
        passed = self._gaps(stamps, before[-1], lengths)
        alive, seen = self._alive(input, observed, running)
        x = input.masked_fill(~seen, 0)
        projected = self.project(x, seen, passed, before[:-1])
        made = self.scan(projected, passed, alive, before[:-1])
        last = before[-1] + passed.sum(0) * self.gap
        return made, (*(part[-1] for part in made), last)

    def at(
        self, states: Parts, times: Tensor, lengths: Tensor | None, asked: Tensor, start: Parts
    ) -> Tensor:
        """Return outputs (outputs, batch, output) at asked times, each from what was known then.

        Being asked changes nothing: flows branch off from the states after the samples.

        Args:
            states: The states after the samples, as `states` returns them.
            times: (time, batch) when the samples came.
            lengths: (batch,) how many of them count.
            asked: (outputs, batch) times in any order, from that of `start` on.
            start: The state before the first sample.
        """
        inquiries = Inquiries(times, lengths, asked, start[-1])
        self._refuse_long(inquiries.since / self.gap, "target_times")
        flows = inquiries.follow(states, start[:-1], lambda s, dt: self.flow(s, dt / self.gap))
        return self.output(flows)

    @in_full_precision
    def step(
        self,
        x: Tensor,
        state: Parts | None = None,
        dt: Tensor | float | None = None,
        observed: Tensor | None = None,
    ) -> tuple[Tensor, Parts]:
        """Take one sample of a stream (batch, input); return the output and the state.

        Args:
            x: The sample.
            state: What the step before returned; none before the first.
            dt: (batch,) or a number, the time since the sample before, or for the first since
                time 0; a usual gap if not given, and 0 for the first.
            observed: (batch, input) what was measured; everything if not given.
        """
        if dt is None:
            dt = 0.0 if state is None else self.gap
        before = self.initial_state(len(x), x) if state is None else state
        now = before[-1] + torch.as_tensor(dt, dtype=torch.float64, device=x.device)
        _, final = self.states(
            x.unsqueeze(0),
            now.unsqueeze(0),
            None if observed is None else observed.unsqueeze(0),
            None,
            before,
        )
        return self.output(tuple(part for part in final[:-1])), final

    # What a call is given

    def stamps(self, x: Tensor, times: Tensor | None, now: Tensor, *, fresh: bool) -> Tensor:
        """Return times (time, batch), even ones in double precision if none are given."""
        if times is not None:
            return times
        first = 0 if fresh else 1
        steps = torch.arange(first, first + len(x), dtype=torch.float64, device=x.device)
        return now + self.gap * steps.unsqueeze(1)

    def _gaps(self, stamps: Tensor, now: Tensor, lengths: Tensor | None) -> Tensor:
        """Return usual gaps before each sample (time, batch), 0 beyond a sequence's end."""
        passed = time_gaps(stamps, lengths, self.gap, now) / self.gap
        self._refuse_long(passed, "times")
        return passed

    def _refuse_long(self, passed: Tensor, what: str) -> None:
        """Refuse gaps that the network's few steps cannot cross."""
        if self.longest_gap is None or not bool((passed > self.longest_gap).any()):
            return
        raise ShapeError(
            explain(
                what,
                expected=f"gaps of up to {self.longest_gap:,.0f} times the usual one "
                f"({self.gap:g}), which {type(self).__name__} crosses in a few steps",
                got=f"one of {float(passed.max()):,.0f} times",
                remedy="Count time from the start of each sequence, divide sequences at long "
                "gaps, or build the network with the usual gap of the data (gap=).",
            )
        )

    def _alive(
        self, x: Tensor, observed: Tensor | None, running: Tensor | None
    ) -> tuple[Tensor | None, Tensor]:
        """Return where there is a sample (time, batch, 1) or None, and what of it was measured."""
        if observed is None:
            seen = torch.ones_like(x, dtype=torch.bool) if running is None else running
            return running, seen.expand_as(x)
        seen = observed if running is None else observed & running
        return seen.any(-1, keepdim=True), seen

    def check(self, x: Tensor, times: Tensor | None, observed: Tensor | None) -> None:
        """Refuse inputs, times and masks that do not fit together, or the network."""
        name = type(self).__name__
        if x.dim() != 3 or x.shape[-1] != self.input_size or not len(x):
            raise ShapeError(
                explain(
                    f"{name} input",
                    expected=f"(time, batch, {self.input_size}) with at least one step",
                    got=tuple(x.shape),
                    remedy="Arrange samples time first; the last dimension is input_size.",
                )
            )
        if times is not None and times.shape != x.shape[:2]:
            raise ShapeError(
                explain(
                    f"{name} times",
                    expected=f"{tuple(x.shape[:2])}, one for each sample",
                    got=tuple(times.shape),
                    remedy="Give times (time, batch).",
                )
            )
        if observed is None:
            return
        if not self.missing:
            raise ShapeError(
                explain(
                    f"{name} observed",
                    expected="none, since the network was built without missing features",
                    got="a mask",
                    remedy="Build it with missing=True.",
                )
            )
        if observed.dtype != torch.bool or observed.shape != x.shape:
            raise ShapeError(
                explain(
                    f"{name} observed",
                    expected=f"true or false for each of {tuple(x.shape)}",
                    got=f"{observed.dtype} of {tuple(observed.shape)}",
                    remedy="A mask of numbers becomes one by mask > 0, NaN by torch.isfinite.",
                )
            )


class JumpNetwork(StampedNetwork):
    """A network that flows over a gap, and then jumps."""

    @abstractmethod
    def jump(self, projected: Tensor, state: Parts, constants: Parts) -> Parts:
        """Return the state after a sample (batch, …)."""

    def constants(self) -> Parts:
        """Compute what is the same at every sample of a pass."""
        return ()

    def scan(self, projected: Any, gaps: Tensor, alive: Tensor | None, state: Parts) -> Parts:
        """Flow and jump; where there was no sample, only flow."""
        made, constants = [], self.constants()
        for t, (sample, gap) in enumerate(zip(projected.unbind(0), gaps.unbind(0), strict=True)):
            # Recordings begin with their first sample.
            flowed = state if t == 0 and not gap.any() else self.flow(state, gap)
            state = self.jump(sample, flowed, constants)
            if alive is not None:
                state = tuple(
                    torch.where(alive[t], new, old) for new, old in zip(state, flowed, strict=True)
                )
            made.append(state)
        return tuple(torch.stack(parts) for parts in zip(*made, strict=True))


def _running(x: Tensor, lengths: Tensor | None) -> Tensor | None:
    """Return (time, batch, 1), whether a sequence is not over; None where none ever is."""
    if lengths is None:
        return None
    steps = torch.arange(len(x), device=x.device).unsqueeze(1)
    return (steps < lengths).unsqueeze(-1)
