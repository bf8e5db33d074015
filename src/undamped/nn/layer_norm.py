"""LSTM and GRU with layer normalisation, zoneout and recurrent dropout."""

from __future__ import annotations

from itertools import accumulate
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import Fraction, PositiveInt
from undamped.kernels.coupled import Step, coupled_scan, projections, steps
from undamped.kernels.coupled.projections import EPSILON
from undamped.kernels.coupled.scan import Reference
from undamped.kernels.dispatch import use_plain_loops
from undamped.kernels.reference import step_by_step
from undamped.nn.bases.cell import ScanResult, State, reference_scan
from undamped.nn.bases.coupled import CoupledCell, runs_compiled
from undamped.nn.recurrent import Recurrent


class LayerNormCell(CoupledCell):
    """What the LSTM and the GRU with layer normalisation share.

    Args:
        layer_norm: Whether products and memory are normalised.
        rates: Probabilities that a unit keeps its memory, and its state, at a step.
        recurrent_dropout: Probability that a unit has no candidate in a whole sequence.
    """

    gates: ClassVar[int]
    parts: ClassVar[tuple[int, ...]]
    """Numbers of gates that are normalised together."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        layer_norm: bool,
        rates: tuple[float, ...],
        recurrent_dropout: float,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.layer_norm, self.recurrent_dropout = layer_norm, recurrent_dropout
        self.rates = rates if any(rates) or recurrent_dropout else ()
        rows, bound = self.gates * hidden_size, hidden_size**-0.5
        self.input_weight = nn.Parameter(torch.empty(rows, input_size).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden_size).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(rows))
        if layer_norm:
            self.input_gain = nn.Parameter(torch.ones(rows))
            self.hidden_gain = nn.Parameter(torch.ones(rows))

    def input_tensors(self) -> State:
        """Return V, b and, with layer normalisation, the gain of V x."""
        return self.input_weight, self.bias, *((self.input_gain,) if self.layer_norm else ())

    def recurrent_matrices(self) -> tuple[Tensor, ...]:
        return self.weight_hh.chunk(self.gates)

    def _gain(self) -> Tensor:
        """Return the gain of the recurrent product."""
        return self.hidden_gain if self.layer_norm else torch.ones_like(self.bias)

    def _normalise(self, product: Tensor) -> Tensor:
        """Return the parts of a product with mean 0 and variance 1."""
        if not self.layer_norm:
            return product
        parts = _split(product, [count * self.hidden_size for count in self.parts])
        return torch.cat([F.layer_norm(part, part.shape[-1:], eps=EPSILON) for part in parts], -1)

    def project(self, x: Tensor) -> Tensor:
        """Return the normalised V x with gain and bias, and masks."""
        result = self._project(x, *self.input_tensors())
        return torch.cat((result, *self._masks(x)), -1) if self.rates else result

    def _project(self, x: Tensor, weight: Tensor, bias: Tensor, *gain: Tensor) -> Tensor:
        product = self._normalise(F.linear(x, weight))
        return product * gain[0] + bias if gain else product + bias

    def _masks(self, x: Tensor) -> list[Tensor]:
        """Return random masks, and their expected values if the cell is not in training."""
        shape = (*x.shape[:-1], self.hidden_size)
        if not self.training:
            return [x.new_full(shape, value) for value in (*self.rates, 1.0)]
        masks = [x.new_empty(shape).bernoulli_(rate) for rate in self.rates]
        retention = 1 - self.recurrent_dropout
        factor = x.new_empty(shape[-2:]).bernoulli_(retention)  # the same at every step
        factor = factor / (retention or 1.0)
        return [*masks, factor.expand(shape)]

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan with the fused kernels, or in a plain loop where they cannot run."""
        if use_plain_loops():
            return reference_scan(self, x, state, lengths)
        constants = self.constants()
        if not runs_compiled(x, *state, *constants):
            return self.plain_scan(x, state, lengths)
        sizes = tuple(count * self.hidden_size for count in self.parts)
        random = self.training and self.rates
        seed = torch.randint(2**62, (1,)) if random else None
        plan = projections.Normalised(
            self.hidden_size, sizes, self.rates, self.recurrent_dropout, seed
        )
        return coupled_scan(
            self.elementwise(),
            self.operator(),
            plan,
            x,
            state,
            input_tensors=self.input_tensors(),
            linear=constants[:1],
            weights=constants[1:],
            lengths=lengths,
            reference=self._plain_recurrence(plan, lengths),
        )

    def _plain_recurrence(self, plan: projections.Normalised, lengths: Tensor | None) -> Reference:
        """Return the recurrence in plain PyTorch with the masks of the kernel."""

        def run(
            x: Tensor, state: State, _: State, inputs: State, linear: State, weights: State
        ) -> ScanResult:
            projected = self._project(x, *inputs)
            if self.rates:
                masks = x.new_empty(*x.shape[:2], (len(self.rates) + 1) * self.hidden_size)
                plan.fill_masks(masks, 0, 0)
                projected = torch.cat((projected, masks), -1)
            constants = (*linear, *weights)
            return step_by_step(
                lambda row, state: self.advance(row, state, constants),
                projected,
                tuple(state),
                lengths,
            )

        return run


def _split(rows: Tensor, sizes: list[int]) -> list[Tensor]:
    """Return columns; `Tensor.split` with sizes cannot be exported."""
    ends = list(accumulate(sizes))
    return [rows[..., end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _interpolate(rate: Tensor, old: Tensor, new: Tensor) -> Tensor:
    return rate * old + (1 - rate) * new


class LayerNormLSTMCell(LayerNormCell):
    """LSTM with layer normalisation; zoneout and recurrent dropout are options.

    Equation:
        i, f, g, o = LN(W h) + LN(V x) + b
        c̃ = σ̂(f) ⊙ c + σ̂(i) ⊙ m ⊙ tanh(g),  h̃ = σ̂(o) ⊙ tanh(LN(c̃))
        c' = d_c ⊙ c + (1 − d_c) ⊙ c̃,  h' = d_h ⊙ h + (1 − d_h) ⊙ h̃

    Symbols:
        h hidden state, c memory cell. LN(u) = α ⊙ (u − mean)/deviation + β with trained α and β,
        over all gates at once; β of the first two is part of b. d_c and d_h are random zeros and
        ones with the means `zoneout_memory` and `zoneout`, fresh at every step; m is 0 with
        the probability `recurrent_dropout`, otherwise 1/(1 − `recurrent_dropout`), the same at
        all steps of a sequence. In evaluation all are replaced by their means.

    Promise:
        None. With layer normalisation the gates do not depend on the scale of the weights, and
        small differences of the state can grow from the first step of training on.

    Args:
        layer_norm: Whether products and memory are normalised; without it this is an LSTM with
            zoneout and recurrent dropout.
        zoneout: Probability that a unit of h keeps its value at a step.
        zoneout_memory: Probability that a unit of c keeps its value at a step.
        recurrent_dropout: Probability that nothing is added to a unit of c.
        forget_bias: Initial bias of the forget gate.

    Example:
        >>> net = undamped.nn.LayerNormLSTM(3, 16, num_layers=2, zoneout=0.05, zoneout_memory=0.5)
        >>> output, (h, c) = net(torch.randn(50, 4, 3))

    Reference:
        J. L. Ba, J. R. Kiros, G. E. Hinton. Layer normalization. arXiv:1607.06450, 2016.
        D. Krueger et al. Zoneout: regularizing RNNs by randomly preserving hidden activations.
        ICLR, 2017.
        S. Semeniuta, A. Severyn, E. Barth. Recurrent dropout without memory loss. COLING, 2016.
    """

    state_names = ("hidden", "memory")
    gates = 4
    parts = (4,)
    needs_full_precision = True  # rounding errors grow: in 16 bits they become as large as h

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        layer_norm: bool = True,
        zoneout: Fraction = 0.0,
        zoneout_memory: Fraction = 0.0,
        recurrent_dropout: Fraction = 0.0,
        forget_bias: float = 1.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            layer_norm=layer_norm,
            rates=(zoneout_memory, zoneout),
            recurrent_dropout=recurrent_dropout,
        )
        self.bias.data[hidden_size : 2 * hidden_size] = forget_bias
        if layer_norm:
            self.memory_gain = nn.Parameter(torch.ones(hidden_size))
            self.memory_bias = nn.Parameter(torch.zeros(hidden_size))

    def elementwise(self) -> Step:
        return steps.NormalisedLongShort(float(self.layer_norm), float(bool(self.rates)))

    def constants(self) -> State:
        """Return W, the gain of its product, and gain and bias of the memory."""
        if self.layer_norm:
            return self.weight_hh, self._gain(), self.memory_gain, self.memory_bias
        ones = self.bias.new_ones(self.hidden_size)
        return self.weight_hh, self._gain(), ones, torch.zeros_like(ones)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        hidden, memory = state
        weight, gain, memory_gain, memory_bias = constants
        x, *masks = _split(projected, self._columns)
        total = gain * self._normalise(F.linear(hidden, weight)) + x
        i, f, g, o = total.chunk(4, -1)
        candidate = torch.tanh(g) * masks[2] if masks else torch.tanh(g)
        raw = torch.sigmoid(f) * memory + torch.sigmoid(i) * candidate
        normal = raw
        if self.layer_norm:
            normal = F.layer_norm(raw, raw.shape[-1:], memory_gain, memory_bias, EPSILON)
        new = torch.sigmoid(o) * torch.tanh(normal)
        if masks:
            return _interpolate(masks[1], hidden, new), _interpolate(masks[0], memory, raw)
        return new, raw

    @property
    def _columns(self) -> list[int]:
        return [4 * self.hidden_size, *[self.hidden_size] * (3 if self.rates else 0)]


class LayerNormGRUCell(LayerNormCell):
    """GRU with layer normalisation; zoneout and recurrent dropout are options.

    Equation:
        r, z = σ̂(LN(W h) + LN(V x) + b) for both gates together
        n = tanh(LN(V_n x) + b_n + r ⊙ (LN(W_n h) + d_n)),  h̃ = (1 − z) ⊙ m ⊙ n + z ⊙ h
        h' = d_h ⊙ h + (1 − d_h) ⊙ h̃

    Symbols:
        h hidden state, r reset gate, z update gate, n candidate. LN(u) = α ⊙ (u − mean)/deviation
        with a trained α. d_h is random, zero or one with the mean `zoneout`, fresh at every step; m
        is 0 with the probability `recurrent_dropout`, otherwise 1/(1 − `recurrent_dropout`), the
        same at all steps of a sequence. In evaluation both are replaced by their means.

    Promise:
        None. With layer normalisation the gates do not depend on the scale of the weights.

    Args:
        layer_norm: Whether products are normalised; without it this is a GRU with zoneout and
            recurrent dropout.
        zoneout: Probability that a unit keeps its value at a step.
        recurrent_dropout: Probability that nothing is added to a unit.

    Example:
        >>> net = undamped.nn.LayerNormGRU(3, 16, zoneout=0.1)
        >>> output, h = net(torch.randn(50, 4, 3))

    Reference:
        J. L. Ba, J. R. Kiros, G. E. Hinton. Layer normalization. arXiv:1607.06450, 2016.
        D. Krueger et al. Zoneout: regularizing RNNs by randomly preserving hidden activations.
        ICLR, 2017.
        S. Semeniuta, A. Severyn, E. Barth. Recurrent dropout without memory loss. COLING, 2016.
    """

    gates = 3
    parts = (2, 1)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        layer_norm: bool = True,
        zoneout: Fraction = 0.0,
        recurrent_dropout: Fraction = 0.0,
    ) -> None:
        super().__init__(
            input_size,
            hidden_size,
            layer_norm=layer_norm,
            rates=(zoneout,),
            recurrent_dropout=recurrent_dropout,
        )
        self.candidate_bias = nn.Parameter(torch.zeros(hidden_size))

    def elementwise(self) -> Step:
        return steps.NormalisedGatedRecurrent(float(self.layer_norm), float(bool(self.rates)))

    def constants(self) -> State:
        """Return W, the gain of its product, and what is added to it: d_n, zero for the gates."""
        shift = F.pad(self.candidate_bias, (2 * self.hidden_size, 0))
        return self.weight_hh, self._gain(), shift

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        (hidden,) = state
        weight, gain, shift = constants
        x, *masks = _split(projected, self._columns)
        product = gain * self._normalise(F.linear(hidden, weight)) + shift
        p_r, p_z, p_n = x.chunk(3, -1)
        h_r, h_z, h_n = product.chunk(3, -1)
        candidate = torch.tanh(p_n + torch.sigmoid(p_r + h_r) * h_n)
        if masks:
            candidate = candidate * masks[1]
        new = _interpolate(torch.sigmoid(p_z + h_z), hidden, candidate)
        return (_interpolate(masks[0], hidden, new) if masks else new,)

    @property
    def _columns(self) -> list[int]:
        return [3 * self.hidden_size, *[self.hidden_size] * (2 if self.rates else 0)]


class LayerNormLSTM(Recurrent, cell=LayerNormLSTMCell, name="layer-norm-lstm"): ...


class LayerNormGRU(Recurrent, cell=LayerNormGRUCell, name="layer-norm-gru"): ...
