"""Integration with one step size for the complete state: the loop of most solves."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import torch
from torch import Tensor

from undamped.ode.failure import Stop, explain_failure, worst_sample
from undamped.ode.field import CALLBACKS, Callbacks, all_finite
from undamped.ode.loop.clocks import RECENT
from undamped.ode.loop.control import first_step
from undamped.ode.loop.events import FRACTIONS, first_event, with_event_gradient
from undamped.ode.loop.route import Outputs, Route
from undamped.ode.loop.tangent import TangentControl
from undamped.ode.record import EventResult, Run, Status, Step

# The stiffness estimate costs two norms, so it is made only every so many accepted steps.
STIFFNESS_EVERY = 16
# Fraction of the rest of a step, after an event, in which no other event is searched for.
JUST_PASSED = 1e-6


class Integration(Run):
    """One solve: `run` to its end, or `advance` step by step; arguments as for `Run`."""

    def _prepare(self) -> None:
        field, solver, settings, options = self.field, self.solver, self.settings, self.options
        self.record = options.record or options.checkpoint
        self.jumps, self.callbacks = settings.jumps, Callbacks(field.function, field.packing)
        self.t, self.route = self.times[0], Route(self.times, settings.stops)
        # Some methods evaluate the field to begin with, which counts.
        self.started = field.count
        self.stepper = solver.stepper(field, self.t, self.y0, options.first)
        # Few Python calls per step: without callbacks and jumps the stepper is called directly.
        plain = not self.callbacks.any and not self.jumps
        self.attempt = self.stepper.attempt if plain else self._attempt
        self.value_times = [self.t]
        """When the values are: output times, and events in between."""
        self.event_indices: list[int] = []
        """Which of the values are at events."""
        self.event_time: float | None = None
        self.adaptive = settings.step_size is None and solver.adaptive
        if self.callbacks.any and not self.adaptive:
            self.callbacks.warn_unused(CALLBACKS[2:], f"'{solver.name}' with fixed steps")
        self.proposed = self.y0
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
            if self.record and self.trace[len(self.trace) - 1].outputs:
                self.last_output = len(self.trace), self.stepper.state
            yield h
        self.statistics.evaluations = self.field.count - self.started
        self.trace.final = self.stepper.state
        if self.failure is not None and self.record:
            # No output depends on what came last, and no gradient should meet it: zero times
            # infinity is not zero.
            self.trace.cut(*self.last_output)

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
        if not events:
            return EventResult(values[outputs], values.new_empty(0), values[:0])
        times, states = zip(*events, strict=True)
        return EventResult(values[outputs], torch.stack(times), torch.stack(states))

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
                self.proposed = self.attempt(self.t, h)
                last = number + 1 == count
                if (every or last) and not all_finite(self.proposed):
                    self._fail(Status.NON_FINITE, h, self.proposed)
                    return
                after = target if last else begin + (number + 1) * h
                self._accept(h, after, ((output, None),) if last and output is not None else ())
                yield h
                if self.event_time is not None:
                    return

    def _attempt(self, t: float, h: float) -> Tensor:
        """Attempt a step on its side of a jump, after its callback."""
        if self.callbacks.any:
            self.callbacks.call("callback_step", t, self.y, h)
        window = self.jumps.window(t, h)
        if window is not None:
            self.stepper.restart()
        with self.field.within(window):
            return self.stepper.attempt(t, h)

    def _adaptive_steps(self) -> Iterator[float]:
        settings, stepper, norm, route = self.settings, self.stepper, self.norm, self.route
        memory, tangent = stepper.memory(settings.control, norm), self._tangent_control()
        h, index, attempts = self._first_step(), 1, 0
        largest = limit = settings.max_step or math.inf
        while index < len(self.times):
            target = route.target(self.t, index, lands_everywhere=not self.solver.dense)
            remaining = abs(target - self.t)
            if remaining == 0:
                self._write(self.y, self.t)
                index += 1
                continue
            landing = h >= remaining * (1 - 1e-12)
            size = remaining if landing else h
            signed = route.direction * size
            if attempts >= settings.max_steps or self.t + signed == self.t:
                gave_up = attempts >= settings.max_steps
                self._fail(Status.MAX_STEPS if gave_up else Status.STEP_TOO_SMALL, signed, None)
                return
            attempts += 1
            self.proposed = self.attempt(self.t, signed)
            ratio = stepper.error_norm(norm)
            if tangent is not None:
                ratio = tangent.error_norm(stepper, ratio, self.proposed, (self.t, signed))
            if not (ratio <= 1 or (size <= settings.min_step and math.isfinite(ratio))):
                h = max(settings.min_step, size * memory.next_factor(ratio, False))
                self._reject(signed, ratio, h)
                if self.failure is not None:
                    return
                continue
            after = target if landing else self.t + signed
            outputs = route.outputs(self.t, index, after)
            index += len(outputs)
            self._note_pace(size)
            if tangent is not None:
                largest = min(limit, tangent.accept(stepper, self.t, signed))
            self._accept(signed, after, outputs)
            proposed = size * memory.next_factor(ratio, True)
            # A step that was shortened to land somewhere says little about the next size.
            proposed = max(h, proposed) if landing and h > size else proposed
            h = self.next_step = max(settings.min_step, min(largest, proposed))
            yield signed
            if self.event_time is not None:
                return

    def _tangent_control(self) -> TangentControl | None:
        """Return what bounds the errors of derivatives, where gradients are taken through steps."""
        if not self.options.differentiated or not self.y.numel():
            return None
        control = TangentControl(self.field, self.solver, self.settings, self.norm, self.y)
        control.tensors = self.options.tensors
        return control

    def _reject(self, h: float, ratio: float, size: float) -> None:
        """Record an attempt that was not accurate enough; fail if the next would be too small."""
        self.statistics.rejected += 1
        self.rejected = h if math.isnan(ratio) else None
        if self.callbacks.any:
            self.callbacks.call("callback_reject_step", self.t, self.y, h)
        if not size >= self.route.smallest_step(self.t):
            ends = self.y.detach(), self.proposed.detach()
            self._fail(Status.STEP_TOO_SMALL, h, self.norm.ratio(self.stepper.error(), *ends))

    def _note_pace(self, size: float) -> None:
        """Record the size of a step about to be accepted, and at some steps its stiffness."""
        self.rejected = None
        pace = size if self.pace is None else self.pace
        self.pace = pace + (size - pace) / RECENT
        if self.statistics.accepted % STIFFNESS_EVERY == 0:
            rate = self.stepper.fastest_rate()
            if rate is not None and math.isfinite(rate):
                self.statistics.note_stiffness(size * rate)

    @torch.no_grad()
    def _first_step(self) -> float:
        settings, order, direction = self.settings, self.solver.error_order, self.route.direction
        assert order is not None
        limit = math.inf if settings.max_step is None else settings.max_step
        if settings.first_step is not None:
            return min(settings.first_step, limit)
        y, slope = self.y.detach(), self.first
        if slope is None:
            with self.field.within(self.jumps.window(self.t, direction)):
                slope = self.field(torch.full((), self.t, dtype=y.dtype, device=y.device), y)
        slope = slope.detach()

        def slope_after(size: float) -> Tensor:
            time = torch.full((), self.t + direction * size, dtype=y.dtype, device=y.device)
            return self.field(time, torch.add(y, slope, alpha=direction * size))

        h = first_step(
            y,
            slope,
            order=order,
            measure=lambda terms, parts: self.stepper.measure(self.norm, y, terms, parts),
            slope_after=slope_after,
        )
        return min(float(h), limit)

    def _accept(self, h: float, after: float, outputs: Outputs) -> None:
        """Accept the attempted step, collecting the outputs inside it."""
        event_size = None if self.event is None else self._find_event(h)
        if event_size is not None:
            self._meet_event(event_size, after, outputs)
            return
        times, inside = [], []
        if outputs:
            times = [self.times[index] for index, _ in outputs]
            shift = len(self.event_indices)
            outputs = tuple((index + shift, fraction) for index, fraction in outputs)
            inside = [
                self.stepper.inside(h, fraction) for _, fraction in outputs if fraction is not None
            ]
        if self.callbacks.any:
            self.callbacks.call("callback_accept_step", self.t, self.y, h)
        self._advance(h, after, outputs)
        for value, time in zip(inside, times, strict=False):
            self._write(value, time)
        if outputs and outputs[-1][1] is None:
            self._write(self.y, after)

    def _advance(self, h: float, after: float, outputs: Outputs) -> None:
        """Advance to the end of the attempted step."""
        if self.watch is not None:
            self.watch(self.stepper, self.t, h, after)
        if self.record:
            self.trace.append(Step(self.t, h, outputs), self.stepper.state)
        statistics = self.statistics
        statistics.accepted += 1
        if abs(h) < statistics.smallest_step:
            statistics.smallest_step = abs(h)
        self.stepper.accept()
        self.t = after

    def _write(self, value: Tensor, time: float) -> None:
        self.values.append(value)
        self.value_times.append(time)

    @torch.no_grad()
    def _find_event(self, h: float, after: float = 0.0) -> float | None:
        """Return how far into the attempted step the first event lies, or None.

        Args:
            h: Size of the step.
            after: Fraction of it that is passed over, where an event has just been.
        """
        event, t, state = self.event, self.t, self.stepper.state
        assert event is not None

        def at(size: Tensor) -> Tensor:
            length = size.item()
            moved = self.solver.step(self.field, t, length, state)[0][0]
            return event(t + length, moved).reshape(1)

        def inside(fraction: float) -> Tensor:
            # Approximate where the method has no polynomial inside its steps.
            if self.solver.dense:
                y = self.stepper.inside(h, fraction)
            else:
                y = torch.lerp(state[0], self.proposed, fraction)
            return event(t + fraction * h, y).reshape(1)

        end = event(t + h, self.proposed).reshape(1)
        size = torch.tensor([h], dtype=torch.float64, device=end.device)
        begin = at(after * size) if after else event(t, state[0]).reshape(1)
        values = [begin, *map(inside, FRACTIONS), end]
        crossing = first_event(event, values, torch.full_like(size, t), size, at, after)
        return None if crossing is None else crossing[1].item()

    def _meet_event(self, h: float, after: float, outputs: Outputs) -> None:
        """Step to the event, landing at outputs on the way; continue if it is not terminal."""
        assert self.event is not None
        when = self.t + h
        times = [self.times[index] for index, _ in outputs]
        before = [time for time in times if self.route.before(time, when)]
        if self.event.terminal:
            before = [time for time in before if not self.route.coincide(time, when)]
        for time in (*before, when):
            self._land(time)
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
        self.proposed = self.attempt(self.t, after - when)
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
        self.attempt(self.t, h)
        self._advance(h, time, ((len(self.values), None),) if output else ())
        if output:
            self._write(self.y, time)

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
