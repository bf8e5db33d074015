"""Sequence models with planted defects, and healthy ones, for `undamped bench doctor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.registry import models
from undamped.lab.benchmarks.timing import recurrent_networks

BATCH, STEPS, INPUTS, UNITS = 6, 24, 3, 8
ARCHITECTURES = ("lstm", "gru", "loop", "conv", "attention")
RECURRENT = ("lstm", "gru", "loop")


class CellLoop(nn.Module):
    """The loop that users write: a cell and a Python loop over time.

    Args:
        units: Number of units.
        between: Applied to the state between two steps.
        fresh: Whether every step starts with a state of zeros.
    """

    def __init__(
        self,
        units: int,
        between: Callable[[Tensor, int], Tensor] = lambda h, t: h,
        fresh: bool = False,
    ) -> None:
        super().__init__()
        self.cell, self.between, self.fresh = nn.GRUCell(units, units), between, fresh

    def forward(self, x: Tensor) -> Tensor:
        """Run over (batch, time, units)."""
        h, outputs = x.new_zeros(x.shape[0], x.shape[2]), []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], torch.zeros_like(h) if self.fresh else self.between(h, t))
            outputs.append(h)
        return torch.stack(outputs, 1)


class Layer(nn.Module):
    """A recurrent layer that returns its outputs alone.

    Args:
        layer: A layer of torch or of this library, batch first.
        call: How it is called with (batch, time, units).
    """

    def __init__(self, layer: nn.Module, call: Callable[[nn.Module, Tensor], Tensor] | None = None):
        super().__init__()
        self.layer, self.call = layer, call or (lambda layer, x: layer(x)[0])

    def forward(self, x: Tensor) -> Tensor:
        """Run over (batch, time, units)."""
        return self.call(self.layer, x)


class Convolutions(nn.Module):
    """Dilated convolutions with residual connections.

    Args:
        units: Number of channels.
        causal: Whether they are padded on the left only.
        dilations: Of the layers.
    """

    def __init__(self, units: int, causal: bool = True, dilations: tuple[int, ...] = (1, 2, 4, 8)):
        super().__init__()
        self.causal, self.dilations = causal, dilations
        self.layers = nn.ModuleList(
            nn.Conv1d(units, units, 3, dilation=d, padding=0 if causal else d) for d in dilations
        )

    def forward(self, x: Tensor) -> Tensor:
        """Run over (batch, time, units)."""
        x = x.transpose(1, 2)
        for dilation, layer in zip(self.dilations, self.layers, strict=True):
            x = x + torch.tanh(layer(F.pad(x, (2 * dilation, 0)) if self.causal else x))
        return x.transpose(1, 2)


class Attention(nn.Module):
    """One layer of attention with positions and a residual connection.

    Args:
        units: Number of features.
        causal: Whether later steps are masked.
        batch_first: Layout that the attention assumes.
    """

    def __init__(self, units: int, causal: bool = True, batch_first: bool = True) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(units, 2, batch_first=batch_first)
        self.position = nn.Parameter(torch.randn(256, units) * 0.1)
        self.causal = causal

    def forward(self, x: Tensor) -> Tensor:
        """Run over (batch, time, units)."""
        x = x + self.position[: x.shape[1]]
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if self.causal else None
        return x + self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class Program(nn.Module):
    """A model: entry, body, readout, head.

    Args:
        body: From (batch, time, units) to the same.
        read: "every", "last", "first", "mean" or "max".
        before: Applied to the input of the body.
        after: Applied to its output.
        finish: Applied to the answer.
        inputs: Number of input features.
        outputs: Number of output features.
        normal: A normalisation between body and readout.
    """

    batch_first = True

    def __init__(
        self,
        body: nn.Module,
        read: str = "every",
        *,
        before: Callable[[Tensor], Tensor] = lambda x: x,
        after: Callable[[Tensor], Tensor] = lambda x: x,
        finish: Callable[[Tensor], Tensor] = lambda x: x,
        inputs: int = INPUTS,
        outputs: int = INPUTS,
        normal: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.entry, self.body, self.head = nn.Linear(inputs, UNITS), body, nn.Linear(UNITS, outputs)
        self.normal = normal or nn.Identity()
        self.read, self.before, self.after, self.finish = read, before, after, finish

    def forward(self, x: Tensor, *unused: Tensor) -> Tensor:
        """Run over (batch, time, inputs)."""
        h = self.normal(self.after(self.body(self.before(self.entry(x)))))
        if self.read == "mean":
            h = h.mean(1)
        elif self.read == "max":
            h = h.max(1)[0]
        elif self.read != "every":
            h = h[:, -1 if self.read == "last" else 0]
        return self.finish(self.head(h))


@dataclass
class Case:
    """A model with what the doctor is called with.

    Args:
        name: What was planted.
        architecture: The kind of model.
        model: The model.
        inputs: Its inputs.
        options: Further arguments of `doctor`.
        rule: Name of the rule that must fire; empty for a healthy model.
        modules: Names of submodules that are a correct place.
    """

    name: str
    architecture: str
    model: nn.Module
    inputs: Any
    options: dict[str, Any] = field(default_factory=dict)
    rule: str = ""
    modules: tuple[str, ...] = ()


def body(architecture: str, units: int = UNITS) -> nn.Module:
    """Return a healthy body."""
    if architecture in ("lstm", "gru"):
        kind = nn.LSTM if architecture == "lstm" else nn.GRU
        return Layer(kind(units, units, batch_first=True))
    if architecture == "loop":
        return CellLoop(units)
    return Convolutions(units) if architecture == "conv" else Attention(units)


FORWARD = ("forward", "body")
BODIES = (
    *("forward", "body", "body.layer", "body.cell", "body.attention", "body.attention.out_proj"),
    *(f"body.layers.{layer}" for layer in range(4)),
)


def noise(*shape: int) -> Tensor:
    """Return random inputs."""
    return torch.randn(*(shape or (BATCH, STEPS, INPUTS)))


def classes() -> Tensor:
    """Return random classes of the sequences."""
    return torch.randint(INPUTS, (BATCH,))


def planted() -> Iterator[Case]:
    """Yield every defect in every architecture that can have it."""
    for architecture in ARCHITECTURES:
        yield from _values(architecture)
        yield from _batch_and_time(architecture)
        yield from _padding(architecture)
        yield from _training(architecture)
        if architecture in RECURRENT:
            yield from _states(architecture)
    yield from _special()


def _values(a: str) -> Iterator[Case]:
    x, zeros = noise(), noise()
    zeros[:, 5] = 0

    def case(name: str, rule: str, modules: tuple[str, ...] = FORWARD, **options: Any) -> Case:
        return Case(name, a, Program(body(a), **options), x, {}, rule, modules)

    yield case("logarithm of negative values", "not finite", before=lambda h: h + h.log())
    yield case("exponential overflow", "not finite", before=lambda h: (200 * h).exp())
    yield case(
        "quotient by a zero deviation",
        "not finite",
        after=lambda h: h / (h - h).std(-1, keepdim=True),
    )
    yield case(
        "root of zero in the gradient",
        "gradient not finite",
        (*BODIES, "entry"),
        after=lambda h: h + (h - h).square().sum(-1, keepdim=True).sqrt(),
    )
    yield case("dropout in evaluation", "random answers", after=lambda h: F.dropout(h, 0.3))
    yield case(
        "noise in evaluation", "random answers", before=lambda h: h + 0.1 * torch.randn_like(h)
    )
    yield case("answer times zero", "no input", finish=lambda y: 0 * y)
    broken = noise()
    broken[1, 7, 0] = torch.nan
    yield Case("NaN in the inputs", a, Program(body(a)), broken, {}, "not finite", ("inputs",))


def _batch_and_time(a: str) -> Iterator[Case]:
    x = noise()
    following = torch.cat((x[:, 1:], noise(BATCH, 1, INPUTS)), 1)
    future = {"targets": following}

    def case(name: str, rule: str, options: dict[str, Any] | None = None, **settings: Any) -> Case:
        modules = settings.pop("modules", FORWARD)
        return Case(name, a, Program(body(a), **settings), x, options or {}, rule, modules)

    yield case(
        "normalisation over the batch",
        "batch mates",
        after=lambda h: (h - h.mean(0)) / (h.std(0) + 1e-3),
    )
    yield case("softmax over the batch", "batch mates", after=lambda h: torch.softmax(h, 0))
    yield case("batch mean subtracted", "batch mates", before=lambda h: h - h.mean(0))
    yield case(
        "sequence normalised over time",
        "future",
        future,
        after=lambda h: h - h.mean(1, keepdim=True),
    )
    yield case(
        "inputs shifted to the past", "future", future, before=lambda h: torch.roll(h, -1, 1)
    )
    yield case(
        "cumulative sum from the end",
        "future",
        future,
        after=lambda h: h.flip(1).cumsum(1).flip(1) * 0.1,
    )
    yield case(
        "LayerNorm over time",
        "future",
        future,
        modules=("normal",),
        normal=nn.LayerNorm([STEPS, UNITS]),
    )
    yield case("softmax over time", "future", future, after=lambda h: torch.softmax(h, 1))
    yield Case(
        "target of the same step",
        a,
        Program(body(a)),
        x,
        {"targets": x},
        "target is input",
        ("loss",),
    )
    yield case("reads the first step", "reads first step", read="first", modules=BODIES)


def _padding(a: str) -> Iterator[Case]:
    x, lengths = noise(), torch.tensor([STEPS, 9, 12, 5, STEPS, 7])
    options = {"lengths": lengths}
    for read in ("mean", "max", "last"):
        yield Case(
            f"padding in the {read}", a, Program(body(a), read), x, options, "padding", BODIES
        )
    targets = noise()
    yield Case(
        "padding in the loss",
        a,
        Program(body(a)),
        x,
        {"lengths": lengths, "targets": targets},
        "loss of padding",
        ("loss",),
    )


def _training(a: str) -> Iterator[Case]:
    x, labels = noise(), classes()
    last = {"targets": labels}

    def case(
        name: str,
        rule: str,
        model: nn.Module,
        modules: tuple[str, ...] = BODIES,
        inputs: Tensor | None = None,
        **options: Any,
    ) -> Case:
        return Case(name, a, model, x if inputs is None else inputs, options, rule, modules)

    yield case(
        "softmax before the cross entropy",
        "two softmaxes",
        Program(body(a), "last", finish=lambda y: y.softmax(-1)),
        FORWARD,
        **last,
    )
    yield case(
        "log-softmax before the cross entropy",
        "two softmaxes",
        Program(body(a), "last", finish=lambda y: y.log_softmax(-1)),
        FORWARD,
        **last,
    )
    yield case(
        "learning rate too large",
        "learning rate",
        Program(body(a), "last"),
        ("training",),
        learning_rate=30.0,
        **last,
    )
    yield case(
        "learning rate too small",
        "learning rate",
        Program(body(a), "last"),
        ("training",),
        learning_rate=1e-8,
        **last,
    )
    yield case(
        "dropout of 0.95",
        "strong dropout",
        Program(body(a), "last", normal=nn.Dropout(0.95)),
        ("normal",),
        **last,
    )
    for name, inputs in (("large", 1e3 * x), ("tiny", 1e-5 * x), ("not centred", 1e3 + x)):
        yield case(
            f"inputs {name}", "input scale", Program(body(a), "last"), ("inputs",), inputs, **last
        )
    dead: Any = nn.Sequential(nn.Linear(UNITS, UNITS), nn.ReLU(), nn.Linear(UNITS, UNITS))
    nn.init.constant_(dead[0].bias, -50.0)
    yield case(
        "dead ReLU", "dead units", Program(body(a), "last", normal=dead), ("normal.1",), **last
    )
    equal = nn.Linear(UNITS, UNITS)
    nn.init.constant_(equal.weight, 0.3)
    nn.init.zeros_(equal.bias)
    yield case(
        "equal weights",
        "identical units",
        Program(body(a), "last", normal=equal),
        ("normal",),
        **last,
    )
    unused = Program(body(a), "last")
    unused.auxiliary = nn.Linear(UNITS, 2)
    yield case("module without a connection", "unused module", unused, ("auxiliary",), **last)
    skipped = Program(body(a))
    skipped.body.forward = lambda h: h  # the readout does not see the state
    yield case("readout beside the state", "unused module", skipped)


def _states(a: str) -> Iterator[Case]:
    x = noise()
    last = {"targets": classes()}
    size = 4

    def chunks(layer: nn.Module, h: Tensor) -> Tensor:
        return torch.cat([layer(part)[0] for part in h.split(size, 1)], 1)

    def single(layer: nn.Module, h: Tensor) -> Tensor:
        return torch.cat([layer(h[:, t : t + 1])[0] for t in range(h.shape[1])], 1)

    def cut(layer: Any, h: Tensor) -> Tensor:
        outputs, state = [], None
        for part in h.split(size, 1):
            output, state = layer(part, state)
            state = tuple(p.detach() for p in state) if isinstance(state, tuple) else state.detach()
            outputs.append(output)
        return torch.cat(outputs, 1)

    def make(kind: str) -> nn.Module:
        if a != "loop":
            layer = (nn.LSTM if a == "lstm" else nn.GRU)(UNITS, UNITS, batch_first=True)
            return Layer(layer, {"fresh": single, "reset": chunks, "detach": cut}[kind])
        between = {
            "fresh": lambda h, t: h,
            "reset": lambda h, t: h if t % size else torch.zeros_like(h),
            "detach": lambda h, t: h.detach() if t % size == 0 else h,
        }
        return CellLoop(UNITS, between[kind], fresh=kind == "fresh")

    yield Case(
        "state never carried",
        a,
        Program(make("fresh"), "last"),
        x,
        last,
        "state not carried",
        BODIES,
    )
    yield Case(
        "state reset every 4 steps",
        a,
        Program(make("reset"), "last"),
        x,
        last,
        "short reach",
        BODIES,
    )
    yield Case("state detached", a, Program(make("detach"), "last"), x, last, "detached", BODIES)
    long = noise(BATCH, 300, INPUTS)
    yield Case("300 steps", a, Program(body(a), "last"), long, last, "vanishing gradient", BODIES)
    closed = body(a)
    large = body(a)
    with torch.no_grad():
        for name, parameter in closed.named_parameters():
            if "bias_ih" in name:
                parameter[UNITS : 2 * UNITS] = -4.0
        for parameter in large.parameters():
            parameter.mul_(100)
    yield Case("closed gate", a, Program(closed, "last"), x, last, "closed gate", BODIES)
    yield Case("saturated gates", a, Program(large, "last"), x, last, "saturated", BODIES)
    if a != "loop":
        wrong: Any = body(a)
        wrong.layer.batch_first = False
        yield Case(
            "recurrence along the batch",
            a,
            Program(wrong),
            x,
            {"batch_first": True},
            "wrong time axis",
            BODIES,
        )
        both: Any = (nn.LSTM if a == "lstm" else nn.GRU)(
            UNITS, UNITS // 2, batch_first=True, bidirectional=True
        )
        following = torch.cat((x[:, 1:], noise(BATCH, 1, INPUTS)), 1)
        yield Case(
            "two directions", a, Program(Layer(both)), x, {"targets": following}, "future", BODIES
        )


class Euler(nn.Module):
    """A linear oscillator per unit, by Euler's method.

    Args:
        dt: Step size.
    """

    def __init__(self, dt: float) -> None:
        super().__init__()
        self.dt, self.drive = dt, nn.Linear(UNITS, UNITS)

    def forward(self, x: Tensor) -> Tensor:
        """Run over (batch, time, units)."""
        position = velocity = torch.zeros_like(x[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            velocity = velocity + self.dt * (self.drive(x[:, t]) - position)
            position = position + self.dt * velocity
            outputs.append(position)
        return torch.stack(outputs, 1)


def _special() -> Iterator[Case]:
    """Yield defects of one architecture only."""
    x = noise()
    last = {"targets": classes()}
    following = torch.cat((x[:, 1:], noise(BATCH, 1, INPUTS)), 1)
    yield Case(
        "convolution padded on both sides",
        "conv",
        Program(Convolutions(UNITS, causal=False)),
        x,
        {"targets": following},
        "future",
        ("body.layers.0", "body"),
    )
    yield Case(
        "attention without a mask",
        "attention",
        Program(Attention(UNITS, causal=False)),
        x,
        {"targets": following},
        "future",
        ("body.attention", "body"),
    )
    yield Case(
        "attention over the batch",
        "attention",
        Program(Attention(UNITS, False, False)),
        x,
        {},
        "batch mates",
        ("body.attention", "body"),
    )
    yield Case(
        "convolutions without dilation",
        "conv",
        Program(Convolutions(UNITS, True, (1, 1)), "last"),
        noise(BATCH, 40, INPUTS),
        last,
        "short reach",
        BODIES,
    )
    yield from _unstable(x, last)


def _unstable(x: Tensor, last: dict[str, Any]) -> Iterator[Case]:
    """Yield states and gradients that grow."""
    yield Case(
        "dt too large",
        "loop",
        Program(Euler(3.0), "last"),
        x,
        last,
        "growing state",
        ("body", "body.drive"),
    )
    for scale, clip in ((4.0, None), (4.0, 1.0)):
        layer: Any = nn.RNN(UNITS, UNITS, nonlinearity="relu", batch_first=True)
        with torch.no_grad():
            layer.weight_hh_l0.copy_(scale * torch.eye(UNITS))
        yield Case(
            "recurrent matrix of norm 4" + (", clipped" if clip else ""),
            "rnn",
            Program(Layer(layer), "last"),
            x,
            {**last, "clip": clip},
            "growing state",
            BODIES,
        )
    chaotic: Any = nn.RNN(UNITS * 4, UNITS * 4, batch_first=True)
    with torch.no_grad():
        chaotic.weight_hh_l0.normal_(std=2.5 / (4 * UNITS) ** 0.5)
        chaotic.weight_ih_l0.mul_(0.1)
    yield Case(
        "chaotic recurrent matrix",
        "rnn",
        chaotic,
        noise(BATCH, 120, 4 * UNITS),
        {},
        "exploding gradient",
        BODIES,
    )
    summed = Program(body("gru"))
    yield Case(
        "clipped sum of losses",
        "gru",
        summed,
        x,
        {"clip": 0.01, "loss": lambda y: 100 * y.square().sum()},
        "clipped explosion",
        BODIES,
    )


class Stateful(nn.Module):
    """A body that keeps its state between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.state = nn.GRU(UNITS, UNITS, batch_first=True), None

    def forward(self, x: Tensor) -> Tensor:
        """Run over (batch, time, units)."""
        fits = self.state is not None and self.state.shape[1] == len(x)
        output, state = self.cell(x, self.state if fits else None)
        self.state = state.detach()
        return output


class AlongBatch(nn.Module):
    """A loop over the wrong axis."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(UNITS, UNITS)

    def forward(self, x: Tensor) -> Tensor:
        """Run over (batch, time, units)."""
        h, outputs = torch.zeros_like(x[0]), []
        for row in x:
            h = self.cell(row, h)
            outputs.append(h)
        return torch.stack(outputs)


def late() -> Iterator[Case]:
    """Yield defects that were made after the first rules."""
    x, last = noise(), {"targets": classes()}
    following = {"targets": torch.cat((x[:, 1:], noise(BATCH, 1, INPUTS)), 1)}

    def case(
        name: str, rule: str, model: nn.Module, options: dict[str, Any], *modules: str, kind: str
    ) -> Case:
        return Case(name, kind, model, x, options, rule, modules or BODIES)

    encoder = nn.TransformerEncoderLayer(UNITS, 2, 16, 0.0, batch_first=True)
    yield case(
        "encoder without a mask",
        "future",
        Program(nn.TransformerEncoder(encoder, 2)),
        following,
        "body",
        "body.layers.0",
        "body.layers.0.self_attn",
        kind="attention",
    )
    leaky = CellLoop(UNITS, lambda h, t: 0.05 * h)
    yield case("state times 0.05", "vanishing gradient", Program(leaky, "last"), last, kind="loop")
    frozen: Any = body("lstm")
    frozen.call = torch.no_grad()(lambda layer, h: layer(h)[0])
    yield case("no_grad around the layer", "detached", Program(frozen, "last"), last, kind="lstm")
    yield case(
        "state kept between calls",
        "random answers",
        Program(Stateful()),
        {},
        "body",
        "body.cell",
        kind="gru",
    )
    mixed = Program(
        body("gru"), before=lambda h: h.reshape(h.shape[1], h.shape[0], -1).transpose(0, 1)
    )
    yield case("reshape instead of transpose", "batch mates", mixed, {}, kind="gru")
    deep = nn.LSTM(UNITS, UNITS, 2, batch_first=True)
    lower = Layer(deep, lambda layer, h: layer(h)[1][0][:1].transpose(0, 1))
    yield case(
        "state of the first layer is read",
        "unused module",
        Program(lower, "last"),
        last,
        kind="lstm",
    )
    squashed = Program(body("gru"), "last", outputs=1, finish=lambda y: y.sigmoid().squeeze(-1))
    yield case(
        "sigmoid before the cross entropy",
        "two softmaxes",
        squashed,
        {"loss": lambda y: F.binary_cross_entropy_with_logits(y, torch.ones(BATCH))},
        kind="gru",
    )
    right = Program(
        nn.Sequential(), before=lambda h: F.pad(h, (0, 0, 0, 2)).unfold(1, 3, 1).mean(-1)
    )
    yield case("window of later steps", "future", right, following, kind="conv")
    yield from _late_functions(case, last, following)


def _late_functions(
    case: Callable[..., Case], last: dict[str, Any], following: dict[str, Any]
) -> Iterator[Case]:
    """Yield the rest of `late`."""
    lengths = torch.tensor([STEPS, 9, 12, 5, STEPS, 7])
    yield case("loop over the batch", "wrong time axis", Program(AlongBatch()), {}, kind="loop")
    rounded = Program(body("conv"), "last", after=lambda h: (4 * h).round())
    yield case("rounded features", "detached", rounded, last, kind="conv")
    normal = nn.BatchNorm1d(STEPS, track_running_stats=False)
    yield case(
        "batch statistics in evaluation",
        "batch mates",
        Program(body("attention"), normal=normal),
        {},
        "normal",
        kind="attention",
    )
    over_time = Program(
        body("loop"), after=lambda h: F.instance_norm(h.transpose(1, 2)).transpose(1, 2)
    )
    yield case("instance norm over time", "future", over_time, following, kind="loop")
    always = Program(body("conv"), "last", after=lambda h: nn.Dropout(0.5)(h))
    yield case("dropout module made in forward", "random answers", always, last, kind="conv")
    doubled: Any = body("attention")
    with torch.no_grad():
        doubled.attention.in_proj_weight.mul_(100)
    yield case("saturated attention", "saturated", Program(doubled, "last"), last, kind="attention")
    summed = Program(body("attention"), after=lambda h: h.cumsum(1)[:, -1:].expand_as(h))
    yield case("sum over padding", "padding", summed, {"lengths": lengths}, kind="attention")
    zero: Any = body("gru")
    with torch.no_grad():
        zero.layer.weight_hh_l0.zero_()
        zero.layer.bias_ih_l0[UNITS : 2 * UNITS] = -30.0
    yield case("update gate shut", "closed gate", Program(zero, "last"), last, kind="gru")


def healthy() -> Iterator[Case]:
    """Yield models without a defect, of torch and of this library."""
    x = noise()
    last, lengths = {"targets": classes()}, torch.tensor([STEPS, 9, 12, 5, STEPS, 7])
    following = {"targets": torch.cat((x[:, 1:], noise(BATCH, 1, INPUTS)), 1)}
    for a in ARCHITECTURES:
        yield Case("classifier", a, Program(body(a), "last"), x, last)
        yield Case("classifier by the mean", a, Program(body(a), "mean"), x, last)
        yield Case("next step", a, Program(body(a)), x, following)
        yield Case(
            "next step, normalised", a, Program(body(a), normal=nn.LayerNorm(UNITS)), x, following
        )
        yield Case(
            "with dropout",
            a,
            Program(body(a), "last", normal=nn.Dropout(0.3)),
            x,
            {**last, "learning_rate": 1e-2},
        )
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        both: Any = kind(UNITS, UNITS // 2, batch_first=True, bidirectional=True)
        short = x[:, :12] if kind is nn.RNN else x  # its gradient does vanish over 24 steps
        yield Case("tagger", kind.__name__, Program(Layer(both)), short)
        yield Case(
            "bare layer", kind.__name__, kind(INPUTS, UNITS, 2), x.transpose(0, 1).contiguous()
        )
        if kind is nn.RNN:
            continue
        packed = _Packed(kind(INPUTS, UNITS, batch_first=True))
        yield Case("packed", kind.__name__, packed, (x, lengths), {"lengths": lengths})
    encoder = nn.TransformerEncoderLayer(UNITS, 2, 16, 0.0, batch_first=True)
    yield Case("encoder", "attention", Program(nn.TransformerEncoder(encoder, 2)), x)
    embedding = nn.Sequential(nn.Embedding(9, UNITS), Layer(nn.GRU(UNITS, UNITS, batch_first=True)))
    yield Case("symbols", "gru", embedding, torch.randint(9, (BATCH, STEPS)))
    for name in recurrent_networks():
        network = models.build(name, input_size=INPUTS, hidden_size=UNITS)
        yield Case(name, "undamped", network, x.transpose(0, 1).contiguous())


class _Packed(nn.Module):
    """Reads the last state of packed sequences."""

    batch_first = True

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(UNITS, 2)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return one answer per sequence."""
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        state = self.layer(packed)[1]
        return self.head((state[0] if isinstance(state, tuple) else state)[-1])
