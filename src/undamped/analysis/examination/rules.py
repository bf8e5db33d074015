"""The rules of the doctor, in one table: what is wrong, from which measurement, and a remedy.

A check returns a symptom or None. Rules are in the order in which they explain each other: a model
whose outputs are not finite is not examined further, and a symptom that an earlier one explains is
not reported (`explains`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undamped.analysis.examination import remedies
from undamped.analysis.examination.evidence import RELATIVE, Evidence, Operation
from undamped.analysis.examination.remedies import Trial

VANISHED, EXPLODED = 1e-7, 1e4
"""Gradient at the first steps over that at the last ones: below what float32 resolves, and above
what clipping can correct."""
GROWTH = 1e3
"""Growth of a state over a sequence from which a recurrence counts as unstable."""
SATURATED, DEAD = 0.8, 0.6
"""Fractions of values beyond 0.98 of their limits, and of units that never change."""
LOW_BIAS = -1.0
"""Mean bias of a forget or update gate from which most of a state is lost at every step."""
IMPROVEMENT, DIVERGENCE = 0.05, 1.5
"""Of the loss in a short training: part of the best improvement, and growth of the loss."""
RECURRENT = (nn.RNNBase, nn.RNNCellBase)


class Symptom(NamedTuple):
    """What a rule measured.

    Args:
        sentence: What is wrong, with its number.
        module: Name of the submodule; None if it is the model's own `forward`.
        step: The step, if there is one.
        certain: Whether the measurement excludes every other explanation.
    """

    sentence: str
    module: str | None = None
    step: int | None = None
    certain: bool = True


@dataclass(frozen=True)
class Rule:
    """One thing that can be wrong.

    Args:
        name: Name of the rule.
        check: Returns a symptom, or None.
        remedy: The smallest change that helps.
        trial: Tries the remedy on a copy; None where only the author can change the code.
        explains: Names of later rules whose symptoms follow from this one.
    """

    name: str
    check: Callable[[Evidence], Symptom | None]
    remedy: str
    trial: Callable[[Evidence, Symptom], Trial | None] | None = None
    explains: tuple[str, ...] = ()


# Values and passes


def not_finite(evidence: Evidence) -> Symptom | None:
    """A value of the inputs or of the forward pass is not finite."""
    if evidence.sequence.is_floating_point() and not _finite(evidence.sequence):
        return Symptom("The inputs contain values that are not finite.", "inputs")
    calls = evidence.baseline[1]
    for call in calls:
        for tensor in call.outputs:
            if not _finite(tensor):
                step = _first_step(evidence, ~torch.isfinite(tensor))
                name = _origin(call.name, {c.name: c.inputs for c in calls[::-1]})
                return Symptom("A value is not finite in the forward pass.", name, step)
    return None


def _origin(name: str, inputs: dict[str, list[Tensor]]) -> str:
    """Return the innermost module around a value whose own inputs are finite."""
    while name and not all(map(_finite, inputs.get(name, []))):
        name = name.rpartition(".")[0]
        while name and name not in inputs:  # a container, which is not called
            name = name.rpartition(".")[0]
    return name


def gradient_not_finite(evidence: Evidence) -> Symptom | None:
    """The gradient of the loss is not finite, although the loss is."""
    names = [n for n, g in evidence.training_gradients.items() if g is not None and not _finite(g)]
    if not names:
        if np.isfinite(evidence.gradient).all():
            return None
        step = int(np.argmin(np.isfinite(evidence.gradient)))
        return Symptom("The gradient of the inputs is not finite, but the output is.", None, step)
    module = names[-1].rpartition(".")[0]
    return Symptom(f"The gradient of {names[-1]} is not finite, but the loss is.", module)


def random_answers(evidence: Evidence) -> Symptom | None:
    """Two passes in evaluation mode differ."""
    output, calls = evidence.trace(seed=1)
    size = evidence.difference(evidence.output, output)
    if size <= RELATIVE:
        return None
    module = evidence.locate(calls, lambda tensor: tensor)
    text = f"Two passes in evaluation mode differ by {size:.2g} of the output."
    return Symptom(text, module)


def batch_mates(evidence: Evidence) -> Symptom | None:
    """The answer for the last or the first sequence depends on the other sequences."""
    for index, others in ((-1, slice(0, -1)), (0, slice(1, None))):

        def view(tensor: Tensor, index: int = index) -> Tensor | None:
            axis = evidence.sequence_axis(tensor)
            return None if axis is None else tensor.select(axis, index)

        output, calls = evidence.trace(evidence.replaced(evidence.mask(others)))
        size = evidence.difference(view(evidence.output), view(output))
        if size > RELATIVE:
            text = f"Other sequences of the batch change an answer by {size:.2g} of it."
            return Symptom(text, evidence.locate(calls, view))
    return None


def wrong_time_axis(evidence: Evidence) -> Symptom | None:
    """A recurrence runs along the batch and not along time."""
    mates = batch_mates(evidence)
    if mates is None or not _recurrent_modules(evidence):
        return None
    reach = (
        evidence.response[:, 1].max(initial=0.0) if not evidence.per_step else _carried(evidence)
    )
    if reach > RELATIVE and (evidence.per_step or not _along_batch(evidence)):
        return None
    text = (
        "A recurrence runs along the batch: other sequences change an answer, earlier steps do not."
    )
    return Symptom(text, mates.module, certain=evidence.per_step)


def _along_batch(evidence: Evidence) -> bool:
    """Return whether every sequence changes later answers, and none the answers before it."""
    for changed in range(evidence.batch - 1):
        rows = slice(changed, changed + 1)
        output, _ = evidence.trace(evidence.replaced(evidence.mask(rows)))
        axis = evidence.sequence_axis(output)
        if axis is None:
            return False
        pairs = [(evidence.output.select(axis, i), output.select(axis, i)) for i in (0, -1)]
        first, last = (evidence.difference(*pair) > 1e-6 for pair in pairs)
        if not last or (first and changed > 0):
            return False
    return True


def padding(evidence: Evidence) -> Symptom | None:
    """Steps beyond the length of a sequence change its answer."""
    if evidence.lengths is None or not bool((evidence.lengths < evidence.steps).any()):
        return None
    over = torch.arange(evidence.steps) >= evidence.lengths.unsqueeze(1)
    output, calls = evidence.trace(evidence.replaced(over))

    def view(tensor: Tensor) -> Tensor | None:
        step_axis, axis = evidence.step_axis(tensor), evidence.sequence_axis(tensor)
        if axis is None or step_axis == axis:
            return None
        if step_axis is None:
            return tensor
        rows = tensor.movedim((axis, step_axis), (0, 1))
        return rows[~over]

    size = evidence.difference(view(evidence.output), view(output))
    if size <= RELATIVE:
        return None
    text = f"Values beyond the end of a sequence change its answer by {size:.2g} of it."
    return Symptom(text, evidence.locate(calls, view))


def loss_of_padding(evidence: Evidence) -> Symptom | None:
    """Steps beyond the length of a sequence are part of the loss."""
    if evidence.lengths is None or not evidence.per_step:
        return None
    with torch.enable_grad():
        leaf = evidence.output.detach().clone().requires_grad_()
        value = evidence.loss_with(leaf)
        if not value.requires_grad:
            return None
        (gradient,) = torch.autograd.grad(value, leaf)
    axes: Any = (evidence.sequence_axis(gradient), evidence.step_axis(gradient))
    over = torch.arange(evidence.steps) >= evidence.lengths.unsqueeze(1)
    size = gradient.movedim(axes, (0, 1))[over].abs().sum() / gradient.abs().sum()
    if not float(size) > 1e-6:
        return None
    return Symptom(f"Steps beyond the end of sequences have {float(size):.0%} of the loss.", "loss")


def future(evidence: Evidence) -> Symptom | None:
    """An output of a causal model depends on later inputs."""
    if not evidence.causal or not evidence.per_step:
        return None
    middle = evidence.steps // 2
    output, calls = evidence.trace(evidence.replaced(evidence.mask(steps=slice(middle + 1, None))))

    def view(tensor: Tensor) -> Tensor | None:
        axis = evidence.step_axis(tensor)
        return None if axis is None else tensor.narrow(axis, 0, middle + 1)

    size = evidence.difference(view(evidence.output), view(output))
    if size <= RELATIVE:
        return None
    text = f"Later inputs change an output by {size:.2g} of it: the model sees the future."
    return Symptom(text, evidence.locate(calls, view), middle)


def same_step_target(evidence: Evidence) -> Symptom | None:
    """See whether the loss is minimal for the input of the same step."""
    x = evidence.sequence
    if not evidence.per_step or not x.is_floating_point() or evidence.output.shape != x.shape:
        return None
    others = evidence.replaced(evidence.mask())
    value, reference = (float(evidence.loss_with(y)) for y in (x, others))
    if value > 1e-6 * max(reference, 1e-12):
        return None
    return Symptom("The target of a step is its own input, so that a copy solves the task.", "loss")


# Dependence on earlier steps


def reads_first_step(evidence: Evidence) -> Symptom | None:
    """The answer depends on the first step only."""
    if evidence.per_step or evidence.steps < 4:
        return None
    rest = evidence.replaced(evidence.mask(steps=slice(1, None)))
    size = evidence.difference(evidence.output, evidence.trace(rest)[0])
    first = evidence.replaced(evidence.mask(steps=slice(0, 1)))
    if (
        size > RELATIVE
        or evidence.difference(evidence.output, evidence.trace(first)[0]) <= RELATIVE
    ):
        return None
    return Symptom("The output depends on the first step only.", _reader(evidence), 0)


def no_input(evidence: Evidence) -> Symptom | None:
    """The output is the same for other inputs."""
    output, _ = evidence.trace(evidence.replaced(evidence.mask()))
    if evidence.difference(evidence.output, output) > 1e-6:
        return None
    return Symptom("The output does not depend on the inputs.", None)


def not_carried(evidence: Evidence) -> Symptom | None:
    """The last output depends on the last step only."""
    if _carried(evidence) > 1e-9:
        return None
    sentence = "The last output depends on the last step only: no state is carried."
    return Symptom(sentence, _reader(evidence), evidence.steps - 1)


def short_reach(evidence: Evidence) -> Symptom | None:
    """The last output is independent of at least half of the steps."""
    rows = evidence.response
    reached = rows[rows[:, 1] > 1e-9]
    if not len(reached) or not _carried(evidence) > 1e-9 or _gradient_profile(evidence).max() == 0:
        return None
    profile = _gradient_profile(evidence)
    first = int(np.argmax(profile > 0))
    if (
        first < 0.5 * evidence.steps
        or _underflow(profile)
        or rows[rows[:, 0] < first, 1].max(initial=0.0) > 1e-9
    ):
        return None
    text = f"The last output does not depend on the first {first} of {evidence.steps} steps."
    return Symptom(text, _reader(evidence), first)


def detached(evidence: Evidence) -> Symptom | None:
    """Early steps change the last output, or parameters the loss, but have no gradient."""
    idle: dict[str, list[str]] = {}
    for name, gradient in evidence.training_gradients.items():
        if gradient is None:
            idle.setdefault(name.rpartition(".")[0], []).append(name)
    order = [call.name for call in evidence.baseline[1]]
    # The last module of a pass is the nearest to what stops the gradient.
    for module in sorted(idle, key=lambda name: name in order and -order.index(name)):
        if _affects(evidence, idle[module]):
            text = "Parameters of this module change the output, but no gradient reaches them."
            return Symptom(text, module)
    if not evidence.response[:, 1].max(initial=0.0) > RELATIVE:
        return None
    if not evidence.sequence.is_floating_point() and evidence.with_leaf()[0] is None:
        return None
    profile = _gradient_profile(evidence)
    if profile.max() > 0 and profile[0] > 0:
        return None
    first = int(np.argmax(profile > 0)) if profile.max() > 0 else evidence.steps
    rows = evidence.response
    before = rows[rows[:, 0] < first, 1]
    if first < 1 or not before.max(initial=0.0) > RELATIVE:
        return None
    text = f"Steps before {first} change the last output, but no gradient reaches them."
    return Symptom(text, _reader(evidence), first)


def vanishing(evidence: Evidence) -> Symptom | None:
    """The gradient at early steps is below the resolution of float32."""
    ratio, step = _gradient_ratio(evidence)
    if not 0 < ratio < VANISHED:
        return None
    text = f"The gradient vanishes: at the first steps it is {ratio:.1g} of that at the last ones."
    return Symptom(text, _reader(evidence), step)


def exploding(evidence: Evidence) -> Symptom | None:
    """The gradient grows on its way to early steps."""
    ratio, step = _gradient_ratio(evidence)
    if not ratio > EXPLODED:
        return None
    text = (
        f"The gradient explodes: at the first steps it is {ratio:.1g} times that at the last ones."
    )
    return Symptom(text, _reader(evidence), step)


def clipped_explosion(evidence: Evidence) -> Symptom | None:
    """Gradients are far beyond the norm at which training clips them."""
    if evidence.clip is None:
        return None
    squares = [
        float(g.double().square().sum())
        for g in evidence.training_gradients.values()
        if g is not None
    ]
    norm = sum(squares) ** 0.5
    if norm < 100 * evidence.clip:
        return None
    text = (
        f"Clipping at {evidence.clip:g} hides an explosion: the norm of the gradient is {norm:.2g}."
    )
    return Symptom(text, _reader(evidence))


def growing_state(evidence: Evidence) -> Symptom | None:
    """The outputs of a module grow over the sequence."""
    for call in evidence.baseline[1]:
        for tensor in call.outputs:
            axis = evidence.step_axis(tensor)
            if axis is None or tensor.dim() < 3 or not tensor.is_floating_point():
                continue
            norms = tensor.movedim(axis, 0).flatten(1).double().norm(dim=1)
            tenth = max(1, len(norms) // 10)
            growth = float(norms[-tenth:].mean() / norms[:tenth].mean().clamp(min=1e-12))
            if growth > GROWTH:
                text = f"A state grows by a factor of {growth:.2g} over the sequence."
                return Symptom(text, call.name, None, certain=False)
    return None


# Units and parameters


def unused(evidence: Evidence) -> Symptom | None:
    """A module, or a layer of torch's networks, has no gradient and does not change the output."""
    gradients = evidence.training_gradients
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(gradients):
        module, _, parameter = name.rpartition(".")
        stacked = isinstance(evidence.model.get_submodule(module), nn.RNNBase)
        layer = re.search(r"_l\d+", parameter) if stacked else None
        groups.setdefault((module, layer[0] if layer else ""), []).append(name)
    for (module, layer), names in groups.items():
        idle = all(gradients[n] is None or not bool((gradients[n] != 0).any()) for n in names)
        if idle and not _affects(evidence, names):
            part = f"layer {int(layer[2:]) + 1} of this module" if layer else "this module"
            return Symptom(f"The loss does not depend on any parameter of {part}.", module)
    return None


def _affects(evidence: Evidence, names: list[str]) -> bool:
    """Return whether other values of parameters change the output."""
    model = evidence.copy_model()
    for name in names:
        parameter = model.get_parameter(name)
        parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return evidence.difference(evidence.output, evidence.changed(model).output) > 1e-6


def saturated(evidence: Evidence) -> Symptom | None:
    """Most gates or activations are at their limits."""
    for name, group in _groups(evidence, ("sigmoid", "tanh")).items():
        values = torch.cat([operation.outputs.flatten() for operation in group])
        low = torch.cat(
            [
                torch.full_like(o.outputs, 0.0 if o.kind == "sigmoid" else -1.0).flatten()
                for o in group
            ]
        )
        span = 1.0 - low
        fraction = float((((values - low) / span - 0.5).abs() > 0.48).double().mean())
        if fraction > SATURATED:
            text = f"{fraction:.0%} of the gates or activations are saturated."
            return Symptom(text, name)
    return None


def closed_gate(evidence: Evidence) -> Symptom | None:
    """The bias of a forget or update gate is so low that states are lost."""
    for name, module in evidence.model.named_modules():
        for bias in remedies.gate_biases(module):
            mean = float(sum(part.mean() for part in bias))
            if mean < LOW_BIAS:
                text = f"The bias of a {remedies.gate_name(module)} gate is {mean:.2g} in the mean."
                return Symptom(text, name)
    return None


def dead_units(evidence: Evidence) -> Symptom | None:
    """Most units of a ReLU are zero for all inputs."""
    for name, group in _groups(evidence, ("relu",)).items():
        by_width: dict[int, list[Tensor]] = {}
        for operation in group:
            by_width.setdefault(operation.outputs.shape[-1], []).append(operation.outputs)
        for width, outputs in by_width.items():
            rows = torch.cat([o.reshape(-1, width) for o in outputs])
            fraction = float((rows == 0).all(0).double().mean())
            if fraction > DEAD and width > 1:
                return Symptom(
                    f"{fraction:.0%} of the units of a ReLU are zero for all inputs.", name
                )
    return None


def identical_units(evidence: Evidence) -> Symptom | None:
    """All units of a layer compute the same in every call, and not only zeros."""
    sizes: dict[str, tuple[float, float]] = {}
    for call in evidence.baseline[1]:
        module = evidence.model.get_submodule(call.name)
        if not isinstance(module, (*RECURRENT, nn.Linear)) or not call.outputs:
            continue
        values = call.outputs[0]
        if values.shape[-1] < 3:
            continue
        spread, size = sizes.get(call.name, (0.0, 0.0))
        spread = max(spread, float((values - values[..., :1]).abs().max()))
        sizes[call.name] = spread, max(size, float(values.abs().max()))
    for name, (spread, size) in sizes.items():
        if spread <= 1e-7 * size and size > 0:
            return Symptom("All units compute the same: their weights are equal.", name)
    return None


def softmax_twice(evidence: Evidence) -> Symptom | None:
    """The loss normalises what is normalised already."""
    for operation in evidence.operations:
        if operation.name == "loss" and operation.kind == "cross entropy of logits":
            values = operation.inputs.double().flatten()
            for o in evidence.operations:
                if o.kind == "sigmoid" and torch.equal(o.outputs.double().flatten(), values):
                    text = "The loss applies a sigmoid to the outputs of a sigmoid."
                    return Symptom(text, o.name if o.name else None)
        if operation.kind != "log_softmax" or operation.name != "loss":
            continue
        x, axis = operation.inputs.double(), operation.axis or 0
        probabilities = bool((x >= 0).all()) and float((x.sum(axis) - 1).abs().max()) < 1e-3
        if probabilities or float(x.logsumexp(axis).abs().max()) < 1e-3:
            kind = "probabilities" if probabilities else "logarithms of probabilities"
            text = f"The loss applies a softmax to {kind}: there are two softmaxes."
            return Symptom(text, _last_softmax(evidence))
    return None


def input_scale(evidence: Evidence) -> Symptom | None:
    """Inputs are far from zero mean and unit deviation."""
    x = evidence.sequence
    if not x.is_floating_point():
        return None
    std, mean = float(x.std()), float(x.mean().abs())
    if 1e-3 <= std <= 50 and mean <= 20 * std:
        return None
    return Symptom(f"Inputs have mean {float(x.mean()):.2g} and deviation {std:.2g}.", "inputs")


def strong_dropout(evidence: Evidence) -> Symptom | None:
    """Dropout leaves less than a tenth of the values."""
    modules = evidence.model.named_modules()
    rates = {name: m.dropout for name, m in modules if isinstance(m, nn.RNNBase)}
    for name, rate in (rates | evidence.dropout_rates).items():
        if rate >= 0.9:
            return Symptom(f"Dropout sets {rate:.0%} of the values to zero in training.", name)
    return None


def learning_rate(evidence: Evidence) -> Symptom | None:
    """The learning rate is outside the window of a short sweep."""
    rate = evidence.learning_rate
    if rate is None:
        return None
    values = evidence.losses(rate)
    sweep = remedies.sweep(evidence)
    gain = values[0] - values[-1]
    if not np.isfinite(values[-1]) or max(values[1:]) > DIVERGENCE * values[0]:
        text = f"is too large: the loss goes from {values[0]:.3g} to {max(values):.3g}."
    elif gain < IMPROVEMENT * sweep.gain and rate < sweep.best:
        text = f"is too small: it has {max(gain, 0) / sweep.gain:.0%} of the best improvement."
    else:
        return None
    return Symptom(f"The learning rate {rate:g} {text}", "training", certain=False)


# Helpers


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _first_step(evidence: Evidence, mask: Tensor) -> int | None:
    axis = evidence.step_axis(mask)
    if axis is None:
        return None
    return int(mask.movedim(axis, 0).flatten(1).any(1).int().argmax())


def _carried(evidence: Evidence) -> float:
    """Return how much the last output changes with all steps but the last."""
    return float(evidence.response[-1, 1]) if len(evidence.response) else 1.0


def _gradient_profile(evidence: Evidence) -> Any:
    return evidence.gradient


def _gradient_ratio(evidence: Evidence) -> tuple[float, int]:
    """Return the gradient at the first steps over that at the last, and where it changes."""
    profile = _gradient_profile(evidence)
    tenth = max(1, evidence.steps // 10)
    first, last = profile[:tenth].mean(), profile[-tenth:].mean()
    if not np.isfinite(profile).all():
        return np.inf, 0
    if last == 0 or first == 0:
        return (1e-30, int(np.argmax(profile > 0))) if _underflow(profile) else (1.0, 0)
    small = profile < VANISHED * last
    step = int(len(profile) - np.argmax(small[::-1])) if small.any() else 0
    return float(first / last), step


def _underflow(profile: Any) -> bool:
    """Return whether zeros of a gradient are numbers too small for their type."""
    return bool(0 < profile[profile > 0].min(initial=np.inf) < 1e-30)


def _recurrent_modules(evidence: Evidence) -> list[str]:
    return [n for n, m in evidence.model.named_modules() if isinstance(m, RECURRENT)]


def _reader(evidence: Evidence) -> str | None:
    """Return the last recurrent or convolutional module of a pass; None for a loop of the user."""
    kinds = (*RECURRENT, nn.Conv1d, nn.MultiheadAttention)
    names = [n for n, m in evidence.model.named_modules() if isinstance(m, kinds)]
    return names[-1] if names else None


def _groups(evidence: Evidence, kinds: tuple[str, ...]) -> dict[str, list[Operation]]:
    groups: dict[str, list[Operation]] = {}
    for operation in evidence.operations:
        if operation.kind in kinds and operation.name != "loss":
            groups.setdefault(operation.name, []).append(operation)
    return groups


def _last_softmax(evidence: Evidence) -> str | None:
    names = [o.name for o in evidence.operations if "softmax" in o.kind and o.name != "loss"]
    return names[-1] if names else None


STATE = ("state not carried", "short reach", "detached", "vanishing gradient")
RULES = (
    Rule(
        "not finite",
        not_finite,
        "Bound the argument of the logarithm, root or quotient from below.",
        remedies.bound_arguments,
    ),
    Rule(
        "gradient not finite",
        gradient_not_finite,
        "Add a small constant under the root or norm.",
        remedies.bound_arguments,
        ("vanishing gradient", "exploding gradient", "detached", "unused module"),
    ),
    Rule(
        "random answers",
        random_answers,
        "Call dropout and noise with training=self.training only, and reset states between calls.",
        remedies.without_noise,
        ("batch mates", "future", "padding", "wrong time axis", *STATE),
    ),
    Rule(
        "input scale",
        input_scale,
        "Standardise the inputs.",
        remedies.standardise,
        (
            "no input",
            "saturated",
            "closed gate",
            "learning rate",
            "dead units",
            "exploding gradient",
            "growing state",
            *STATE,
        ),
    ),
    Rule(
        "identical units",
        identical_units,
        "Draw the weights at random.",
        remedies.redraw,
        ("dead units", "no input", *STATE),
    ),
    Rule(
        "dead units",
        dead_units,
        "Draw the weights anew with biases of zero, or use a leaky ReLU.",
        remedies.redraw,
        ("no input", "unused module", *STATE),
    ),
    Rule(
        "no input",
        no_input,
        "Connect the inputs to the output.",
        None,
        (*STATE, "unused module", "identical units", "reads first step"),
    ),
    Rule(
        "wrong time axis",
        wrong_time_axis,
        "Set batch_first of the recurrent layer to the layout of the data.",
        remedies.swap_axes,
        ("batch mates", "future", "padding", "reads first step", *STATE),
    ),
    Rule(
        "batch mates",
        batch_mates,
        "Normalise over features, not over the batch; check the axis of every softmax and mean.",
        remedies.over_features,
        STATE,
    ),
    Rule(
        "future",
        future,
        "Mask the attention, pad convolutions on the left, or use one direction.",
        remedies.make_causal,
    ),
    Rule(
        "padding",
        padding,
        "Pack the sequences, or mask steps beyond their lengths.",
        remedies.mask_padding,
    ),
    Rule(
        "loss of padding",
        loss_of_padding,
        "Leave steps beyond the lengths out of the loss.",
        remedies.mask_loss,
    ),
    Rule("target is input", same_step_target, "Shift the targets by one step.", None),
    Rule(
        "unused module",
        unused,
        "Connect the module to the loss, or remove it.",
        None,
        ("state not carried", "reads first step"),
    ),
    Rule(
        "reads first step",
        reads_first_step,
        "Read the last step, output[-1] or output[:, -1].",
        remedies.read_last,
        STATE,
    ),
    Rule(
        "saturated",
        saturated,
        "Scale the weights or inputs down until sums are of order one.",
        remedies.scale_down,
        ("closed gate", *STATE),
    ),
    Rule(
        "state not carried",
        not_carried,
        "Pass the returned state to the next call.",
        remedies.carry_state,
        ("detached", "vanishing gradient", "unused module"),
    ),
    Rule(
        "short reach",
        short_reach,
        "Enlarge the kernel or its dilation, or carry the state across chunks.",
        remedies.dilate,
        ("vanishing gradient",),
    ),
    Rule(
        "detached",
        detached,
        "Remove detach(), .data and no_grad() from the path of the state.",
        remedies.without_detach,
        ("vanishing gradient", "unused module"),
    ),
    Rule(
        "closed gate",
        closed_gate,
        "Start with a bias of 1 or more, for example by forget_bias.",
        remedies.open_gates,
        ("vanishing gradient",),
    ),
    Rule(
        "vanishing gradient",
        vanishing,
        "Open the forget gate, use an orthogonal recurrent matrix, or a network with long memory.",
        remedies.lengthen,
    ),
    Rule(
        "growing state",
        growing_state,
        "Reduce dt, or the norm of the recurrent matrix.",
        remedies.shrink,
        ("exploding gradient", "clipped explosion"),
    ),
    Rule(
        "exploding gradient",
        exploding,
        "Scale the recurrent matrix to norm one.",
        remedies.shrink,
        ("clipped explosion",),
    ),
    Rule(
        "clipped explosion",
        clipped_explosion,
        "Remove the cause before clipping: scale the recurrent matrix, average the loss.",
        remedies.average_loss,
    ),
    Rule(
        "two softmaxes",
        softmax_twice,
        "Return logits: the loss contains the softmax or sigmoid.",
        remedies.without_softmax,
    ),
    Rule(
        "strong dropout", strong_dropout, "Use a rate between 0.1 and 0.5.", remedies.weaken_dropout
    ),
    Rule(
        "learning rate", learning_rate, "Use a learning rate inside its window.", remedies.best_rate
    ),
)
"""All rules, in the order in which they are applied."""
