"""Integration with a step size, a time and an end for every sample of a batch.

A sample that rejects a step, or has finished, takes a step of size zero: its state stays bit for
bit the same, and repeating the solve needs only times and step sizes. With `compact`, the field is
evaluated only on the samples that have not finished.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from undamped.ode.failure import DIVERGED, Stop, explain_failure, of_one_sample
from undamped.ode.loop.batch import STIFFNESS_EVERY
from undamped.ode.loop.clocks import Attempt, Clocks
from undamped.ode.loop.control import ControlMemory, first_step
from undamped.ode.loop.events import FRACTIONS, first_event, with_event_gradient
from undamped.ode.loop.norm import sample_norms
from undamped.ode.loop.stability import SampleStabilityControl
from undamped.ode.loop.tangent import SampleTangentControl
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.methods.implicit.stepper import ImplicitStepper, PredictiveMemory
from undamped.ode.methods.stages import Terms, combine_terms
from undamped.ode.record import EventResult, Failure, Run, Status, Step
from undamped.ode.state.times import coincide


class PerSampleIntegration(Run):
    """One solve by an explicit method in which every sample has its own step size.

    Arguments are as for `Run`, with times (outputs, batch), each column increasing or decreasing.
    The field is called with times of shape (batch, 1, …) and must treat samples separately.
    """

    solver: RungeKutta

    def _prepare(self) -> None:
        y0, times, field, solver = self.y0, self.times, self.field, self.solver
        self.y, batch = y0, y0.shape[0]
        self.column = (batch,) + (1,) * (y0.dim() - 1)
        self.clocks = Clocks(times)
        self.values += [torch.full_like(y0, math.nan) for _ in times[1:]]
        # After the outputs, where there may be events: the states at them.
        self.event_times: Tensor | None = None
        if self.event is not None:
            self.event_times = torch.full_like(times[0], math.nan)
            self.values.append(torch.full_like(y0, math.nan))
        self.tangent: SampleTangentControl | None = None
        self.stability: SampleStabilityControl | None = None
        if self.options.differentiated and y0.numel():
            if not solver.implicit:
                self.stability = SampleStabilityControl(field, solver, y0)
            self.tangent = SampleTangentControl(field, solver, self.settings, self.norm, y0)
        self.failed: dict[int, Status] = {}
        """Why samples failed; `failure` is that of the first."""
        self.output_steps = torch.zeros(batch, dtype=torch.long, device=y0.device)
        """Number of recorded steps up to the last output of each sample."""
        self.sample_steps = torch.zeros(batch, dtype=torch.long, device=y0.device)

    @property
    def value_times(self) -> Tensor:
        """When the values are: output times, and events, or the last time where there is none."""
        if self.event_times is None:
            return self.times
        ends = torch.where(self.event_times.isnan(), self.times[-1], self.event_times)
        return torch.cat((self.times, ends.unsqueeze(0)))

    def run(self) -> None:
        """Integrate until every sample is done, or has failed."""
        started = self.field.count
        if self.y.numel():
            self._loop()
        else:
            self.values = [self.y] * len(self.values)
            self.clocks.index.fill_(self.times.shape[0])
        self.statistics.evaluations = self.field.count - started
        self.trace.final = (self.y,)

    def _loop(self) -> None:
        clocks, settings = self.clocks, self.settings
        clocks.h = self._first_steps()
        self._begin()
        batch = torch.arange(len(clocks.h), device=clocks.h.device)
        for attempts in range(settings.max_steps + 1):
            self._skip_empty_intervals()
            active = clocks.active
            rows = batch if bool(active.all()) else active.nonzero().squeeze(1)
            if not len(rows):
                return
            if attempts == settings.max_steps:
                self._fail(rows, [Status.MAX_STEPS] * len(rows), clocks.h)
                return
            attempt = clocks.attempt(rows if self.options.compact else batch, self.y)
            events = self._attempt(attempt, attempts)
            self._advance(attempt)
            if self.tangent is not None:
                self.tangent.accept_rows(attempt)
            if events is not None:
                self._end_at_events(attempt.rows[events])
            stuck = clocks.resize(attempt, self._next_factor(attempt), self._largest(attempt.rows))
            if bool(stuck.any()):
                self._fail_stuck(attempt, stuck)

    def _begin(self) -> None:
        """Prepare the step control."""
        assert self.solver.error_order is not None
        ones = torch.ones_like(self.clocks.h)
        rejected = torch.zeros_like(ones, dtype=torch.bool)
        self.memory = ControlMemory(
            self.settings.control, self.solver.error_order, ones, ones, rejected
        )

    def _attempt(self, attempt: Attempt, attempts: int) -> Tensor | None:
        """Take a step; return which rows meet an event in it, or None.

        Args:
            attempt: The step; its end, error and acceptance are filled in.
            attempts: Number of attempts so far.
        """
        rows, first = attempt.rows, None if self.first is None else self.first[attempt.rows]
        self._stages(attempt, first)
        new = len(attempt.stages) - (first is not None)
        self.statistics.sample_evaluations += new * len(rows)
        with torch.no_grad():
            error = self.solver.estimate(attempt.step[1], attempt.stages)
            assert error is not None
            attempt.ratio = self.norm.of_rows(rows).each(error, attempt.y, attempt.y1)
        if self.tangent is not None:
            attempt.ratio = self.tangent.error_norms(attempt)
        if self.stability is not None and attempts % self.stability.every == 0 < attempts:
            self.stability.measure(attempt, error)
        attempt.accepted = accepted = (attempt.ratio <= 1) & attempt.active
        if attempts % STIFFNESS_EVERY == 0:
            self._note_stiffness(attempt)
        finite = not torch.is_grad_enabled() or bool(torch.isfinite(attempt.ratio).all())
        if not finite and accepted.any():
            # A rejected value gets no gradient, yet zero times infinity is not zero: what is not
            # finite must not be in the graph.
            self._stages(attempt, first, attempt.column(attempt.accepted_h))
        crossing = None if self.event is None else self._find_events(attempt)
        if crossing is not None:
            events, attempt.h = crossing
            attempt.landing = attempt.landing & ~events
            self._stages(attempt, None)
        if self.watch is not None:
            self.watch(rows, attempt.t, attempt.accepted_h, attempt.y, attempt.y1, attempt.stages)
        self.first = self._next_first(attempt)
        return None if crossing is None else crossing[0]

    def _stages(self, attempt: Attempt, first: Tensor | None, h: Tensor | None = None) -> None:
        """Evaluate the stages of a step, of its size or of another one."""
        t, size = attempt.step
        attempt.y1, attempt.stages = self.solver.stages(
            self.field, t, size if h is None else h, attempt.y, first=first, last=True
        )

    def _next_factor(self, attempt: Attempt) -> Tensor:
        """Return what the step sizes are to be multiplied by."""
        return self.memory.next_factors(attempt.rows, attempt.ratio, attempt.accepted)

    def _largest(self, rows: Tensor) -> Tensor | None:
        """Return the upper bounds of the next step sizes, or None."""
        largest = None if self.stability is None else self.stability.largest[rows]
        if self.settings.max_step is None:
            return largest
        if largest is None:
            return torch.full_like(self.clocks.t[rows], self.settings.max_step)
        return largest.clamp_max(self.settings.max_step)

    @torch.no_grad()
    def _first_steps(self) -> Tensor:
        settings, y, clocks = self.settings, self.y, self.clocks
        assert self.solver.error_order is not None
        limit = math.inf if settings.max_step is None else settings.max_step
        if settings.first_step is not None:
            return torch.full_like(clocks.t, min(settings.first_step, limit))
        time = clocks.t.view(self.column)
        slope = self.field(time.to(y.dtype), y) if self.first is None else self.first

        def measure(terms: Terms, parts: Sequence[Tensor]) -> Tensor:
            return self.norm.each(combine_terms(None, 1.0, terms, parts), y, y)

        def slope_after(size: Tensor) -> Tensor:
            by = (size * clocks.direction).view(self.column)
            return self.field((time + by).to(y.dtype), y + by.to(y.dtype) * slope)

        order = self.solver.error_order
        h = first_step(y, slope, order=order, measure=measure, slope_after=slope_after)
        return torch.as_tensor(h).clamp_max(limit)

    @torch.no_grad()
    def _find_events(self, attempt: Attempt) -> tuple[Tensor, Tensor] | None:
        """Return which rows meet their event in this step, and step sizes that end there."""
        event, t, h, column = self.event, attempt.t, attempt.h, attempt.column
        assert event is not None
        start, y, y1 = attempt.step[0], attempt.y.detach(), attempt.y1.detach()

        def at(size: Tensor) -> Tensor:
            moved, _ = self.solver.stages(self.field, start, column(size), y)
            return event(column(t + size), moved)

        # On the line between the ends: a crossing there is located with true steps.
        inside = [event(column(t + x * h), torch.lerp(y, y1, x)) for x in FRACTIONS]
        values = [event(start, y), *inside, event(column(t + h), y1)]
        return first_event(event, values, t, h, at, accepted=attempt.accepted)

    def _end_at_events(self, rows: Tensor) -> None:
        """Write the states at events, after which these samples take no further steps."""
        assert self.event_times is not None
        self.event_times[rows] = self.clocks.t[rows]
        output = self.times.shape[0]
        self.values[output] = self.values[output].index_copy(0, rows, self.y[rows])
        self._note(output, rows)
        self.clocks.finish(rows)

    def _skip_empty_intervals(self) -> None:
        """Write outputs at times that were reached before, which need no step."""
        clocks = self.clocks
        while True:
            empty = clocks.active & (clocks.target == clocks.t)
            if not bool(empty.any()):
                return
            # Only a zero interval at the very start, or repeated times, come here.
            self._write(empty.nonzero().squeeze(1))

    def _write(self, rows: Tensor) -> None:
        index = self.clocks.index[rows]
        for output in index.unique().tolist():
            samples = rows[index == output]
            self.values[output] = self.values[output].index_copy(0, samples, self.y[samples])
            self._note(output, samples)
        self.clocks.index = self.clocks.index.index_add(0, rows, torch.ones_like(rows))

    def _note(self, output: int, rows: Tensor) -> None:
        """Record which samples wrote an output after the last recorded step."""
        self.trace.append(Step(0.0, 0.0, ((output, None),), landed=rows), (self.y,))
        self.output_steps = self.output_steps.index_fill(0, rows, len(self.trace))

    def _advance(self, attempt: Attempt) -> None:
        """Record a step, advance the samples that accept it, and write their outputs."""
        rows, accepted, statistics = attempt.rows, attempt.accepted, self.statistics
        count = int(accepted.sum())
        statistics.accepted += count
        statistics.rejected += int((~accepted & self.clocks.active[rows]).sum())
        if not count:
            return
        t, h = attempt.column(attempt.t), attempt.column(attempt.accepted_h)
        complete = len(rows) == self.y.shape[0]
        self.trace.append(Step(t, h, rows=None if complete else rows), (self.y,))
        new = torch.where(attempt.column(accepted), attempt.y1, self.y[rows])
        self.y = new if complete else self.y.index_copy(0, rows, new)
        self.clocks.accept(attempt)
        self.sample_steps = self.sample_steps.index_add(0, rows, accepted.long())
        smallest = float(attempt.h[accepted].abs().min())
        statistics.smallest_step = min(statistics.smallest_step, smallest)
        landed = rows[accepted & attempt.landing]
        if len(landed):
            self._write(landed)

    @torch.no_grad()
    def _note_stiffness(self, attempt: Attempt) -> None:
        pair = self.solver.tableau.end_pair
        if pair is None:
            return
        slope, distance = (sample_norms(combine_terms(None, 1.0, x, attempt.stages)) for x in pair)
        rates = (slope / distance)[attempt.accepted & (distance > 0)]
        rates = rates[torch.isfinite(rates)]
        if len(rates):
            self.statistics.note_stiffness(float(rates.max()))

    def _next_first(self, attempt: Attempt) -> Tensor | None:
        """Return f where the next steps begin, if it is the last stage of this step."""
        if not self.solver.tableau.reuses_last:
            return None
        accepted = attempt.column(attempt.accepted)
        slope = torch.where(accepted, attempt.stages[-1], attempt.stages[0])
        if self.first is None or len(attempt.rows) == self.y.shape[0]:
            return slope if len(attempt.rows) == self.y.shape[0] else None
        return self.first.index_copy(0, attempt.rows, slope)

    def _fail_stuck(self, attempt: Attempt, stuck: Tensor) -> None:
        """Let samples fail whose steps became too small."""
        rows, invalid = attempt.rows[stuck], attempt.ratio[stuck].isnan()
        sizes = (part[rows].detach().abs().reshape(len(rows), -1) for part in (self.y, self.y0))
        size, start = (part.amax(1) for part in sizes)
        # Where the state was not on its way to infinity, the field itself is not finite.
        not_finite = invalid & (size <= DIVERGED * (1 + start))
        statuses = [
            Status.NON_FINITE if value else Status.STEP_TOO_SMALL for value in not_finite.tolist()
        ]
        full = torch.zeros_like(self.clocks.h).index_copy(0, attempt.rows, attempt.size)
        self._fail(rows, statuses, full, invalid=bool(invalid[0]))

    def _fail(
        self, rows: Tensor, statuses: list[Status], h: Tensor, *, invalid: bool = False
    ) -> None:
        """Explain the first failure, and leave the samples that failed at their last output.

        Args:
            rows: The samples.
            statuses: Why each failed.
            h: Sizes of the last steps of all samples.
            invalid: Whether the last step of the first was not finite.
        """
        clocks = self.clocks
        if self.failure is None:
            self.failure = self._explain(statuses[0], int(rows[0]), h, invalid)
            statuses = [self.failure.status, *statuses[1:]]
        self.failed.update(zip(rows.tolist(), statuses, strict=True))
        outputs = clocks.index[rows] - 1
        clocks.t = clocks.t.index_copy(0, rows, self.times[outputs, rows])
        self.y = self.y.index_copy(0, rows, torch.stack(self.values)[outputs, rows])
        if self.options.checkpoint:
            failed = torch.zeros_like(clocks.index, dtype=torch.bool).index_fill(0, rows, True)
            self.trace.discard(failed, self.output_steps, clocks.t, self.y)
        clocks.finish(rows)

    def _explain(self, status: Status, sample: int, h: Tensor, invalid: bool) -> Failure:
        clocks, count = self.clocks, self.field.count
        row = slice(sample, sample + 1)
        size, pace = float(h[sample] * clocks.direction[sample]), float(clocks.pace[sample])
        stop = Stop(
            status,
            t=float(clocks.t[sample]),
            h=size,
            end=float(self.times[-1, sample]),
            y=self.y[row].detach(),
            y0=self.y0[row].detach(),
            sample=sample,
            steps=int(self.sample_steps[sample]),
            pace=abs(size) if math.isnan(pace) else pace,
            rejected=size if invalid else None,
        )
        field = of_one_sample(self.field, self.y.detach(), sample)
        failure = explain_failure(stop, field, self.solver, self.settings)
        self.field.count = count
        return failure

    def at_event(self, values: Tensor, *, exact: bool) -> EventResult:
        """Return outputs, times and states of the events; these are the last of the values."""
        if self.event_times is None:
            return EventResult(values)
        assert self.event is not None
        begin = (self.times[0], values[0])
        time, state = with_event_gradient(
            self.event, self.field, self.event_times, values[-1], begin, exact=exact
        )
        same = coincide(self.times, self.event_times, self.times.abs().amax(0))
        last, values = values[-1], values[:-1]
        if bool(same.any()):
            values = torch.where(same.view(*same.shape, *(1,) * (last.dim() - 1)), last, values)
        return EventResult(values, time, state)

    def statuses(self) -> tuple[Status, ...]:
        """Return how each sample ended."""
        statuses = [self.failed.get(sample, Status.DONE) for sample in range(self.y0.shape[0])]
        if self.event_times is not None:
            for sample in (~self.event_times.isnan()).nonzero().squeeze(1).tolist():
                statuses[sample] = Status.EVENT
        return tuple(statuses)


class ImplicitPerSample(PerSampleIntegration):
    """One solve by an implicit method; arguments as for `PerSampleIntegration`.

    All samples solve the equations of their steps at once. Each has its own derivative, factors
    and corrections: a sample that converges waits for the others unchanged, and one that fails
    takes a shorter step while the others advance.
    """

    def _begin(self) -> None:
        solver: Any = self.solver
        assert self.event is None and self.watch is None
        super()._begin()
        self.stepper = ImplicitStepper(solver, self.field, self.y, self.first)
        memory = self.stepper.memory(self.settings.control, self.norm)
        if isinstance(memory, PredictiveMemory):
            self.memory = memory

    def _attempt(self, attempt: Attempt, attempts: int) -> Tensor | None:
        count, self.stepper.state = self.field.count, (self.y,)
        attempt.y1 = self.stepper.attempt(*attempt.step)
        attempt.ratio = self.stepper.error_norms(self.norm)
        if self.tangent is not None:
            attempt.ratio = self.tangent.error_norms(attempt)
        self.statistics.sample_evaluations += (self.field.count - count) * len(self.y)
        attempt.accepted = (attempt.ratio <= 1) & attempt.active
        self.stepper.accept_lanes(attempt.accepted.cpu().numpy())
        return None

    def _next_factor(self, attempt: Attempt) -> Tensor:
        return self.memory.next_factor(attempt.ratio, attempt.accepted)
