"""`diagnose`: point it at a model, yours or ours; it measures and gives its verdict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from undamped.analysis.cost import Cost, cost, count_parameters
from undamped.analysis.depth_flow import depth_flow, flows_in_depth
from undamped.analysis.gradient_flow import GradientFlow, Loss, gradient_flow
from undamped.analysis.jacobian import Spectrum, spectrum, step_jacobians
from undamped.analysis.ode_gradients import GradientComparison, compare_gradients, has_odes
from undamped.analysis.promises import Measurement, measure
from undamped.analysis.recall import Recall, recall
from undamped.errors import OptionError, ShapeError, explain
from undamped.flows.continuous_flow import ContinuousFlow
from undamped.networks import LSTM, Recurrent, SequenceModel
from undamped.networks.point_model import PointModel
from undamped.registry import models
from undamped.report.data import ModelReport
from undamped.report.remedies import remedies
from undamped.training.run import versions

LARGEST_STATE = 1024
"""States beyond this have Jacobians too large to look at in a report."""


def diagnose(
    model: nn.Module,
    inputs: Tensor | None = None,
    *,
    steps: int = 1000,
    batch: int = 8,
    loss: Loss | None = None,
    fraction: float = 0.01,
    name: str | None = None,
    compare: bool = True,
    memory: bool = False,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
    command: str = "",
    prefix: str = "undamped diagnose",
    settings: Sequence[str] = (),
    tick: Callable[[str], None] | None = None,
) -> ModelReport:
    """Measure a model and say what is wrong with it, if anything.

    Args:
        model: One of our networks or models, a module of torch, or one of your own.
        inputs: What it takes; if none, random numbers (or symbols) for a model that says its
            `input_size`. For a model of continuous depth, (batch, features).
        steps: Length of the random inputs.
        batch: Number of random sequences.
        loss: The loss for gradient flow; see `gradient_flow`.
        fraction: Where a gradient counts as lost; see `gradient_flow`.
        name: What to call it.
        compare: Whether to measure a fresh LSTM of the same size and name it in the verdict.
        memory: Whether to measure peak memory too; a few seconds for each length.
        seed: Seed of the random inputs.
        options: Settings to print; those of a network of ours are found without.
        command: The command to print as the one that made this.
        prefix: The command to which remedies add settings.
        settings: Settings that were given, which the commands of remedies keep.
        tick: Called with the name of every measurement before it begins.

    Example:
        >>> report = diagnose(undamped.UnICORNN(6, 32), steps=500)
        >>> report.verdict
    """
    if isinstance(model, PointModel) and not isinstance(model.network, ContinuousFlow):
        model = model.network  # A flow stays inside, where its answer is the log-density.
    network = model.network if isinstance(model, SequenceModel | PointModel) else model
    entered = models.name_of(type(network)) or ""
    title = name or entered or type(model).__name__
    say = tick or (lambda stage: None)
    say("gradient flow")
    if inputs is not None and inputs.dim() == 2 and flows_in_depth(model):
        flow = depth_flow(model, inputs, loss=loss, fraction=fraction, seed=seed, name=title)
        say("cost and ways to the gradient")
        return ModelReport(
            name=title,
            verdict=_verdict(flow, None).replace("steps", "points in depth"),
            tone=_tone(flow),
            gradient_flow=flow,
            cost=_depth_cost(model, inputs, title),
            ode_gradients=_ode_gradients(model, inputs, title),
            options=dict(options or {}),
            versions=versions(),
            command=command,
        )
    x = _random_inputs(model, steps, batch, seed) if inputs is None else inputs
    flow = gradient_flow(model, x, loss=loss, fraction=fraction, name=title)
    say("recall")
    remembered = _recall(network, flow.length, title, seed)
    if compare:
        say("gradient flow of an LSTM beside it")
    other = _lstm_flow(network, x, flow, fraction, seed) if compare else None
    say("spectrum and promises")
    seen, promised = _spectrum(model, network, x, title), _promises(network)
    say("cost")
    return ModelReport(
        name=title,
        verdict=_verdict(flow, other),
        tone=_tone(flow),
        remedies=remedies(
            model, flow, remembered, command=prefix, model=entered, settings=settings
        ),
        gradient_flow=flow,
        recall=remembered,
        spectrum=seen,
        promises=promised,
        cost=_cost(network, flow.length, title, memory),
        options=dict(options) if options is not None else _options(network),
        versions=versions(),
        command=command,
    )


def _random_inputs(model: nn.Module, steps: int, batch: int, seed: int) -> Tensor:
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
    first = (batch, steps) if getattr(model, "batch_first", False) else (steps, batch)
    like = next(model.parameters())
    return torch.randn(*first, size, generator=generator).to(like)


def _verdict(flow: GradientFlow, other: GradientFlow | None) -> str:
    words = {
        "vanish": f"gradients vanish: they reach {flow.horizon} of {flow.length} steps",
        "explode": f"gradients explode: over {flow.length} steps they outgrow every bound",
        "steady": f"gradients reach {flow.horizon} of {flow.length} steps",
    }[flow.verdict]
    if other is None:
        return words
    return f"{words}; an LSTM of this size reaches {other.horizon}"


def _tone(flow: GradientFlow) -> Literal["good", "bad", "neutral"]:
    return "good" if flow.verdict == "steady" else "bad"


def _lstm_flow(
    network: nn.Module, x: Tensor, flow: GradientFlow, fraction: float, seed: int
) -> GradientFlow | None:
    """Measure a fresh LSTM of the same size on noise of the same length."""
    sizes = [getattr(network, size, None) for size in ("input_size", "hidden_size", "num_layers")]
    if isinstance(network, LSTM | nn.LSTM) or not all(isinstance(s, int) for s in sizes):
        return None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        other = nn.LSTM(*sizes)  # type: ignore[arg-type]
        noise = torch.randn(flow.length, min(4, x.shape[1]), other.input_size)
    return gradient_flow(other, noise, fraction=fraction)


def _recall(network: nn.Module, length: int, name: str, seed: int) -> Recall | None:
    delays = max(10, min(200, length // 4))
    try:
        return recall(
            network, delays=delays, steps=3 * delays + 100, batch=12, seed=seed, name=name
        )
    except (OptionError, ShapeError):
        return None


def _spectrum(model: nn.Module, network: nn.Module, x: Tensor, name: str) -> Spectrum | None:
    width = getattr(network, "hidden_size", 0) * getattr(network, "num_layers", 1)
    if isinstance(network, Recurrent):
        width *= len(network.cell_class.state_names)
    if width > LARGEST_STATE:
        return None
    probe = copy.deepcopy(model)
    short = x[:, :20] if getattr(network, "batch_first", False) else x[:20]
    try:
        last = short.shape[1 if getattr(network, "batch_first", False) else 0] - 1
        return spectrum(step_jacobians(probe, short, at=[last])[0], name=name)
    except (OptionError, ShapeError):
        return None


def _promises(network: nn.Module) -> list[Measurement]:
    return measure(network.cell(0)) if isinstance(network, Recurrent) else []


def _cost(network: nn.Module, length: int, name: str, memory: bool) -> Cost | None:
    lengths = sorted({max(2, length // part) for part in (8, 4, 2)})
    try:
        return cost(copy.deepcopy(network), lengths, repeats=3, memory=memory, name=name)
    except (OptionError, RuntimeError):
        return None


def _depth_cost(model: nn.Module, inputs: Tensor, name: str) -> Cost:
    """Parameters alone: there is no length to measure against."""
    none = np.zeros(0, dtype=np.int64)
    return Cost(count_parameters(model), none, none, none.astype(float), none, len(inputs), name)


def _ode_gradients(model: nn.Module, inputs: Tensor, name: str) -> GradientComparison | None:
    return compare_gradients(model, inputs, name=name) if has_odes(model) else None


def _options(network: nn.Module) -> dict[str, Any]:
    names = ("input_size", "hidden_size", "num_layers", "bidirectional", "dropout")
    found = {name: getattr(network, name) for name in names if hasattr(network, name)}
    return {**found, **getattr(network, "cell_options", {})}
