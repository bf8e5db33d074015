"""Integration with a step size, a time and an end for every sample of a batch.

A sample that refuses a step, or has finished, takes a step of size zero: its state stays bit for
bit what it was, and repeating the solve needs nothing but times and sizes. With `compact`, only
samples still under way are shown to the field at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from undamped.ode.failure import explain_failure, of_one_sample
from undamped.ode.field import CountedField
from undamped.ode.loop.batch import LOOKS, RECENT, STIFFNESS_EVERY
from undamped.ode.loop.control import ControlMemory, first_step
from undamped.ode.loop.events import EPS, EventFunction, locate, with_event_gradient
from undamped.ode.loop.norm import ErrorNorm, sample_norms
from undamped.ode.loop.route import AT_ZERO, LONG
from undamped.ode.loop.run import EventResult, Run
from undamped.ode.loop.sample_failures import failed_status, forget
from undamped.ode.loop.stability import SampleStabilityControl
from undamped.ode.loop.tangent import SampleTangentControl
from undamped.ode.methods.combine import Terms, combine_terms
from undamped.ode.methods.explicit.runge_kutta import RungeKutta
from undamped.ode.record import Failure, Statistics, Status, Step, Trace
from undamped.ode.settings import Settings
from undamped.ode.state.times import coincide

Watch = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, list[Tensor]], None]


class PerSampleIntegration(Run):
    """One solve in which every sample has its own step size.

    Args:
        field: The field; it is given times of shape (batch, 1, …) and must treat samples apart.
        solver: An explicit method with an error estimate.
        y0: Start values, (batch, …).
        times: Output times (outputs, batch), each column increasing or decreasing.
        settings: Tolerances and limits.
        first: f at the start, where it is known.
        keep: Whether to keep states for recomputation.
        compact: Whether the field sees only unfinished samples.
        event: A function of every sample whose zero ends that sample.
        watch: Called with (rows, t, h, y, y1, stages) after every attempt, h zero where rejected.
        norm: Of errors; that of the settings by default.
        differentiated: Whether gradients go through the steps, which have to be right too.
    """

    solver: RungeKutta

    def __init__(
        self,
        field: CountedField,
        solver: RungeKutta,
        y0: Tensor,
        times: Tensor,
        settings: Settings,
        *,
        first: Tensor | None = None,
        keep: bool = False,
        compact: bool = False,
        event: EventFunction | None = None,
        watch: Watch | None = None,
        norm: ErrorNorm | None = None,
        differentiated: bool = False,
    ) -> None:
        self.field, self.solver, self.settings, self.times = field, solver, settings, times
        self.keep, self.compact, self.first = keep, compact, first
        self.event, self.watch = event, watch
        self.y0 = self.y = y0
        batch = y0.shape[0]
        self.column = (batch,) + (1,) * (y0.dim() - 1)
        self.t = times[0].clone()
        self.direction = torch.sign(times[-1] - times[0])
        self.index = torch.ones(batch, dtype=torch.long, device=y0.device)
        self.values: list[Tensor] = [y0] + [torch.full_like(y0, math.nan) for _ in times[1:]]
        # After the outputs, where there may be events: the states at them.
        self.event_times: Tensor | None = None
        if event is not None:
            self.event_times = torch.full_like(self.t, math.nan)
            self.values.append(torch.full_like(y0, math.nan))
        self.trace = Trace()
        self.statistics = Statistics()
        self.norm = norm or ErrorNorm.of(settings, field.packing)
        self.tangent: SampleTangentControl | None = None
        self.stability: SampleStabilityControl | None = None
        if differentiated and y0.numel():
            if not solver.implicit:
                limit = solver.tableau.stability_limit
                self.stability = SampleStabilityControl(field, limit, y0)
            self.tangent = SampleTangentControl(field, solver, settings, self.norm, y0)
        self.failure: Failure | None = None
        """Of the sample that failed first."""
        self.failed: dict[int, Status] = {}
        self.pace = torch.full_like(self.t, math.nan)
        """Mean size of the last accepted steps."""
        self.written = torch.zeros(batch, dtype=torch.long, device=y0.device)
        """Recorded steps up to the last output of each."""
        self.sample_steps = torch.zeros(batch, dtype=torch.long, device=y0.device)

    def run(self) -> None:
        """Go on until every sample is done, or cannot go on."""
        started = self.field.count
        if self.y.numel():
            self._loop()
        else:
            self.values = [self.y] * len(self.values)
            self.index = self.index.fill_(self.times.shape[0])
        self.statistics.evaluations = self.field.count - started
        self.trace.final = (self.y,)

    def _loop(self) -> None:
        settings, solver = self.settings, self.solver
        assert solver.error_order is not None
        h, first = self._first_steps(solver.error_order), self.first
        memory = ControlMemory(
            settings.control,
            solver.error_order,
            torch.ones_like(h),
            torch.ones_like(h),
            torch.zeros_like(h, dtype=torch.bool),
        )
        last_output = self.times.shape[0] - 1
        everything = torch.arange(h.shape[0], device=h.device)
        for attempts in range(settings.max_steps + 1):
            self._skip_empty_intervals()
            active = self.index <= last_output
            rows = everything if bool(active.all()) else active.nonzero().squeeze(1)
            if not len(rows):
                return
            if attempts == settings.max_steps:
                self._fail(rows, [Status.MAX_STEPS] * len(rows), h)
                return
            if not self.compact:
                rows = everything
            target = self.times.gather(0, self.index.clamp_max(last_output).unsqueeze(0))[0]
            remaining = torch.where(active, (target - self.t).abs(), torch.zeros_like(h))
            landing = h >= remaining * (1 - 1e-12)
            size = torch.where(landing, remaining, h)
            signed = (size * self.direction)[rows]
            y, t = self.y[rows], self.t[rows]
            column = (len(rows), *self.column[1:])
            y1, taken = solver.stages(
                self.field,
                t.view(column),
                signed.view(column),
                y,
                first=None if first is None else first[rows],
                last=True,
            )
            self.statistics.sample_evaluations += (len(taken) - (first is not None)) * len(rows)
            ratio = self._ratios(rows, signed.view(column), taken, y, y1)
            if self.tangent is not None:
                attempt = t.view(column), signed.view(column)
                ratio = self.tangent.error_norms(rows, ratio, y, y1, attempt)
            if self.stability is not None and attempts % self.stability.EVERY == 0 < attempts:
                with torch.no_grad():
                    error = solver.estimate(signed.view(column), taken)
                assert error is not None
                self.stability.look(rows, (t.view(column), signed.view(column)), y, taken[0], error)
            good = (ratio <= 1) & active[rows]
            if attempts % STIFFNESS_EVERY == 0:
                self._look_at_stiffness(good, taken)
            if torch.is_grad_enabled() and not bool(torch.isfinite(ratio).all()) and good.any():
                # A refused value gets no gradient, yet zero times infinity is not zero: what
                # is not finite must not be in the graph.
                moved = torch.where(good, signed, torch.zeros_like(signed)).view(column)
                started = None if first is None else first[rows]
                y1, taken = solver.stages(
                    self.field, t.view(column), moved, y, first=started, last=True
                )
            happening = None
            if self.event is not None:
                found = self._find_events(rows, good, t, signed, y, y1)
                if found is not None:
                    happening, signed = found
                    landing = landing.index_put((rows[happening],), torch.tensor(False))
                    y1, taken = solver.stages(
                        self.field, t.view(column), signed.view(column), y, last=True
                    )
            if self.watch is not None:
                done = torch.where(good, signed, torch.zeros_like(signed))
                self.watch(rows, t, done, y, y1, taken)
            self._advance(rows, good, y1, signed, landing[rows], target[rows])
            if self.tangent is not None:
                self.tangent.accept_rows(rows, good)
            if happening is not None:
                self._end_at_events(rows[happening])
            first = self._next_first(first, rows, good, taken)
            part = memory.of(rows)
            factor = part.next_factor(ratio, good)
            memory.put(rows, part)
            h = self._resize(h, size, rows, factor, ratio, good, landing, active)

    def _resize(
        self,
        h: Tensor,
        size: Tensor,
        rows: Tensor,
        factor: Tensor,
        ratio: Tensor,
        good: Tensor,
        landing: Tensor,
        active: Tensor,
    ) -> Tensor:
        """Return the next step sizes; samples whose steps became too small fail.

        Args:
            h: Step sizes that were chosen, (batch,).
            size: Those taken, shorter where a sample landed on an output.
            rows: The samples that attempted a step.
            factor: What their sizes are multiplied by.
            ratio: Their errors.
            good: Which of them accepted.
            landing: Which samples landed on an output.
            active: Which samples are under way.
        """
        settings, last_output, h = self.settings, self.times.shape[0] - 1, h.clone()
        proposed = size[rows] * factor
        cut = good & landing[rows] & (h[rows] > size[rows])
        proposed = torch.where(cut, torch.maximum(h[rows], proposed), proposed)
        if settings.max_step is not None:
            proposed = proposed.clamp_max(settings.max_step)
        if self.stability is not None:
            proposed = torch.minimum(proposed, self.stability.largest[rows])
        h[rows] = torch.where(active[rows], proposed, h[rows])
        known = torch.where(self.pace[rows].isnan(), size[rows], self.pace[rows])
        recent = torch.where(good, known + (size[rows] - known) / RECENT, self.pace[rows])
        self.pace = self.pace.index_copy(0, rows, recent)
        now = self.t[rows]
        whole = self.times[:, rows].abs().amax(0).clamp_max(LONG)
        smallest = 16 * 2.3e-16 * torch.maximum(now.abs(), AT_ZERO * whole)
        # A size that is NaN is not large enough either, nor is one that moves no clock.
        stuck = ~good & ~(proposed >= smallest)
        stuck |= now + proposed * self.direction[rows] == now
        stuck &= active[rows] & (self.index[rows] <= last_output)
        if bool(stuck.any()):
            lost, broken = rows[stuck], ratio[stuck].isnan()
            found = failed_status(broken, self.y[lost], self.y0[lost])
            self._fail(lost, found, size, broken=bool(broken[0]))
        return h

    @torch.no_grad()
    def _first_steps(self, order: int) -> Tensor:
        settings, y = self.settings, self.y
        limit = math.inf if settings.max_step is None else settings.max_step
        if settings.first_step is not None:
            return torch.full_like(self.t, min(settings.first_step, limit))
        time = self.t.view(self.column)
        slope = self.field(time.to(y.dtype), y) if self.first is None else self.first

        def measure(terms: Terms, parts: Sequence[Tensor]) -> Tensor:
            return self.norm.each(combine_terms(None, 1.0, terms, parts), y, y)

        def ahead(size: Tensor) -> Tensor:
            by = (size * self.direction).view(self.column)
            return self.field((time + by).to(y.dtype), y + by.to(y.dtype) * slope)

        h = first_step(y, slope, order=order, measure=measure, ahead=ahead)
        return torch.as_tensor(h).clamp_max(limit)

    @torch.no_grad()
    def _find_events(
        self, rows: Tensor, good: Tensor, t: Tensor, signed: Tensor, y: Tensor, y1: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """Return which rows meet their event in this step, and step sizes that end there."""
        assert self.event is not None
        column = (len(rows), *self.column[1:])
        event, start, value = self.event, t.view(column), y.detach()
        places = (0.0, *LOOKS, 1.0)
        values = [event(start, value)]
        for part in LOOKS:
            # On the line between the ends: a crossing found there is looked at again.
            inside = torch.lerp(value, y1.detach(), part)
            values.append(event((t + part * signed).view(column), inside))
        values.append(event((t + signed).view(column), y1.detach()))
        crossings = [good & event.crossed(*pair) for pair in pairwise(values)]
        happening = torch.stack(crossings).any(0)
        if not bool(happening.any()):
            return None

        def at(size: Tensor) -> Tensor:
            moved, _ = self.solver.stages(self.field, start, size.view(column), value)
            return event((t + size).view(column), moved)

        low, high = torch.zeros_like(signed), signed
        before, after = values[0], values[-1]
        several = happening & (
            (sum(c.long() for c in crossings) > 1) | ~event.crossed(before, after)
        )
        if bool(several.any()):
            # The first of them, between two places that were looked at.
            first = torch.stack(crossings).long().argmax(0)
            parts = torch.tensor(places, dtype=signed.dtype, device=signed.device)
            low = torch.where(several, parts[first] * signed, low)
            high = torch.where(several, parts[first + 1] * signed, high)
            before = torch.where(several, at(low), before)
            after = torch.where(several, at(high), after)
            happening = happening & event.crossed(before, after)
            if not bool(happening.any()):
                return None
        width = torch.where(happening, high - low, torch.zeros_like(signed))
        tolerance = 8 * EPS * torch.maximum(t.abs(), (t + signed).abs())
        found = low + locate(lambda part: at(low + part), width, before, after, tolerance)
        return happening, torch.where(happening, found, signed)

    def _end_at_events(self, rows: Tensor) -> None:
        """Write the states at events, and let these samples rest."""
        assert self.event_times is not None
        self.event_times[rows] = self.t[rows]
        place = self.times.shape[0]
        self.values[place] = self.values[place].index_copy(0, rows, self.y[rows])
        self._note(place, rows)
        self.index = self.index.index_fill(0, rows, place)

    def _skip_empty_intervals(self) -> None:
        """An output at the time already reached needs no step."""
        count = self.times.shape[0]
        while True:
            waiting = self.index < count
            target = self.times.gather(0, self.index.clamp_max(count - 1).unsqueeze(0))[0]
            here = waiting & (target == self.t)
            if not bool(here.any()):
                return
            # Only a zero interval at the very start, or repeated times, come here.
            self._write(here.nonzero().squeeze(1))

    def _write(self, rows: Tensor) -> None:
        index = self.index[rows]
        for output in index.unique().tolist():
            chosen = rows[index == output]
            self.values[output] = self.values[output].index_copy(0, chosen, self.y[chosen])
            self._note(output, chosen)
        self.index = self.index.index_add(0, rows, torch.ones_like(rows))

    def _note(self, output: int, rows: Tensor) -> None:
        """Remember which samples wrote an output after the last recorded step."""
        step = Step(0.0, 0.0, ((output, None),), landed=rows)
        self._record(step)
        self.written = self.written.index_fill(0, rows, len(self.trace.steps))

    def _record(self, step: Step) -> None:
        if self.keep and len(self.trace.steps) % self.settings.piece == 0:
            self.trace.checkpoints.append((self.y,))
        self.trace.steps.append(step)

    def _advance(
        self,
        rows: Tensor,
        good: Tensor,
        y1: Tensor,
        signed: Tensor,
        landing: Tensor,
        target: Tensor,
    ) -> None:
        accepted = int(good.sum())
        self.statistics.accepted += accepted
        self.statistics.rejected += int((~good & (self.index[rows] < self.times.shape[0])).sum())
        if not accepted:
            return
        taken = torch.where(good, signed, torch.zeros_like(signed))
        column = (len(rows), *self.column[1:])
        everyone = len(rows) == self.y.shape[0]
        self._record(
            Step(self.t[rows].view(column), taken.view(column), rows=None if everyone else rows)
        )
        new = torch.where(good.view(column), y1, self.y[rows])
        self.y = new if everyone else self.y.index_copy(0, rows, new)
        time = torch.where(landing, target, self.t[rows] + signed)
        self.t = self.t.index_copy(0, rows, torch.where(good, time, self.t[rows]))
        self.sample_steps = self.sample_steps.index_add(0, rows, good.long())
        self.statistics.smallest_step = min(
            self.statistics.smallest_step, float(signed[good].abs().min())
        )
        landed = rows[good & landing]
        if len(landed):
            self._write(landed)

    def _ratios(
        self, rows: Tensor, h: Tensor, taken: list[Tensor], y: Tensor, y1: Tensor
    ) -> Tensor:
        with torch.no_grad():
            error = self.solver.estimate(h, taken)
            assert error is not None
            return self.norm.of_rows(rows).each(error, y, y1)

    @torch.no_grad()
    def _look_at_stiffness(self, good: Tensor, taken: list[Tensor]) -> None:
        pair = self.solver.tableau.end_pair
        if pair is None:
            return
        slope, distance = (sample_norms(combine_terms(None, 1.0, x, taken)) for x in pair)
        rates = (slope / distance)[good & (distance > 0)]
        rates = rates[torch.isfinite(rates)]
        if len(rates):
            known, estimate = self.statistics.stiffness, float(rates.max())
            self.statistics.stiffness = estimate if known != known else max(known, estimate)

    def _next_first(
        self, first: Tensor | None, rows: Tensor, good: Tensor, taken: list[Tensor]
    ) -> Tensor | None:
        if not self.solver.tableau.reuses_last:
            return None
        column = (len(rows), *self.column[1:])
        slope = torch.where(good.view(column), taken[-1], taken[0])
        if first is None or len(rows) == self.y.shape[0]:
            return slope if len(rows) == self.y.shape[0] else None
        return first.index_copy(0, rows, slope)

    def _fail(self, rows: Tensor, found: list[Status], h: Tensor, *, broken: bool = False) -> None:
        """Explain the first failure, and let the samples that failed rest at their last output."""
        if self.failure is None:
            self._explain(found[0], int(rows[0]), h, broken)
            assert self.failure is not None
            found = [self.failure.status, *found[1:]]
        self.failed.update(zip(rows.tolist(), found, strict=True))
        outputs = self.index[rows] - 1
        self.t = self.t.index_copy(0, rows, self.times[outputs, rows])
        self.y = self.y.index_copy(0, rows, torch.stack(self.values)[outputs, rows])
        if self.keep:
            failed = torch.zeros_like(self.index, dtype=torch.bool).index_fill(0, rows, True)
            forget(self.trace, self.settings.piece, failed, self.written, self.t, self.y)
        self.index = self.index.index_fill(0, rows, self.times.shape[0])

    def _explain(self, status: Status, sample: int, h: Tensor, broken: bool) -> None:
        counted = self.field.count
        part = slice(sample, sample + 1)
        size = float(h[sample] * self.direction[sample])
        pace = float(self.pace[sample])
        self.failure = explain_failure(
            status,
            field=of_one_sample(self.field, self.y.detach(), sample),
            t=float(self.t[sample]),
            h=size,
            end=float(self.times[-1, sample]),
            y=self.y[part].detach(),
            y0=self.y0[part].detach(),
            sample=sample,
            solver=self.solver,
            settings=self.settings,
            steps=int(self.sample_steps[sample]),
            pace=abs(size) if math.isnan(pace) else pace,
            refused=size if broken else None,
        )
        self.field.count = counted

    def at_event(self, values: Tensor, *, exact: bool) -> EventResult:
        """Return outputs, times and states of the events; these are the last of the values."""
        if self.event_times is None:
            return EventResult(values)
        assert self.event is not None
        begin = (self.times[0], values[0])
        time, state = with_event_gradient(
            self.event, self.field, self.event_times, values[-1], begin, exact=exact
        )
        there = coincide(self.times, self.event_times, self.times.abs().amax(0))
        last, values = values[-1], values[:-1]
        if bool(there.any()):
            values = torch.where(there.view(*there.shape, *(1,) * (last.dim() - 1)), last, values)
        return EventResult(values, time, state)

    def statuses(self) -> tuple[Status, ...]:
        """Return how each sample ended."""
        found = [self.failed.get(sample, Status.DONE) for sample in range(len(self.index))]
        if self.event_times is not None:
            for sample in (~self.event_times.isnan()).nonzero().squeeze(1).tolist():
                found[sample] = Status.EVENT
        return tuple(found)
