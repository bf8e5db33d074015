"""Integration with one step size for the whole state: the loop of most solves."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from undamped.ode.callbacks import NAMES, Callbacks
from undamped.ode.failure import Stop, explain_failure, worst_sample
from undamped.ode.field import CountedField, all_finite
from undamped.ode.loop.clocks import RECENT
from undamped.ode.loop.control import first_step
from undamped.ode.loop.events import EPS, EventFunction, locate, with_event_gradient
from undamped.ode.loop.norm import ErrorNorm
from undamped.ode.loop.route import Route
from undamped.ode.loop.stability import StabilityControl
from undamped.ode.loop.tangent import TangentControl
from undamped.ode.methods.solver import Solver, Stepper
from undamped.ode.record import EventResult, Failure, Run, Statistics, Status, Step, Trace
from undamped.ode.settings import Settings

# Looking at stiffness costs two norms, so only every so many accepted steps.
STIFFNESS_EVERY = 16
# Parts of a step at which an event is looked for, beside its ends.
LOOKS = (0.25, 0.5, 0.75)
# Part of what is left of a step after an event in which no other is looked for.
JUST_PASSED = 1e-6


class Integration(Run):
    """One solve: `run` to its end, or `advance` step by step.

    Args:
        field: The field, counted.
        solver: The method.
        y0: Start value.
        times: Output times, the first of which is the start; increasing or decreasing.
        settings: Tolerances and limits.
        first: f(times[0], y0), where it is known; on the side of a jump that the steps are on.
        keep: Whether to keep states for recomputation.
        record: Whether to write down the steps, for repeating or undoing them.
        event: A function whose zero ends the solve.
        watch: Called with (stepper, t, h, end) before a step is accepted.
        norm: Of errors; that of the settings by default.
        differentiated: Whether gradients go through the steps, which have to be right too.
        tensors: What they go to besides the start, where it is known.
    """

    def __init__(
        self,
        field: CountedField,
        solver: Solver,
        y0: Tensor,
        times: Sequence[float],
        settings: Settings,
        *,
        first: Tensor | None = None,
        keep: bool = False,
        record: bool = False,
        event: EventFunction | None = None,
        watch: Callable[[Stepper, float, float, float], None] | None = None,
        norm: ErrorNorm | None = None,
        differentiated: bool = False,
        tensors: Sequence[Tensor] | None = None,
    ) -> None:
        self.field, self.solver, self.settings, self.times = field, solver, settings, times
        self.event, self.watch, self.keep, self.record = event, watch, keep, record or keep
        self.y0, self._norm, self.differentiated, self.tensors = y0, norm, differentiated, tensors
        self.jumps, self.callbacks = settings.jumps, Callbacks(field.function, field.packing)
        self._has_jumps = bool(self.jumps)
        self.t, self.route = times[0], Route(times, settings.stops)
        # Some methods evaluate the field to begin with, which counts.
        self.started = field.count
        self.stepper = solver.stepper(field, self.t, y0, first)
        self.first = first
        self.values: list[Tensor] = [y0]
        self.value_times = [self.t]
        """When the values are: output times, and events in between."""
        self.event_indices: list[int] = []
        """Which of the values are at events."""
        self.trace = Trace()
        self.statistics = Statistics()
        self.failure: Failure | None = None
        self.event_time: float | None = None
        self.adaptive = settings.step_size is None and solver.adaptive
        if self.callbacks.any and not self.adaptive:
            self.callbacks.warn_unused(NAMES[2:], f"'{solver.name}' with fixed steps")
        self.proposed = y0
        self.next_step: float | None = None
        """The next step size of an adaptive solve."""
        self.pace: float | None = None
        """Mean size of the last accepted steps."""
        self.rejected: float | None = None
        """Size of the last attempt, where it was rejected for a value that is not finite."""
        self.last_output = 0, self.stepper.state
        """Recorded steps up to the last output, and the state there."""

    @property
    def y(self) -> Tensor:
        """The solution so far."""
        return self.stepper.state[0]

    def run(self) -> None:
        """Integrate to the end, or until a failure."""
        for _ in self.advance():
            pass

    def advance(self) -> Iterator[float]:
        """Advance by one accepted step at a time, yielding its size."""
        steps = self._adaptive_steps() if self.adaptive else self._fixed_steps()
        for h in steps:
            self.statistics.evaluations = self.field.count - self.started
            if self.record and self.trace.steps[len(self.trace.steps) - 1].outputs:
                self.last_output = len(self.trace.steps), self.stepper.state
            yield h
        self.statistics.evaluations = self.field.count - self.started
        self.trace.final = self.stepper.state
        if self.failure is not None and self.record:
            # No output depends on what came last, and no gradient should meet it: zero times
            # infinity is not zero.
            count, state = self.last_output
            self.trace.cut(count, self.settings.checkpoint_steps, state)

    def statuses(self) -> tuple[Status, ...]:
        """Return how it ended."""
        if self.failure is not None:
            return (self.failure.status,)
        return (Status.DONE if self.event_time is None else Status.EVENT,)

    def at_event(self, values: Tensor, *, exact: bool) -> EventResult:
        """Return outputs, times and states of events, which are among the values."""
        if self.event is None or (self.event.terminal and self.event_time is None):
            return EventResult(values)
        start = values.new_tensor(self.times[0]), values[0]
        events = []
        for index in self.event_indices:
            time = values.new_tensor(self.value_times[index], dtype=torch.float64)
            events.append(
                with_event_gradient(self.event, self.field, time, values[index], start, exact=exact)
            )
        outputs = [k for k in range(len(values)) if k not in self.event_indices]
        if self.event.terminal:
            (time, state), last = events[0], len(outputs)
            # An output at the event's own time is the state there.
            if last < len(self.times) and self.route.coincide(
                self.times[last], self.value_times[-1]
            ):
                outputs.append(self.event_indices[0])
            return EventResult(values[outputs], time, state)
        times = [time for time, _ in events] or [values.new_empty(0)]
        states = [state for _, state in events]
        return EventResult(
            values[outputs],
            torch.stack(times) if events else times[0],
            torch.stack(states) if events else values[:0],
        )

    def _fixed_steps(self) -> Iterator[float]:
        size = None if self.settings.grid else self.settings.step_size
        # On other devices, reading a value at every step would wait for the device.
        every = self.y.device.type == "cpu"
        for begin, target, output in self.route.intervals():
            span = target - begin
            spans = 1.0 if size is None else abs(span) / size
            count = max(1, math.ceil(spans - 1e-9)) if math.isfinite(spans) else sys.maxsize
            h = span / count
            if math.isinf(h) and size is not None:
                h = math.copysign(size, span)
            if span == 0:
                self._write(self.y, self.t)
                continue
            for number in range(count):
                if self.statistics.accepted >= self.settings.max_steps:
                    self._fail(Status.MAX_STEPS, h, None)
                    return
                self.proposed = self._attempt(h)
                last = number + 1 == count
                if (every or last) and not all_finite(self.proposed):
                    self._fail(Status.NON_FINITE, h, self.proposed)
                    return
                after = target if last else begin + (number + 1) * h
                self._take(h, after, ((output, None),) if last and output is not None else ())
                yield h
                if self.event_time is not None:
                    return

    def _attempt(self, h: float) -> Tensor:
        """Attempt a step, on its side of a jump."""
        if self.callbacks.any:
            self.callbacks.attempt(self.t, self.y, h)
        if not self._has_jumps:
            return self.stepper.attempt(self.t, h)
        window = self.jumps.window(self.t, h)
        if window is not None:
            self.stepper.restart()
        with self.field.within(window):
            return self.stepper.attempt(self.t, h)

    def _adaptive_steps(self) -> Iterator[float]:
        settings, stepper = self.settings, self.stepper
        assert self.solver.error_order is not None
        norm = self._norm or ErrorNorm.of(settings, self.field.packing)
        memory = stepper.memory(settings.control, norm)
        h, route = self._first_step(self.solver.error_order, norm), self.route
        # Few Python calls per step: without callbacks and jumps the stepper is called directly.
        plain = not self.callbacks.any and not self._has_jumps
        index, attempts = 1, 0
        tangent, stability = None, StabilityControl(self.field)
        if self.differentiated and self.y.numel():
            tangent = TangentControl(self.field, self.solver, settings, norm, self.y, self.tensors)
        while index < len(self.times):
            target = route.target(self.t, index, lands_everywhere=not self.solver.dense)
            remaining = abs(target - self.t)
            landing = h >= remaining * (1 - 1e-12)
            size = remaining if landing else h
            signed = route.direction * size
            if size == 0:
                self._write(self.y, self.t)
                index += 1
                continue
            if attempts >= settings.max_steps:
                self._fail(Status.MAX_STEPS, signed, None)
                return
            if self.t + signed == self.t:
                self._fail(Status.STEP_TOO_SMALL, signed, None)
                return
            attempts += 1
            self.proposed = stepper.attempt(self.t, signed) if plain else self._attempt(signed)
            ratio = stepper.error_norm(norm)
            if tangent is not None and not tangent.pause and ratio <= 1:
                ratio = self._with_tangent(tangent, ratio, signed)
            if not (ratio <= 1 or (size <= settings.min_step and math.isfinite(ratio))):
                self._reject(signed, ratio)
                h = max(settings.min_step, size * memory.next_factor(ratio, False))
                if not h >= route.smallest_step(self.t):
                    ends = self.y.detach(), self.proposed.detach()
                    self._fail(Status.STEP_TOO_SMALL, signed, norm.ratio(stepper.error(), *ends))
                    return
                continue
            after = target if landing else self.t + signed
            outputs = route.outputs(self.t, index, after)
            index += len(outputs)
            self._note_pace(size)
            bound = settings.max_step or math.inf
            if tangent is not None:
                tangent.accept()
                bound = min(bound, stability.largest_step(stepper, self.t, signed, self.jumps))
            self._take(signed, after, outputs)
            proposed = size * memory.next_factor(ratio, True)
            # A step cut short to land somewhere says little about the size of the next one.
            proposed = max(h, proposed) if landing and h > size else proposed
            h = self.next_step = max(settings.min_step, min(bound, proposed))
            yield signed
            if self.event_time is not None:
                return

    def _with_tangent(self, tangent: TangentControl, ratio: float, h: float) -> float:
        """Return the error of an attempt, with that of its derivative."""
        window = self.jumps.window(self.t, h)
        fresh = window is not None or self.statistics.accepted == 0
        with self.field.within(window):
            return tangent.error_norm(self.stepper, ratio, self.proposed, (self.t, h), fresh)

    def _reject(self, h: float, ratio: float) -> None:
        """Take down an attempt that was not good enough."""
        self.statistics.rejected += 1
        self.rejected = h if math.isnan(ratio) else None
        if self.callbacks.any:
            self.callbacks.rejected(self.t, self.y, h)

    def _note_pace(self, size: float) -> None:
        """Take down the size of a step about to be accepted, and now and then how stiff it is."""
        self.rejected = None
        pace = size if self.pace is None else self.pace
        self.pace = pace + (size - pace) / RECENT
        if self.statistics.accepted % STIFFNESS_EVERY == 0:
            self._look_at_stiffness(size)

    def _first_step(self, order: int, norm: ErrorNorm) -> float:
        settings = self.settings
        limit = math.inf if settings.max_step is None else settings.max_step
        if settings.first_step is not None:
            return min(settings.first_step, limit)
        with torch.no_grad():
            y = self.y.detach()
            slope = self.first
            if slope is None:
                with self.field.within(self.jumps.window(self.t, self.route.direction)):
                    slope = self.field(torch.full((), self.t, dtype=y.dtype, device=y.device), y)
            slope = slope.detach()

            def ahead(size: float) -> Tensor:
                moved = torch.add(y, slope, alpha=self.route.direction * size)
                time = torch.full(
                    (), self.t + self.route.direction * size, dtype=y.dtype, device=y.device
                )
                return self.field(time, moved)

            h = first_step(
                y,
                slope,
                order=order,
                measure=lambda terms, parts: self.stepper.measure(norm, y, terms, parts),
                ahead=ahead,
            )
        return min(float(h), limit)

    def _take(self, h: float, after: float, outputs: tuple[tuple[int, float | None], ...]) -> None:
        """Accept the attempted step, collecting the outputs inside it."""
        event_size = None if self.event is None else self._find_event(h)
        if event_size is not None:
            self._meet_event(event_size, after, outputs)
            return
        times, inside = [], []
        if outputs:
            times = [self.times[index] for index, _ in outputs]
            outputs = tuple(
                (index + len(self.event_indices), fraction) for index, fraction in outputs
            )
        if self.watch is not None:
            self.watch(self.stepper, self.t, h, after)
        if outputs:
            inside = [
                self.stepper.inside(h, fraction) for _, fraction in outputs if fraction is not None
            ]
        if self.record:
            self._record(Step(self.t, h, outputs))
        if self.callbacks.any:
            self.callbacks.accepted(self.t, self.y, h)
        self._count(h)
        self.stepper.accept()
        self.t = after
        for value, time in zip(inside, times, strict=False):
            self._write(value, time)
        if outputs and outputs[-1][1] is None:
            self._write(self.y, after)

    def _write(self, value: Tensor, time: float) -> None:
        self.values.append(value)
        self.value_times.append(time)

    @torch.no_grad()
    def _find_event(self, h: float, after: float = 0.0) -> float | None:
        """Return how far into the attempted step the first event lies, or None.

        Args:
            h: Size of the step.
            after: Part of it that is passed over, where an event has just been.
        """
        event, t, state = self.event, self.t, self.stepper.state
        assert event is not None

        def at(size: Tensor) -> Tensor:
            ahead = size.item()
            moved = self.solver.step(self.field, t, ahead, state)[0][0]
            return event(t + ahead, moved).reshape(1)

        end = event(t + h, self.proposed).reshape(1)
        size = torch.tensor([h], dtype=torch.float64, device=end.device)
        begin = at(after * size) if after else event(t, state[0]).reshape(1)
        values = [begin, *(self._event_inside(h, part) for part in LOOKS), end]
        crossings = [k for k, pair in enumerate(pairwise(values)) if event.crossed(*pair)]
        if not crossings:
            return None
        low, high = after * size, size
        if len(crossings) > 1 or not event.crossed(begin, end):
            # The first of several, between two fractions at which the event was evaluated.
            first = crossings[0]
            if first:
                low = LOOKS[first - 1] * size
                begin = at(low)
            if first < len(LOOKS):
                high = LOOKS[first] * size
                end = at(high)
            if not event.crossed(begin, end):
                return None
        tolerance = torch.full_like(size, 8 * EPS * max(abs(t), abs(t + h)))
        return (low + locate(lambda part: at(low + part), high - low, begin, end, tolerance)).item()

    def _event_inside(self, h: float, part: float) -> Tensor:
        """Return g at a part of the attempted step, roughly where there is no polynomial in it."""
        assert self.event is not None
        if self.solver.dense:
            state = self.stepper.inside(h, part)
        else:
            state = torch.lerp(self.y, self.proposed, part)
        return self.event(self.t + part * h, state).reshape(1)

    def _count(self, h: float) -> None:
        statistics = self.statistics
        statistics.accepted += 1
        if abs(h) < statistics.smallest_step:
            statistics.smallest_step = abs(h)

    def _record(self, step: Step) -> None:
        if self.keep and len(self.trace.steps) % self.settings.checkpoint_steps == 0:
            self.trace.checkpoints.append(self.stepper.state)
        self.trace.steps.append(step)

    def _meet_event(
        self, h: float, after: float, outputs: tuple[tuple[int, float | None], ...]
    ) -> None:
        """Step to the event, landing at outputs on the way; continue if it is not terminal."""
        assert self.event is not None
        when = self.t + h
        times = [self.times[index] for index, _ in outputs]
        before = [time for time in times if self.route.before(time, when)]
        if self.event.terminal:
            before = [time for time in before if not self.route.coincide(time, when)]
        for time in before:
            self._land(time)
        self._land(when)
        self.event_indices.append(len(self.values) - 1)
        if self.event.terminal:
            self.event_time = when
            return
        rest = outputs[len(before) :]
        while rest and self.times[rest[0][0]] == when:
            self._write(self.y, when)
            rest = rest[1:]
        if self.t == after:
            return
        self.proposed = self._attempt(after - when)
        another = self._find_event(after - when, JUST_PASSED)
        if another is not None:
            self._meet_event(another, after, rest)
            return
        for index, _ in rest:
            self._land(self.times[index])
        if self.t != after:
            self._land(after, output=False)

    def _land(self, time: float, *, output: bool = True) -> None:
        """Step to an output, or to an event, which comes where the next output would."""
        h = time - self.t
        self._attempt(h)
        if self.watch is not None:
            self.watch(self.stepper, self.t, h, time)
        if self.record:
            self._record(Step(self.t, h, ((len(self.values), None),) if output else ()))
        self._count(h)
        self.stepper.accept()
        self.t = time
        if output:
            self._write(self.y, time)

    def _look_at_stiffness(self, size: float) -> None:
        rate = self.stepper.fastest_rate()
        if rate is not None and math.isfinite(rate):
            self.statistics.note_stiffness(size * rate)

    def _fail(self, status: Status, h: float, ratio: Tensor | None) -> None:
        count, y = self.field.count, self.y.detach()
        if ratio is None:
            time = torch.full((), self.t, dtype=y.dtype, device=y.device)
            with torch.no_grad():
                ratio = self.field(time, y)
        stop = Stop(
            status,
            t=self.t,
            h=h,
            end=self.route.end,
            y=y,
            y0=self.y0.detach(),
            steps=self.statistics.accepted,
            pace=abs(h) if self.pace is None else self.pace,
            sample=worst_sample(ratio.detach(), self.field.packing.batched),
            rejected=self.rejected,
        )
        self.failure = explain_failure(stop, self.field, self.solver, self.settings)
        self.field.count = count
