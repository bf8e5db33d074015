"""Defects and healthy models in further styles of code, made after the rules were fixed.

They are whole programs as users write them: gates by einsum, convolutions by FFT, encoder and
decoder, token models. Nothing is shared with `planted` but sizes and the class `Case`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped.lab.benchmarks.planted import BATCH, INPUTS, STEPS, UNITS, Case, classes, noise

WORDS = 11


class GatedLoop(nn.Module):
    """An LSTM written with einsum, over (time, batch, features).

    Args:
        forget: Initial bias of the forget gate.
        between: Applied to both parts of the state after every step.
    """

    batch_first = False

    def __init__(
        self, forget: float = 1.0, between: Callable[[Tensor], Tensor] = lambda s: s
    ) -> None:
        super().__init__()
        self.gates = nn.Parameter(0.3 * torch.randn(4, INPUTS + UNITS, UNITS))
        self.shift = nn.Parameter(torch.tensor((0.0, forget, 0.0, 0.0))[:, None].repeat(1, UNITS))
        self.out, self.between = nn.Linear(UNITS, INPUTS), between

    def forward(self, x: Tensor) -> Tensor:
        """Return an answer for every sequence."""
        h = c = x.new_zeros(x.shape[1], UNITS)
        for x_t in x:
            u = torch.einsum("bi,gij->gbj", torch.cat((x_t, h), 1), self.gates)
            i, f, g, o = u + self.shift[:, None]
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            h, c = self.between(h), self.between(c)
        return self.out(h)


class LongConvolution(nn.Module):
    """A convolution as long as the sequence, by FFT.

    Args:
        padded: Whether zeros are appended, without which the convolution is circular.
    """

    batch_first = True

    def __init__(self, padded: bool = True) -> None:
        super().__init__()
        self.lift, self.out = nn.Linear(INPUTS, UNITS), nn.Linear(UNITS, INPUTS)
        self.rates, self.padded = nn.Parameter(torch.linspace(0.02, 0.5, UNITS)), padded

    def forward(self, x: Tensor) -> Tensor:
        """Return an answer for every step."""
        u, steps = self.lift(x), x.shape[1]
        size = 2 * steps if self.padded else steps
        kernel = torch.exp(-self.rates * torch.arange(steps)[:, None])
        spectrum = torch.fft.rfft(u, size, 1) * torch.fft.rfft(kernel, size, 0)
        return self.out(F.gelu(torch.fft.irfft(spectrum, size, 1)[:, :steps]) + u)


class TokenModel(nn.Module):
    """A language model of encoder layers.

    Args:
        mask: From the number of steps to an attention mask.
        frozen: Whether the embedding is computed without gradients.
    """

    batch_first = True

    def __init__(
        self,
        mask: Callable[[int], Tensor] = nn.Transformer.generate_square_subsequent_mask,
        frozen: bool = False,
    ) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, UNITS), nn.Linear(UNITS, WORDS)
        self.positions = nn.Embedding(64, UNITS)
        layer = nn.TransformerEncoderLayer(UNITS, 2, 16, 0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.mask, self.frozen = mask, frozen

    def forward(self, words: Tensor) -> Tensor:
        """Return logits (batch, time, words)."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            e = self.embed(words)
        e = e + self.positions(torch.arange(words.shape[1]))
        return self.head(self.blocks(e, mask=self.mask(words.shape[1])))


class EncoderDecoder(nn.Module):
    """Encoder, attention over its outputs, one answer per sequence.

    Args:
        masked: Whether steps beyond the lengths have no weight.
        logarithm: Whether the weights pass through a logarithm.
    """

    batch_first = True

    def __init__(self, masked: bool = True, logarithm: bool = False) -> None:
        super().__init__()
        self.encoder = nn.GRU(INPUTS, UNITS, batch_first=True)
        self.query, self.decoder = nn.Linear(UNITS, UNITS), nn.GRUCell(UNITS, UNITS)
        self.out, self.masked, self.logarithm = nn.Linear(UNITS, INPUTS), masked, logarithm

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Return an answer for every sequence."""
        memory, _ = self.encoder(x)
        over = torch.arange(x.shape[1]) >= lengths[:, None]
        h = memory[torch.arange(len(x)), (lengths if self.masked else lengths * 0 + 1) - 1]
        for _ in range(3):
            scores = torch.einsum("bd,btd->bt", self.query(h), memory)
            if self.masked:
                scores = scores.masked_fill(over, -torch.inf)
            weights = scores.softmax(-1)
            if self.logarithm:
                weights = weights.log().softmax(-1) + 0 * weights.log()
            h = self.decoder(torch.einsum("bt,btd->bd", weights, memory), h)
        return self.out(h)


class GatedConvolutions(nn.Module):
    """Gated causal convolutions with batch normalisation, (batch, channels, time) inside.

    Args:
        current: Whether the statistics are those of the current batch in evaluation, too.
    """

    batch_first = True

    def __init__(self, current: bool = False) -> None:
        super().__init__()
        self.first, self.out = nn.Conv1d(INPUTS, UNITS, 1), nn.Conv1d(UNITS, INPUTS, 1)
        self.dilations = (1, 2, 4, 8)
        layers = [nn.Conv1d(UNITS, 2 * UNITS, 2, dilation=d) for d in self.dilations]
        self.gated = nn.ModuleList(layers)
        self.norm, self.current = nn.BatchNorm1d(UNITS), current

    def forward(self, x: Tensor) -> Tensor:
        """Return an answer for every step."""
        h = self.first(x.mT)
        for dilation, layer in zip(self.dilations, self.gated, strict=True):
            h = h + F.glu(layer(F.pad(h, (dilation, 0))), 1)
        h = F.batch_norm(h, None, None, training=True) if self.current else self.norm(h)
        return self.out(h).mT


class Recurrence(nn.Module):
    """A recurrence of the user over (time, batch, features), with weights as bare parameters.

    Args:
        advance: From the state and the input to the next state.
        weight: Its recurrent matrix.
    """

    batch_first = False

    def __init__(self, advance: Callable[[Tensor, Tensor], Tensor], weight: Tensor) -> None:
        super().__init__()
        self.weight, self.advance = nn.Parameter(weight), advance
        self.lift, self.out = nn.Linear(INPUTS, UNITS), nn.Linear(UNITS, INPUTS)

    def forward(self, x: Tensor) -> Tensor:
        """Return an answer for every sequence."""
        h = x.new_zeros(x.shape[1], UNITS)
        for u in self.lift(x):
            h = self.advance(h @ self.weight, u)
        return self.out(h)


class Wrapped(nn.Module):
    """Modules by name, and a function that calls them.

    Args:
        parts: The modules.
        run: From the modules and the inputs to the answer.
        batch_first: Layout of the inputs.
    """

    def __init__(
        self,
        parts: dict[str, nn.Module],
        run: Callable[..., Tensor],
        batch_first: bool = True,
    ) -> None:
        super().__init__()
        self.parts, self.run, self.batch_first = nn.ModuleDict(parts), run, batch_first

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return what the function returns."""
        return self.run(self.parts, *inputs)


def _gru() -> dict[str, nn.Module]:
    return {"rnn": nn.GRU(INPUTS, UNITS, batch_first=True), "out": nn.Linear(UNITS, INPUTS)}


def _single_steps(p: Any, x: Tensor) -> Tensor:
    rows = [p["rnn"](x[:, t : t + 1])[0][:, 0] for t in range(x.shape[1])]
    return p["out"](rows[-1])


class MovingAverage(nn.Module):
    """Normalises with an average that every call updates, in evaluation as well."""

    batch_first = True

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(INPUTS, UNITS, batch_first=True)
        self.average: Tensor
        self.register_buffer("average", torch.zeros(INPUTS))

    def forward(self, x: Tensor) -> Tensor:
        """Return an answer for every step."""
        self.average = 0.9 * self.average + 0.1 * x.detach().mean((0, 1)) + 0.1
        return self.rnn(x - self.average)[0]


def later_defects() -> Iterator[Case]:
    """Yield the defects."""
    x, words, long = noise(), torch.randint(1, WORDS, (BATCH, STEPS)), noise(100, BATCH, INPUTS)
    swapped, last = x.transpose(0, 1).contiguous(), {"targets": classes()}
    following: dict[str, Any] = {"targets": torch.cat((words[:, 1:], words[:, :1]), 1)}
    following["loss"] = lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten())
    shifted = {"targets": torch.cat((x[:, 1:], noise(BATCH, 1, INPUTS)), 1)}
    lengths = torch.tensor([STEPS, 9, 12, 5, STEPS, 7])

    def case(name: str, kind: str, rule: str, model: nn.Module, inputs: Any, *at: str, **o: Any):
        return Case(name, kind, model, inputs, o, rule, at or ("forward",))

    yield case(
        "both states detached by hand",
        *("loop", "detached", GatedLoop(between=torch.Tensor.detach), swapped),
        **last,
    )
    yield case(
        "forget gate of the loop closed",
        *("loop", "vanishing gradient", GatedLoop(-6.0), long),
        **last,
    )
    yield case("circular convolution", "spectral", "future", LongConvolution(False), x, **shifted)
    yield case(
        "mask of the wrong triangle",
        *("attention", "future"),
        TokenModel(lambda n: torch.ones(n, n, dtype=torch.bool).tril(-1)),
        *(words, "blocks", "blocks.layers.0", "blocks.layers.0.self_attn"),
        **following,
    )
    yield case(
        "embedding without gradient",
        *("attention", "detached", TokenModel(frozen=True), words, "embed"),
        **following,
    )
    yield case("statistics of the current batch", "conv", "batch mates", GatedConvolutions(True), x)
    yield case(
        "attention over padding",
        *("encoder-decoder", "padding", EncoderDecoder(False), (x, lengths)),
        lengths=lengths,
    )
    yield case(
        "logarithm of masked weights",
        *("encoder-decoder", "not finite", EncoderDecoder(logarithm=True), (x, lengths)),
    )
    yield case("average updated in evaluation", "gru", "random answers", MovingAverage(), x)
    yield case(
        "sigmoid recurrence",
        *("loop", "vanishing gradient"),
        Recurrence(lambda h, u: torch.sigmoid(h + u), 0.3 * torch.randn(UNITS, UNITS)),
        *(long, "forward"),
        **last,
    )
    yield case(
        "relu recurrence of norm 2",
        *("loop", "growing state"),
        Recurrence(lambda h, u: torch.relu(h + u), 2 * torch.eye(UNITS)),
        *(swapped, "forward", "out"),
        **last,
    )
    yield from _later_functions(case, x, lengths, last, shifted)


def _later_functions(
    case: Callable[..., Case],
    x: Tensor,
    lengths: Tensor,
    last: dict[str, Any],
    shifted: dict[str, Any],
) -> Iterator[Case]:
    """Yield the defects that are a function of common modules."""
    steep = Recurrence(lambda h, u: h + u, torch.eye(UNITS) * (1 - 3.0))
    yield case(
        "Euler step of a stiff decay",
        *("loop", "growing state", steep, x.transpose(0, 1).contiguous(), "forward", "out"),
        **last,
    )
    attention = {"mix": nn.MultiheadAttention(INPUTS, 1), "out": nn.Linear(INPUTS, INPUTS)}
    yield case(
        "attention in the wrong layout",
        *("attention", "batch mates"),
        Wrapped(attention, lambda p, x: p["out"](p["mix"](x, x, x)[0])),
        *(x, "parts.mix"),
    )
    dead: Any = {**_gru(), "wide": nn.Linear(UNITS, UNITS)}
    nn.init.constant_(dead["wide"].bias, -20.0)
    yield case(
        "functional relu, dead",
        *("gru", "dead units"),
        Wrapped(dead, lambda p, x: p["out"](F.relu(p["wide"](p["rnn"](x)[0][:, -1])))),
        *(x, "forward", "parts.wide"),
        **last,
    )
    zero: Any = _gru()
    nn.init.zeros_(zero["out"].weight)
    yield case(
        "head of zeros",
        *("gru", "no input", Wrapped(zero, lambda p, x: p["out"](p["rnn"](x)[0][:, -1])), x),
        *("forward", "parts.out"),
        **last,
    )
    both: Any = {"rnn": nn.LSTM(INPUTS, UNITS, batch_first=True, bidirectional=True)}
    yield case(
        "both directions over padding",
        *("lstm", "padding", Wrapped(both, lambda p, x: p["rnn"](x)[0][:, 0]), x, "parts.rnn"),
        lengths=lengths,
    )
    yield case(
        "layer called for single steps",
        *("gru", "state not carried", Wrapped(_gru(), _single_steps), x, "forward", "parts.rnn"),
        **last,
    )
    final: Any = {"rnn": nn.LSTM(INPUTS, UNITS), "out": nn.Sequential(nn.Linear(UNITS, 3))}
    final["out"].append(nn.LogSoftmax(-1))
    yield case(
        "LogSoftmax module before the cross entropy",
        *("lstm", "two softmaxes"),
        Wrapped(final, lambda p, x: p["out"](p["rnn"](x)[0][-1]), False),
        *(x.transpose(0, 1).contiguous(), "parts.out.1"),
        **last,
    )
    yield case(
        "functional dropout of 0.95",
        *("gru", "strong dropout"),
        Wrapped(
            _gru(),
            lambda p, x: p["out"](F.dropout(p["rnn"](x)[0][:, -1], 0.95, p.training)),
        ),
        *(x, "forward"),
        **last,
    )
    yield case(
        "series standardised as a whole",
        *("gru", "future"),
        Wrapped(_gru(), lambda p, x: p["out"](p["rnn"](x - x.mean(1, keepdim=True))[0])),
        *(x, "forward"),
        **shifted,
    )
    yield _zero_vectors(case, x)


def _zero_vectors(case: Callable[..., Case], x: Tensor) -> Case:
    roots = {"lift": nn.Linear(INPUTS, UNITS, bias=False), "rnn": nn.GRU(UNITS, UNITS)}
    padded = x.transpose(0, 1).contiguous()
    padded[-4:] = 0
    return case(
        "vectors of zeros normalised",
        *("gru", "gradient not finite"),
        Wrapped(roots, lambda p, x: p["rnn"](_unit(p["lift"](x)))[0][-1], False),
        *(padded, "forward", "parts.lift"),
    )


def _unit(e: Tensor) -> Tensor:
    return e / (e.square().sum(-1, keepdim=True).sqrt() + 1e-6)


def later_healthy() -> Iterator[Case]:
    """Yield healthy models in the same styles."""
    x, words = noise(), torch.randint(1, WORDS, (BATCH, STEPS))
    swapped, last = x.transpose(0, 1).contiguous(), {"targets": classes()}
    lengths = torch.tensor([STEPS, 9, 12, 5, STEPS, 7])
    shifted = {"targets": torch.cat((x[:, 1:], noise(BATCH, 1, INPUTS)), 1)}
    following: dict[str, Any] = {"targets": torch.cat((words[:, 1:], words[:, :1]), 1)}
    following["loss"] = lambda y, t: F.cross_entropy(y.flatten(0, 1), t.flatten())

    def case(name: str, kind: str, model: nn.Module, inputs: Any, **options: Any) -> Case:
        return Case(name, kind, model, inputs, options)

    yield case("LSTM by einsum", "loop", GatedLoop(), swapped, **last)
    yield case("convolution by FFT", "spectral", LongConvolution(), x, **shifted)
    yield case("language model", "attention", TokenModel(), words, **following)
    yield case("gated convolutions", "conv", GatedConvolutions(), x, **shifted)
    yield case("attention decoder", "encoder-decoder", EncoderDecoder(), (x, lengths), **last)
    yield case(
        "attention decoder, padded",
        *("encoder-decoder", EncoderDecoder(), (x, lengths)),
        lengths=lengths,
    )
    matrix = torch.linalg.qr(torch.randn(UNITS, UNITS))[0]
    orthogonal = Recurrence(lambda h, u: torch.tanh(h + 0.3 * u), matrix)
    yield case("orthogonal recurrence", "loop", orthogonal, swapped, **last)
    reservoir = Recurrence(lambda h, u: torch.tanh(h + 0.3 * u), matrix)
    reservoir.weight.requires_grad_(False)
    yield case("frozen reservoir", "loop", reservoir, swapped, **last)
    residual = Recurrence(lambda h, u: h + 0.1 * torch.tanh(h + u), torch.eye(UNITS))
    yield case("residual recurrence", "loop", residual, swapped, **last)
    auto = {
        "rnn": nn.GRU(INPUTS, UNITS, batch_first=True),
        "back": nn.GRU(UNITS, UNITS, batch_first=True),
        "out": nn.Linear(UNITS, INPUTS),
    }
    yield case(
        "autoencoder",
        "gru",
        Wrapped(
            auto,
            lambda p, x: p["out"](p["back"](p["rnn"](x)[1][0][:, None].expand(-1, STEPS, -1))[0]),
        ),
        x,
    )
    normal: Any = nn.utils.parametrizations.weight_norm(
        nn.LSTM(INPUTS, UNITS, batch_first=True), "weight_hh_l0"
    )
    yield case(
        "weight norm",
        *("lstm", Wrapped({"rnn": normal}, lambda p, x: p["rnn"](x)[0][:, -1, :3]), x),
        **last,
    )
    yield case(
        "pooled convolutions",
        "conv",
        nn.Sequential(
            nn.Conv1d(STEPS, UNITS, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(24, 3)
        ),
        x,
        **last,
    )
