"""The remedies of the doctor, each tried on a copy of the model.

A trial changes the copy, or replaces functions of torch while it runs, and measures the symptom
again. It says what the number was before and after, and whether that is an improvement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from undamped.analysis.examination.evidence import RELATIVE, Evidence, Replacement

RATES = tuple(10.0**k for k in range(-5, 1))
NORMS = (nn.LayerNorm, nn.BatchNorm1d, nn.InstanceNorm1d, nn.GroupNorm)


class Trial(NamedTuple):
    """The result of a remedy.

    Args:
        change: What was changed.
        before: The measurement before.
        after: The measurement after.
        helps: Whether the symptom is gone, or clearly smaller.
    """

    change: str
    before: float
    after: float
    helps: bool


Symptom = Any
Context = Callable[[], Any]
Functions = dict[Any, Callable[..., Any]]


# Replaced functions


def _same(_: Any, x: Tensor, *arguments: Any, **keywords: Any) -> Tensor:
    return x


def _each(functions: tuple[Any, ...], replacement: Any) -> Functions:
    return {function: replacement for function in functions}  # noqa: C420 (types)


def _replacing(functions: Functions) -> Context:
    return lambda: Replacement(functions)


def without_detach(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Run with `detach` and `.data` as identities."""
    data: Any = Tensor.data
    functions = _each((Tensor.detach, torch.detach, data.__get__), _same)
    before = _early(evidence)
    after = _early(evidence.changed(interventions=_replacing(functions)))
    return Trial("ignore detach() and .data", before, after, after > before)


def without_noise(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Run without dropout and additive noise."""
    functions = _each((F.dropout, torch.dropout), _same)
    for noise in (torch.randn_like, torch.rand_like):
        functions[noise] = lambda _, x, **__: torch.zeros_like(x)
    functions[torch.Tensor.normal_] = functions[torch.Tensor.uniform_] = _same
    functions[torch.bernoulli] = _same
    before, after = _noise(evidence), _noise(evidence.changed(interventions=_replacing(functions)))
    return Trial("without dropout and noise", before, after, after <= RELATIVE)


def without_softmax(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Run the model without its softmax; a sigmoid may also be a gate, which must stay."""
    if "sigmoid" in symptom.sentence:
        return None
    functions = _each(
        (
            torch.softmax,
            F.softmax,
            torch.log_softmax,
            F.log_softmax,
            Tensor.softmax,
            Tensor.log_softmax,
        ),
        _same,
    )
    changed = evidence.changed(interventions=_replacing(functions))
    with torch.no_grad():
        before, after = (_peak(e) for e in (evidence, changed))
    return Trial("return logits", before, after, abs(after) > 1e-6)


def bound_arguments(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Bound arguments of logarithms, roots, quotients and exponentials."""
    tiny = 1e-6

    def bounded(function: Any, x: Tensor, *rest: Any, **keywords: Any) -> Tensor:
        return function(x.clamp(min=tiny), *rest, **keywords)

    def quotient(function: Any, x: Any, y: Any, **keywords: Any) -> Tensor:
        if isinstance(y, Tensor):
            y = torch.where(y.abs() < tiny, torch.full_like(y, tiny), y)
        return function(x, y, **keywords)

    def norm(
        _: Any, x: Tensor, *rest: Any, dim: Any = None, keepdim: bool = False, **__: Any
    ) -> Tensor:
        axis = dim if dim is not None else rest[-1] if rest else None
        total = x.square().sum() if axis is None else x.square().sum(axis, keepdim)
        return (total + tiny**2).sqrt()

    def exponential(function: Any, x: Tensor, *rest: Any) -> Tensor:
        return function(x.clamp(max=5.0), *rest)

    functions = _each(
        (torch.log, Tensor.log, torch.sqrt, Tensor.sqrt, torch.rsqrt, torch.log2), bounded
    )
    functions |= _each((torch.div, Tensor.div, Tensor.__truediv__), quotient)
    functions |= _each((torch.norm, Tensor.norm, torch.linalg.vector_norm), norm)
    functions |= _each((torch.exp, Tensor.exp), exponential)
    changed = evidence.changed(interventions=_replacing(functions))
    if symptom.module == "inputs":
        inputs = (evidence.sequence.nan_to_num(), *evidence.inputs[1:])
        changed = evidence.changed(inputs=inputs)
    before, after = _not_finite(evidence), _not_finite(changed)
    return Trial("bound arguments of roots, logarithms and quotients", before, after, after == 0)


# Changed modules


def swap_axes(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Swap batch and time of recurrent layers and attention."""
    model = evidence.copy_model()
    for module in model.modules():
        if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
            module.batch_first = not module.batch_first
    return _compare("flip batch_first of the recurrent layer", evidence, model, _mates)


def over_features(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Leave out statistics over the batch."""
    before, model = _mates(evidence), evidence.copy_model()
    trials = [evidence.changed(interventions=_replacing(_not_along(evidence, "sequence_axis")))]
    if symptom.module and _replace_norm(model, symptom.module):
        trials.append(evidence.changed(model))
    for module in model.modules():
        if isinstance(module, nn.MultiheadAttention | nn.TransformerEncoderLayer):
            attention: Any = getattr(module, "self_attn", module)
            attention.batch_first = evidence.batch_first
    trials.append(evidence.changed(model))
    after = min(map(_mates, trials))
    return Trial("normalise over features", before, after, after <= RELATIVE)


def _not_along(evidence: Evidence, axis_of: str) -> Functions:
    """Return replacements without statistics, shifts and reversals along an axis."""

    def along(x: Tensor, args: Any, keywords: Any, position: int = 0) -> bool:
        axis = args[position] if len(args) > position else keywords.get("dim", keywords.get("dims"))
        axis = axis[0] if isinstance(axis, tuple | list) and axis else axis
        return isinstance(axis, int) and axis % x.dim() == getattr(evidence, axis_of)(x)

    def constant(value: float) -> Callable[..., Any]:
        def statistic(function: Any, x: Tensor, *args: Any, **keywords: Any) -> Any:
            result = function(x, *args, **keywords)
            return torch.full_like(result, value) if along(x, args, keywords) else result

        return statistic

    def unchanged(function: Any, x: Tensor, *args: Any, **keywords: Any) -> Any:
        position = 1 if function in (torch.roll, Tensor.roll) else 0
        return x if along(x, args, keywords, position) else function(x, *args, **keywords)

    def softmax(function: Any, x: Tensor, *args: Any, **keywords: Any) -> Any:
        return torch.softmax(x, -1) if along(x, args, keywords) else function(x, *args, **keywords)

    functions = _each((torch.mean, Tensor.mean), constant(0.0))
    functions |= _each((torch.std, Tensor.std, torch.var, Tensor.var), constant(1.0))
    functions |= _each((torch.softmax, F.softmax, Tensor.softmax), softmax)
    functions |= _each((torch.flip, Tensor.flip, torch.roll, Tensor.roll), unchanged)
    return functions | _each((F.batch_norm, F.instance_norm), _same)


def make_causal(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Mask, pad on the left and leave out whatever reads along time."""
    model = evidence.copy_model()
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Conv1d) and module.padding not in ((0,), "valid"):
            _set(model, name, _CausalConv(module))
        elif isinstance(module, NORMS) and name == symptom.module:
            _replace_norm(model, name)
        elif isinstance(module, nn.RNNBase) and module.bidirectional:
            module.register_forward_hook(_without_reverse)
            width = module.proj_size or module.hidden_size
            for weight in (getattr(module, f"weight_ih_l{k}") for k in range(1, module.num_layers)):
                weight[:, width:] = 0
        elif isinstance(module, nn.MultiheadAttention):
            module.register_forward_pre_hook(_masked_attention, with_kwargs=True)
        elif isinstance(module, nn.TransformerEncoder | nn.TransformerEncoderLayer):
            module.register_forward_pre_hook(_masked_encoder, with_kwargs=True)
    functions = {
        F.scaled_dot_product_attention: _causal_attention,
        **_not_along(evidence, "step_axis"),
    }
    before = _future(evidence)
    after = _future(evidence.changed(model, interventions=_replacing(functions)))
    return Trial("mask attention, pad on the left, one direction", before, after, after <= RELATIVE)


def mask_padding(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Pack sequences, mask pooling and read each sequence at its end."""
    model, lengths = evidence.copy_model(), evidence.lengths
    assert lengths is not None
    for module in model.modules():
        if isinstance(module, nn.RNNBase):
            _pack(module, lengths)
        elif isinstance(module, nn.MultiheadAttention):
            over = torch.arange(evidence.steps) >= lengths.unsqueeze(1)
            module.register_forward_pre_hook(_key_mask(over), with_kwargs=True)
    over = torch.arange(evidence.steps) >= lengths.unsqueeze(1)
    functions = _each((torch.mean, Tensor.mean), _masked(evidence, over, "mean"))
    functions |= _each((torch.sum, Tensor.sum), _masked(evidence, over, "sum"))
    functions |= _each(
        (torch.max, Tensor.max, torch.amax, Tensor.amax), _masked(evidence, over, "max")
    )
    functions[Tensor.__getitem__] = _index_ends(evidence, lengths)
    before = _padding(evidence)
    after = min(
        _padding(evidence.changed(model)),
        _padding(evidence.changed(model, interventions=_replacing(functions))),
    )
    return Trial("pack or mask steps beyond the lengths", before, after, after <= RELATIVE)


def mask_loss(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Leave steps beyond the lengths out of the gradient of the loss."""
    over = torch.arange(evidence.steps) >= evidence.lengths.unsqueeze(1)  # type: ignore[union-attr]

    def masked(output: Any) -> Tensor:
        axes: Any = (evidence.sequence_axis(output), evidence.step_axis(output))
        rows = output.movedim(axes, (0, 1))
        rows = torch.where(over.view(over.shape + (1,) * (rows.dim() - 2)), rows.detach(), rows)
        return evidence.loss_with(rows.movedim((0, 1), axes))

    leaf = evidence.output.detach().clone().requires_grad_()
    with torch.enable_grad():
        (gradient,) = torch.autograd.grad(masked(leaf), leaf)
    axes: Any = (evidence.sequence_axis(gradient), evidence.step_axis(gradient))
    after = float(gradient.movedim(axes, (0, 1))[over].abs().sum())
    return Trial("no gradient from steps beyond the lengths", 1.0, after, after == 0)


def read_last(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Read the last step wherever the first is read from outputs."""
    reading = []

    def index(function: Any, x: Tensor, key: Any) -> Any:
        axis = evidence.step_axis(x) if x.dim() > 2 else None
        if x.grad_fn is not None or axis is None or not isinstance(key, tuple) or len(key) <= axis:
            return function(x, key)
        if key[axis] == 0:
            reading.append(x)
            key = (*key[:axis], -1, *key[axis + 1 :])
        return function(x, key)

    functions = {Tensor.__getitem__: index}
    before = _later(evidence)
    after = _later(evidence.changed(interventions=_replacing(functions)))
    return Trial("read the last step", before, after, after > RELATIVE)


def _index_ends(evidence: Evidence, lengths: Tensor) -> Any:
    """Return an index function that reads every sequence at its end, not at the last step."""

    def index(function: Any, x: Tensor, key: Any) -> Any:
        axis: Any = evidence.step_axis(x) if x.dim() > 2 else None
        last = isinstance(key, tuple) and axis is not None and len(key) > axis and key[axis] == -1
        if not last:
            return function(x, key)
        rows = x.movedim(axis, 1 - axis) if axis == 0 else x
        return function(rows, (torch.arange(len(lengths)), lengths - 1))

    return index


def carry_state(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Let each call of a recurrent module begin with the state before."""
    model = evidence.copy_model()
    _carry_states(model)
    return _compare("pass the returned state on", evidence, model, _early_response, larger=True)


def dilate(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Carry states across chunks, or double the dilation of convolutions."""
    model = evidence.copy_model()
    _carry_states(model)
    carried = _compare(
        "carry the state across chunks", evidence, model, _early_response, larger=True
    )
    if carried.helps:
        return carried
    convolutions = [m for m in model.modules() if isinstance(m, nn.Conv1d)]
    for depth, module in enumerate(convolutions):
        if module.kernel_size[0] > 1 and isinstance(module.padding, tuple):
            scale = 2 ** (depth + 1)
            padding = module.padding[0] * scale
            module.dilation, module.padding = (module.dilation[0] * scale,), (padding,)
    try:
        after = _first_gradient(evidence.changed(model))
    except (RuntimeError, IndexError, ValueError):
        return None
    before = _first_gradient(evidence)
    return Trial("double the dilation of every layer", before, after, after < before)


def open_gates(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Set the bias of forget and update gates to 2."""
    model = evidence.copy_model()
    with torch.no_grad():
        for module in model.modules():
            for bias in gate_biases(module):
                for part, value in zip(bias, (2.0, 0.0), strict=False):
                    part.fill_(value)
    return _compare("a gate bias of 2", evidence, model, _ratio, larger=True)


def lengthen(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Open gates, or make recurrent matrices orthogonal; the better of both."""
    opened = open_gates(evidence, symptom)
    model = evidence.copy_model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if _is_recurrent(name, parameter):
                nn.init.orthogonal_(parameter, generator=torch.Generator().manual_seed(0))
            elif "weight_ih" in name:
                parameter.mul_(0.3)
    orthogonal = _compare("an orthogonal recurrent matrix", evidence, model, _ratio, larger=True)
    best = max((t for t in (opened, orthogonal) if t is not None), key=lambda t: t.after)
    return best._replace(helps=best.after > 100 * best.before)


def shrink(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Halve dt, or scale recurrent matrices to norm one."""
    model = evidence.copy_model()
    changed = "dt"
    modules = [m for m in model.modules() if isinstance(getattr(m, "dt", None), float)]
    for module in modules:
        module.dt = module.dt / 16  # type: ignore[assignment]
    if not modules:
        changed = "recurrent matrices of norm one"
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                square = parameter.dim() == 2 and parameter.shape[0] % parameter.shape[1] == 0
                if _is_recurrent(name, parameter) or square:
                    size = torch.linalg.matrix_norm(parameter, 2)
                    parameter.div_(max(1.0, float(size)))
    before, after = (np.log10(max(_ratio(e), 1e-300)) for e in (evidence, evidence.changed(model)))
    return Trial(changed, float(before), float(after), bool(after < before - 1 or after < 4))


def average_loss(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Scale recurrent matrices, or average the loss."""
    shrunk = shrink(evidence, symptom)
    assert shrunk is not None
    if shrunk.helps and shrunk.before > 1:
        return shrunk
    size = float(evidence.steps * evidence.batch)
    changed = evidence.changed(loss=lambda output: evidence.loss(output) / size)
    return Trial(
        "an average loss", _norm(evidence), _norm(changed), _norm(changed) < _norm(evidence) / 3
    )


def scale_down(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Scale the weights of the module down."""
    model = evidence.copy_model()
    name = symptom.module or ""
    with torch.no_grad():
        for parameter in model.get_submodule(name).parameters():
            if parameter.dim() > 1:
                bound = (3.0 / parameter.shape[-1]) ** 0.5
                parameter.mul_(min(1.0, bound / float(parameter.abs().max() + 1e-12)))
            else:
                parameter.clamp_(-1, 1)
    model_trial = _compare("smaller weights", evidence, model, _saturation)
    return model_trial._replace(helps=model_trial.after < 0.7 * model_trial.before)


def redraw(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Draw all weights anew."""
    model = evidence.copy_model()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for module in model.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
    from undamped.analysis.examination.rules import dead_units, identical_units

    changed = evidence.changed(model)
    before, after = (
        float(dead_units(e) is not None) + float(identical_units(e) is not None)
        for e in (evidence, changed)
    )
    return Trial("weights drawn anew", before, after, after < before)


def weaken_dropout(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Use a dropout rate of 0.3."""
    model = evidence.copy_model()
    module: Any = model.get_submodule(symptom.module or "")
    name = "dropout" if isinstance(module, nn.RNNBase) else "p"
    if not hasattr(module, name):
        return None  # a function in the code of the model
    setattr(module, name, 0.3)
    losses = []
    for each in (evidence, evidence.changed(model)):
        each.model.train()
        losses.append(np.std([float(each.loss_of(each.run(seed=s)).detach()) for s in range(8)]))
        each.model.eval()
    return Trial("a rate of 0.3", float(losses[0]), float(losses[1]), bool(losses[1] < losses[0]))


def standardise(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Standardise the inputs."""
    x = evidence.sequence
    scaled = (x - x.mean()) / x.std().clamp(min=1e-12)
    before, after = (evidence.losses(1e-2, 16, inputs)[-1] for inputs in (None, scaled))
    inputs = (scaled, *evidence.inputs[1:])
    calmer = _saturation(evidence.changed(inputs=inputs)) < _saturation(evidence) - 0.1
    helps = calmer or after < before or not np.isfinite(before)
    return Trial("standardised inputs", before, after, helps)


@dataclass
class Sweep:
    """Losses of a short training for several learning rates.

    Args:
        losses: By learning rate.
    """

    losses: dict[float, list[float]]

    @cached_property
    def best(self) -> float:
        """The learning rate with the largest improvement."""
        finite = {r: v for r, v in self.losses.items() if np.isfinite(v[-1])}
        return min(finite, key=lambda rate: finite[rate][-1])

    @property
    def gain(self) -> float:
        """The largest improvement of the loss."""
        values = self.losses[self.best]
        return max(values[0] - values[-1], 1e-12)


def sweep(evidence: Evidence) -> Sweep:
    """Train copies of the model for some updates with several learning rates."""
    return Sweep({rate: evidence.losses(rate) for rate in RATES})


def best_rate(evidence: Evidence, symptom: Symptom) -> Trial | None:
    """Use the best learning rate of the sweep."""
    assert evidence.learning_rate is not None
    rates = sweep(evidence)
    values = evidence.losses(evidence.learning_rate)
    before, after = max(values[1:]), max(rates.losses[rates.best][1:])
    return Trial(
        f"a learning rate of {rates.best:g}",
        before,
        after,
        after < before or not np.isfinite(before),
    )


# Measurements


def _compare(
    change: str,
    evidence: Evidence,
    model: nn.Module,
    measure: Callable[[Evidence], float],
    *,
    larger: bool = False,
) -> Trial:
    before, after = measure(evidence), measure(evidence.changed(model))
    helps = after > before + 1e-12 and after > 1e-9 if larger else after <= RELATIVE
    return Trial(change, before, after, helps)


def _early(evidence: Evidence) -> float:
    return float((evidence.gradient > 0).sum())


def _first_gradient(evidence: Evidence) -> float:
    profile = evidence.gradient
    return float(np.argmax(profile > 0)) if (profile > 0).any() else float(len(profile))


def _ratio(evidence: Evidence) -> float:
    profile, tenth = evidence.gradient, max(1, evidence.steps // 10)
    if not np.isfinite(profile).all():
        return 1e300
    last = profile[-tenth:].mean()
    return float(profile[:tenth].mean() / last) if last > 0 else 0.0


def _early_response(evidence: Evidence) -> float:
    middle = evidence.replaced(evidence.mask(steps=slice(0, max(1, evidence.steps // 4))))
    output, _ = evidence.trace(middle)
    return evidence.difference(evidence.last(evidence.output, 0), evidence.last(output, 0))


def _later(evidence: Evidence) -> float:
    output, _ = evidence.trace(evidence.replaced(evidence.mask(steps=slice(1, None))))
    return evidence.difference(evidence.output, output)


def _symptom_size(evidence: Evidence, name: str) -> float:
    from undamped.analysis.examination import rules

    symptom = getattr(rules, name)(evidence)
    return 0.0 if symptom is None else 1.0


def _mates(evidence: Evidence) -> float:
    return _symptom_size(evidence, "batch_mates")


def _future(evidence: Evidence) -> float:
    return _symptom_size(evidence, "future")


def _padding(evidence: Evidence) -> float:
    try:
        return _symptom_size(evidence, "padding")
    except (RuntimeError, IndexError, ValueError, TypeError):
        return 1.0  # the remedy does not fit this model


def _noise(evidence: Evidence) -> float:
    return evidence.difference(evidence.trace(seed=0)[0], evidence.trace(seed=1)[0])


def _peak(evidence: Evidence) -> float:
    from undamped.analysis.core.gradients import first_tensor

    output = first_tensor(evidence.run()).double()
    return float((output.logsumexp(-1).abs().max() - 0) * float((output.sum(-1) - 1).abs().max()))


def _not_finite(evidence: Evidence) -> float:
    values = [evidence.output]
    values += [g for g in evidence.training_gradients.values() if g is not None]
    return float(sum(int((~torch.isfinite(value)).sum()) for value in values))


def _norm(evidence: Evidence) -> float:
    gradients = [g for g in evidence.training_gradients.values() if g is not None]
    return float(sum(float(g.double().square().sum()) for g in gradients)) ** 0.5


def _saturation(evidence: Evidence) -> float:
    outputs = [o for o in evidence.operations if o.kind in ("sigmoid", "tanh") and o.name != "loss"]
    limits = [
        (o.outputs - 0.5).abs() > 0.48 if o.kind == "sigmoid" else o.outputs.abs() > 0.96
        for o in outputs
    ]
    return (
        float(torch.cat([limit.flatten() for limit in limits]).double().mean()) if limits else 0.0
    )


# Modules


def gate_biases(module: nn.Module) -> Iterator[list[Tensor]]:
    """Yield the biases of the gate that preserves the state, of every layer of torch's modules."""
    if not isinstance(module, nn.LSTM | nn.GRU | nn.LSTMCell | nn.GRUCell) or not module.bias:
        return
    size = module.hidden_size  # gates are stacked as i, f, g, o or r, z, n
    names = [n for n, _ in module.named_parameters() if n.startswith("bias_ih")]
    for name in names:
        pair = (module.get_parameter(n) for n in (name, name.replace("_ih", "_hh")))
        yield [parameter.data[size : 2 * size] for parameter in pair]


def gate_name(module: nn.Module) -> str:
    """Return the name of the gate that preserves the state."""
    return "forget" if isinstance(module, nn.LSTM | nn.LSTMCell) else "update"


def _is_recurrent(name: str, parameter: Tensor) -> bool:
    return "weight_hh" in name or ("recurrent" in name and parameter.dim() == 2)


def _set(model: nn.Module, name: str, module: nn.Module) -> None:
    owner, _, attribute = name.rpartition(".")
    setattr(model.get_submodule(owner), attribute, module)


def _replace_norm(model: nn.Module, name: str) -> bool:
    if not isinstance(model.get_submodule(name), NORMS):
        return False
    _set(model, name, nn.Identity())
    return True


class _CausalConv(nn.Module):
    """A convolution that is padded on the left only."""

    def __init__(self, conv: nn.Conv1d) -> None:
        super().__init__()
        self.conv, self.width = conv, conv.dilation[0] * (conv.kernel_size[0] - 1)
        conv.padding = (0,)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (self.width, 0)))


def _without_reverse(module: Any, _: Any, output: Any) -> Any:
    values, state = output
    half = values.shape[-1] // 2
    return torch.cat((values[..., :half], torch.zeros_like(values[..., half:])), -1), state


def _square_mask(steps: int) -> Tensor:
    return torch.ones(steps, steps, dtype=torch.bool).triu(1)


def _masked_attention(module: Any, args: Any, keywords: dict[str, Any]) -> Any:
    query = args[0] if args else keywords["query"]
    steps = query.shape[1 if module.batch_first else 0]
    return args[:3], {**keywords, "attn_mask": _square_mask(steps), "is_causal": False}


def _masked_encoder(module: Any, args: Any, keywords: dict[str, Any]) -> Any:
    layer: Any = module.layers[0] if isinstance(module, nn.TransformerEncoder) else module
    steps = args[0].shape[1 if layer.self_attn.batch_first else 0]
    name = "mask" if isinstance(module, nn.TransformerEncoder) else "src_mask"
    return args[:1], {**keywords, name: _square_mask(steps), "is_causal": False}


def _causal_attention(function: Any, *args: Any, **keywords: Any) -> Tensor:
    return function(*args[:3], is_causal=True)


def _key_mask(over: Tensor) -> Any:
    def hook(_: Any, args: Any, keywords: dict[str, Any]) -> Any:
        return args, {**keywords, "key_padding_mask": over}

    return hook


def _pack(module: Any, lengths: Tensor) -> None:
    forward = module.forward

    def packed(x: Any, hx: Any = None) -> Any:
        if isinstance(x, PackedSequence):
            return forward(x, hx)
        parts = pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted=False)
        output, state = forward(parts, hx)
        steps = x.shape[1 if module.batch_first else 0]
        return pad_packed_sequence(output, module.batch_first, total_length=steps)[0], state

    module.forward = packed


def _masked(evidence: Evidence, over: Tensor, kind: str) -> Any:
    """Return a mean, sum or maximum over time that leaves out steps beyond the lengths."""

    def reduce(function: Any, x: Tensor, *args: Any, **keywords: Any) -> Any:
        axis = args[0] if args else keywords.get("dim")
        steps = evidence.step_axis(x) if x.dim() > 2 else None
        if steps is None or axis is None or axis % x.dim() != steps:
            return function(x, *args, **keywords)
        mask = (over if steps == 1 else over.t()).unsqueeze(-1)
        if kind == "max":
            return function(x.masked_fill(mask, -torch.inf), *args, **keywords)
        total = x.masked_fill(mask, 0).sum(steps)
        return total / (~mask).sum(steps) if kind == "mean" else total

    return reduce


def _carry_states(model: nn.Module) -> None:
    """Let calls of recurrent modules within a pass begin with the state of the call before."""
    memory: dict[nn.Module, Any] = {}

    def carry(module: Any) -> None:
        forward = module.forward

        def carried(x: Any, hx: Any = None) -> Any:
            result = forward(x, memory.get(module, hx))
            memory[module] = result[1] if isinstance(module, nn.RNNBase) else result
            return result

        module.forward = carried

    for module in model.modules():
        if isinstance(module, nn.RNNBase | nn.RNNCellBase):
            carry(module)
    model.register_forward_pre_hook(lambda *unused: memory.clear())
