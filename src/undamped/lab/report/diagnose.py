"""`diagnose`: measure any model with all instruments and give a verdict."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.contract import Batch
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import instruments, models
from undamped.analysis.core import InapplicableError, Probe, Result
from undamped.analysis.core.gradients import Loss
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.gradient_flow import GradientFlow, gradient_flow
from undamped.analysis.recall import Recall
from undamped.lab.instruments.promises import PromiseMeasurements
from undamped.lab.report.model_report import ModelReport
from undamped.lab.report.remedies import remedies
from undamped.lab.tasks.task import Task
from undamped.lab.training.origins import versions
from undamped.models.point_model import PointModel
from undamped.models.sequence_model import SequenceModel
from undamped.models.task_model import TaskModel
from undamped.nn import LSTM
from undamped.ode.flows.continuous_flow import ContinuousFlow

Progress = Callable[[str], None]
STEPS, BATCH = 1000, 8
"""Length of random inputs, and number of sequences that are measured."""
CLOSED_FORM = "it is fitted in closed form, so it has no gradients or states of training"
"""Why most instruments do not apply to ridge regressions, trees and the like."""
GRACE = 0.05
"""Seconds after the end of the time in which an instrument can still say that it does not apply."""


class _OutOfTimeError(BaseException):
    """The time for a measurement is over; not an `Exception`, which a model might catch."""


def diagnose(
    model: nn.Module,
    inputs: Tensor | int | None = None,
    *,
    task: Task | None = None,
    loss: Loss | None = None,
    fraction: float = 0.01,
    name: str | None = None,
    measured: Sequence[str] | None = None,
    compare: bool = True,
    memory: bool = False,
    seed: int = 0,
    batch_first: bool | None = None,
    progress: Progress | None = None,
) -> ModelReport:
    """Measure a model and return a report with a verdict and advice.

    Args:
        model: A network or model of this library, a module of torch, or any other module.
        inputs: Its inputs; for a model of continuous depth (batch, features). An integer is the
            length of random inputs, for a model with an `input_size`. By default the first
            sequences of the task's test split, or random inputs of 1000 steps without a task.
        task: The task on which the model was or will be trained, for instruments that need data.
        loss: The loss of gradient flow; see `gradient_flow`.
        fraction: Where a gradient counts as vanished; see `gradient_flow`.
        name: Name of the model in the report.
        measured: Names of instruments; by default all but those that are only used on request.
        compare: Whether to compare with an untrained LSTM of the same size.
        memory: Whether to measure peak memory, which takes a few seconds for each length.
        seed: Seed of random inputs.
        batch_first: Whether inputs are (batch, time, features); see `gradient_flow`.
        progress: Called with the name of every measurement before it begins.

    Example:
        >>> report = diagnose(undamped.nn.UnICORNN(6, 32), 500)
        >>> report.verdict
    """
    probe = probe_of(
        model,
        inputs,
        task=task,
        loss=loss,
        fraction=fraction,
        name=name,
        memory=memory,
        seed=seed,
        batch_first=batch_first,
    )
    return examine(probe, measured=measured, compare=compare, progress=progress)


def probe_of(
    model: nn.Module,
    inputs: Tensor | int | None = None,
    *,
    task: Task | None = None,
    loss: Loss | None = None,
    fraction: float = 0.01,
    name: str | None = None,
    memory: bool = False,
    seed: int = 0,
    batch_first: bool | None = None,
) -> Probe:
    """Return a model with its inputs and its name; see `diagnose`."""
    full_model = None
    if inputs is None and task is not None:
        full_model = model
        model, inputs = for_instruments(model, task.batch("test", 0, BATCH))
    if isinstance(model, PointModel) and not isinstance(model.network, ContinuousFlow):
        model = model.network  # a flow stays inside, where its output is the log-density
    if not isinstance(inputs, Tensor):
        inputs = _random_inputs(model, inputs or STEPS, seed, batch_first)
    probe = Probe(
        model, inputs, name or "", task, loss, fraction, seed, memory, full_model, batch_first
    )
    return replace(probe, name=name or _registered(probe) or type(model).__name__)


def examine(
    probe: Probe,
    *,
    measured: Sequence[str] | None = None,
    compare: bool = True,
    progress: Progress | None = None,
    seconds: float = math.inf,
) -> ModelReport:
    """Measure a model and return a report; see `diagnose`.

    Args:
        probe: The model.
        measured: Names of instruments.
        compare: Whether to compare with an untrained LSTM of the same size.
        progress: Called with the name of every measurement before it begins.
        seconds: Time limit. Instruments without a result by then are `pending` in the report.
    """
    end = time.monotonic() + seconds
    results, left_out, pending = measure_all(probe, measured, progress, seconds)
    report = ModelReport(
        name=probe.name,
        results=results,
        left_out=left_out,
        pending=dict.fromkeys(pending, ""),
        options=_options(probe),
        versions=versions(),
    )
    flow = results.get("gradient_flow")
    if not isinstance(flow, GradientFlow):
        return _judged_without_gradients(report, probe)
    lstm = None
    if compare and end > time.monotonic():
        lstm = _lstm_flow(probe, flow, progress)
    return _judged_by_gradients(report, probe, flow, lstm)


def _registered(probe: Probe) -> str:
    """Return the registry name of a probe's network; empty if it has none."""
    return models.name_of(type(probe.network)) or ""


def _judged_by_gradients(
    report: ModelReport, probe: Probe, flow: GradientFlow, lstm: GradientFlow | None
) -> ModelReport:
    """Return the report with a verdict on the gradients, and remedies."""
    verdict = {
        "vanish": f"gradients vanish: they reach {flow.horizon} of {flow.length} steps",
        "explode": f"gradients explode: over {flow.length} steps they grow beyond every bound",
        "steady": f"gradients reach {flow.horizon} of {flow.length} steps",
    }[flow.verdict]
    if lstm is not None:
        verdict += f"; an LSTM of this size reaches {lstm.horizon}"
    registered = _registered(probe)
    if not registered and not isinstance(probe.network, nn.RNNBase) and flow.read_as:
        verdict += f" ({flow.read_as})"  # for modules of other libraries this is uncertain
    tone: Literal["good", "bad"] = "good" if flow.verdict == "steady" else "bad"
    if probe.in_depth:
        return replace(report, verdict=verdict.replace("steps", "points in depth"), tone=tone)
    recall = report.results.get("recall")
    recall = recall if isinstance(recall, Recall) else None
    advice = remedies(probe.model, flow, recall, model=registered)
    return replace(report, verdict=verdict, tone=tone, remedies=advice)


def _judged_without_gradients(report: ModelReport, probe: Probe) -> ModelReport:
    """Return the report with the verdict of promises, or of the first instrument that has one."""
    if not probe.moves:
        for result in report.results.values():
            if (judgement := result.judgement) is not None:
                return replace(report, verdict=judgement.verdict, tone=judgement.tone)
        if probe.differentiable:
            return report
        return replace(report, verdict=f"{CLOSED_FORM}; train it to see its score")
    promises = report.results.get("promises")
    if not isinstance(promises, PromiseMeasurements):
        none = "it makes no promises that can be measured"
        unknown = "promises were not measured in this call"
        return replace(report, verdict=none if "promises" in report.left_out else unknown)
    broken = [m.promise.claim for m in promises.measurements if not m.holds]
    if broken:
        return replace(report, verdict=f"broken: {'; '.join(broken)}", tone="bad")
    claims = "; ".join(m.promise.claim for m in promises.measurements)
    return replace(report, verdict=f"promises hold: {claims}", tone="good")


def measure_all(
    probe: Probe,
    names: Sequence[str] | None = None,
    progress: Progress | None = None,
    seconds: float = math.inf,
) -> tuple[dict[str, Result], dict[str, str], list[str]]:
    """Measure a model with every instrument.

    Return the results, why other instruments do not apply, and the names of those for which there
    was no time.

    Args:
        probe: The model.
        names: Names of instruments; by default all but those that are only used on request.
        progress: Called with the name of every instrument before it begins.
        seconds: Time limit, at which a measurement ends without a result.
    """
    end = time.monotonic() + seconds
    standard = [name for name in instruments if not instruments[name].on_request]
    results, left_out, pending = {}, {}, []
    in_order = sorted(names or standard, key=lambda name: instruments[name].page_order)
    for name in sorted(in_order, key=lambda name: instruments[name].slow):
        if probe.moves and not instruments[name].of_motion:
            left_out[name] = "it models how a system moves, and has no memory of steps"
            continue
        if not probe.differentiable and not instruments[name].of_answers:
            left_out[name] = CLOSED_FORM
            continue
        if progress is not None:
            progress(name.replace("_", " "))
        try:
            with _time_limit(end - time.monotonic()):
                results[name] = instruments[name].measure(probe)
        except _OutOfTimeError:
            pending.append(name)
        except (OptionError, ShapeError) as reason:
            inapplicable = isinstance(reason, InapplicableError)
            if names is None and name == "gradient_flow" and not inapplicable:
                raise  # the verdict depends on it
            left_out[name] = str(reason)
    return {name: results[name] for name in in_order if name in results}, left_out, pending


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Raise `_OutOfTimeError` in the body when the time is over.

    Where the system has no alarm, or outside of the main thread, the body runs to its end if there
    was time when it began.
    """
    main = threading.current_thread() is threading.main_thread()
    if seconds == math.inf or not (main and hasattr(signal, "setitimer")):
        if seconds <= 0:
            raise _OutOfTimeError
        yield
        return

    def stop(*_: object) -> None:
        raise _OutOfTimeError

    previous = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, GRACE))
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _random_inputs(model: nn.Module, steps: int, seed: int, batch_first: bool | None) -> Tensor:
    size = getattr(model, "input_size", None)
    if not isinstance(size, int):
        raise OptionError(
            f"{type(model).__name__} has no input_size. "
            "Give inputs=torch.randn(time, batch, features)."
        )
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, SequenceModel) and model.input_kind == "symbols":
        return torch.randint(size, (steps, BATCH), generator=generator)
    noise = torch.randn(steps, BATCH, size, generator=generator).to(next(model.parameters()))
    return noise.transpose(0, 1) if layout_of(model, noise, batch_first).batch_first else noise


def _lstm_flow(probe: Probe, flow: GradientFlow, progress: Progress | None) -> GradientFlow | None:
    """Measure an untrained LSTM of the same size on noise of the same length."""
    network = probe.network
    sizes = [getattr(network, size, None) for size in ("input_size", "hidden_size", "num_layers")]
    complete = all(isinstance(size, int) for size in sizes)
    if probe.in_depth or isinstance(network, LSTM | nn.LSTM) or not complete:
        return None
    if progress is not None:
        progress("gradient flow of an LSTM for comparison")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(probe.seed)
        lstm = nn.LSTM(*sizes)  # type: ignore[arg-type]
        noise = torch.randn(flow.length, min(4, probe.inputs.shape[1]), lstm.input_size)
    return gradient_flow(lstm, noise, fraction=probe.fraction)


def _options(probe: Probe) -> dict[str, Any]:
    if probe.in_depth:
        return {}
    network = probe.network
    names = ("input_size", "hidden_size", "num_layers", "bidirectional", "dropout")
    sizes = {name: getattr(network, name) for name in names if hasattr(network, name)}
    return {**sizes, **getattr(network, "cell_options", {})}


class WithBatch(nn.Module):
    """A model together with the times, lengths and masks of a batch, called with inputs alone.

    Args:
        model: The model.
        batch: The batch whose times, lengths and masks every call uses.
    """

    batch_first = False

    def __init__(self, model: TaskModel, batch: Batch) -> None:
        super().__init__()
        self.model = model
        self.batch: Any = batch
        self.input_size = batch.inputs.shape[-1]

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the outputs for other inputs of the same shape."""
        if inputs.shape != self.batch.inputs.shape:
            raise ShapeError(
                f"inputs must have the shape of the batch, {tuple(self.batch.inputs.shape)}, got "
                f"{tuple(inputs.shape)}. Measure the model on data of its task."
            )
        return self.model(self.batch._replace(inputs=inputs))


def for_instruments(model: nn.Module, batch: Batch) -> tuple[nn.Module, Tensor]:
    """Return a model that is called with one tensor, and that tensor.

    To a recurrent network, times and missing values are features, which are encoded here. Any
    other model that uses them keeps those of the batch.

    Args:
        model: A model of a task, or any module.
        batch: A batch of the task.
    """
    batch = batch.expanded()
    x = batch.inputs
    if isinstance(model, SequenceModel) and model.reads:
        return model.on_features(), model.encode(batch).detach()
    if x.is_floating_point():
        x = x.to(next(p.dtype for p in model.parameters() if p.is_floating_point()))
    if isinstance(model, TaskModel) and any(
        part is not None for part in (batch.times, batch.observed, batch.target_times)
    ):
        if batch.observed is not None and x.is_floating_point():
            x = x.masked_fill(~batch.observed, 0)
        return WithBatch(model, batch._replace(inputs=x)), x
    return model, x
