"""`diagnose`: point it at a model, yours or ours; it measures and gives its verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError, ShapeError, explain
from undamped._base.registry import instruments, models
from undamped.analysis.core.probe import InapplicableError, Probe
from undamped.analysis.core.result import Result
from undamped.analysis.core.time_axis import layout_of
from undamped.analysis.gradient_flow import GradientFlow, Loss, gradient_flow
from undamped.analysis.kept_promises import KeptPromises
from undamped.analysis.recall import Recall
from undamped.lab.report.model_report import ModelReport
from undamped.lab.report.remedies import remedies
from undamped.lab.tasks.task import Task
from undamped.lab.training.environment import versions
from undamped.models.point_model import PointModel
from undamped.models.sequence_model import SequenceModel
from undamped.nn import LSTM
from undamped.ode.flows.continuous_flow import ContinuousFlow

Tick = Callable[[str], None]
AT_ONCE = "it is fitted at once, so there are no gradients or states of training to look at"
"""Why most instruments have nothing to say about a model in closed form, of trees or the like."""


def diagnose(
    model: nn.Module,
    inputs: Tensor | None = None,
    *,
    steps: int = 1000,
    batch: int = 8,
    task: Task | None = None,
    loss: Loss | None = None,
    fraction: float = 0.01,
    name: str | None = None,
    measured: Sequence[str] | None = None,
    compare: bool = True,
    memory: bool = False,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    command: str = "",
    prefix: str = "undamped diagnose",
    settings: Sequence[str] = (),
    applied: Collection[str] = (),
    whole: nn.Module | None = None,
    batch_first: bool | None = None,
    tick: Tick | None = None,
) -> ModelReport:
    """Measure a model and say what is wrong with it, if anything.

    Args:
        model: One of our networks or models, a module of torch, or one of your own.
        inputs: What it takes; if none, random numbers (or symbols) for a model that says its
            `input_size`. For a model of continuous depth, (batch, features).
        steps: Length of the random inputs.
        batch: Number of random sequences.
        task: The task on which the model was or will be trained, for what asks for its answers.
        loss: The loss for gradient flow; see `gradient_flow`.
        fraction: Where a gradient counts as lost; see `gradient_flow`.
        name: What to call it.
        measured: Names of instruments; if none, all but those that are measured on request.
        compare: Whether to measure a fresh LSTM of the same size and name it in the verdict.
        memory: Whether to measure peak memory too; a few seconds for each length.
        seed: Seed of the random inputs.
        options: Settings to print; those of a network of ours are found without.
        command: The command to print as the one that made this.
        prefix: The command to which remedies add settings.
        settings: Settings that were given, which the commands of remedies keep.
        applied: Settings that need no advice; see `remedies`.
        whole: The model as its task asks it, where `model` is only what stands behind its inputs.
        batch_first: Whether inputs are (batch, time, features); see `gradient_flow`.
        tick: Called with the name of every measurement before it begins.

    Example:
        >>> report = diagnose(undamped.nn.UnICORNN(6, 32), steps=500)
        >>> report.verdict
    """
    if isinstance(model, PointModel) and not isinstance(model.network, ContinuousFlow):
        model = model.network  # A flow stays inside, where its answer is the log-density.
    x = _random_inputs(model, steps, batch, seed, batch_first) if inputs is None else inputs
    probe = Probe(model, x, name or "", task, loss, fraction, seed, memory, whole, batch_first)
    entered = models.name_of(type(probe.network)) or ""
    probe = replace(probe, name=name or entered or type(model).__name__)
    say = tick or (lambda stage: None)
    results, left_out = measure_all(probe, measured, say)
    report = ModelReport(
        name=probe.name,
        results=results,
        left_out=left_out,
        options=dict(options) if options is not None else _options(probe),
        versions=versions(),
        command=command,
    )
    flow, recall = results.get("gradient_flow"), results.get("recall")
    if not isinstance(flow, GradientFlow):
        if probe.moves:
            return _judged_by_promises(report)
        judged = [judged for found in results.values() if (judged := found.judgement) is not None]
        said = {} if probe.differentiable else {"verdict": f"{AT_ONCE}; train it to see its score"}
        said = {"verdict": judged[0].verdict, "tone": judged[0].tone} if judged else said
        return replace(report, **said)  # type: ignore[arg-type]
    verdict = _verdict(flow, _lstm_flow(probe, flow, say) if compare else None)
    if not entered and not isinstance(probe.network, nn.RNNBase) and flow.read_as:
        verdict += f" ({flow.read_as})"  # of somebody else's module this is not certain
    tone: Literal["good", "bad"] = "good" if flow.verdict == "steady" else "bad"
    if probe.in_depth:
        return replace(report, verdict=verdict.replace("steps", "points in depth"), tone=tone)
    remembered = recall if isinstance(recall, Recall) else None
    given = {"command": prefix, "model": entered, "settings": settings, "applied": applied}
    advice = remedies(model, flow, remembered, **given)
    return replace(report, verdict=verdict, tone=tone, remedies=advice)


def _judged_by_promises(report: ModelReport) -> ModelReport:
    """Add the verdict about a model whose promises are what it is chosen for."""
    found = report.results.get("promises")
    if not isinstance(found, KeptPromises):
        none = "it promises nothing that nature keeps"
        unknown = "promises were not measured in this call"
        return replace(report, verdict=none if "promises" in report.left_out else unknown)
    broken = [m.promise.claim for m in found.measurements if not m.kept]
    if broken:
        return replace(report, verdict=f"broken: {'; '.join(broken)}", tone="bad")
    kept = "; ".join(m.promise.claim for m in found.measurements)
    return replace(report, verdict=f"kept: {kept}", tone="good")


def measure_all(
    probe: Probe, names: Sequence[str] | None = None, tick: Tick | None = None
) -> tuple[dict[str, Result], dict[str, str]]:
    """Ask every instrument about a model; return what they found, and why some found nothing.

    Args:
        probe: The model.
        names: Which instruments; if none, all but those that are measured on request.
        tick: Called with the name of every instrument before it begins.
    """
    standard = [name for name in instruments if not instruments[name].on_request]
    chosen = sorted(names or standard, key=lambda name: instruments[name].place)
    results, left_out = {}, {}
    for name in chosen:
        if probe.moves and not instruments[name].of_motion:
            left_out[name] = "it says how a state moves, and has no steps to remember"
            continue
        if not probe.differentiable and not instruments[name].of_answers:
            left_out[name] = AT_ONCE
            continue
        if tick is not None:
            tick(name.replace("_", " "))
        try:
            results[name] = instruments[name].measure(probe)
        except (OptionError, ShapeError) as reason:
            inapplicable = isinstance(reason, InapplicableError)
            if names is None and name == "gradient_flow" and not inapplicable:
                raise  # the verdict is made of it
            left_out[name] = str(reason)
    return results, left_out


def _random_inputs(
    model: nn.Module, steps: int, batch: int, seed: int, batch_first: bool | None
) -> Tensor:
    size = getattr(model, "input_size", None)
    if not isinstance(size, int):
        raise OptionError(
            explain(
                "inputs",
                expected="a sequence, since the model does not say its input_size",
                got="none",
                remedy="Give inputs=torch.randn(time, batch, features).",
            )
        )
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, SequenceModel) and model.input_kind == "symbols":
        return torch.randint(size, (steps, batch), generator=generator)
    noise = torch.randn(steps, batch, size, generator=generator).to(next(model.parameters()))
    return noise.transpose(0, 1) if layout_of(model, noise, batch_first).batch_first else noise


def _verdict(flow: GradientFlow, other: GradientFlow | None) -> str:
    words = {
        "vanish": f"gradients vanish: they reach {flow.horizon} of {flow.length} steps",
        "explode": f"gradients explode: over {flow.length} steps they outgrow every bound",
        "steady": f"gradients reach {flow.horizon} of {flow.length} steps",
    }[flow.verdict]
    if other is None:
        return words
    return f"{words}; an LSTM of this size reaches {other.horizon}"


def _lstm_flow(probe: Probe, flow: GradientFlow, tick: Tick) -> GradientFlow | None:
    """Measure a fresh LSTM of the same size on noise of the same length."""
    network = probe.network
    sizes = [getattr(network, size, None) for size in ("input_size", "hidden_size", "num_layers")]
    known = all(isinstance(size, int) for size in sizes)
    if probe.in_depth or isinstance(network, LSTM | nn.LSTM) or not known:
        return None
    tick("gradient flow of an LSTM beside it")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(probe.seed)
        other = nn.LSTM(*sizes)  # type: ignore[arg-type]
        noise = torch.randn(flow.length, min(4, probe.inputs.shape[1]), other.input_size)
    return gradient_flow(other, noise, fraction=probe.fraction)


def _options(probe: Probe) -> dict[str, Any]:
    if probe.in_depth:
        return {}
    network = probe.network
    names = ("input_size", "hidden_size", "num_layers", "bidirectional", "dropout")
    found = {name: getattr(network, name) for name in names if hasattr(network, name)}
    return {**found, **getattr(network, "cell_options", {})}
