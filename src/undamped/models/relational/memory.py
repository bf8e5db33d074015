"""Networks with an external memory: neural Turing machine and metalearned neural memory.

Reference: A. Graves, G. Wayne, I. Danihelka, 2014. T. Munkhdalai and others, 2019. Both as in the
programs of T. W. Webb and others, over the codes of images.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import Units
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start, start_gates

SHIFTS = (-1, 0, 1)
Memory = list[Tensor]
"""The weights of the three layers of a memory network, (batch, size, size) each."""


class _Address(nn.Module):
    """The address of a head: by content, mixed with the previous address, shifted, sharpened."""

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.key = start(nn.Linear(hidden_size, width), 5 / 3)
        self.strength = start(nn.Linear(hidden_size, 1), "relu")
        self.gate = start(nn.Linear(hidden_size, 1))
        self.shift = start(nn.Linear(hidden_size, len(SHIFTS)))
        self.sharpness = start(nn.Linear(hidden_size, 1), "relu")

    def forward(self, hidden: Tensor, memory: Tensor, before: Tensor | None) -> Tensor:
        """Return weights (batch, rows) over a memory (batch, rows, width)."""
        key = torch.tanh(self.key(hidden)).unsqueeze(1)
        likeness = F.cosine_similarity(key, memory, dim=2)
        weights = torch.softmax(F.softplus(self.strength(hidden)) * likeness, 1)
        if before is not None:
            gate = torch.sigmoid(self.gate(hidden))
            weights = gate * weights + (1 - gate) * before
        shifted = torch.stack([torch.roll(weights, by, 1) for by in SHIFTS], 1)
        weights = (shifted * torch.softmax(self.shift(hidden), 1).unsqueeze(2)).sum(1)
        weights = weights ** (F.softplus(self.sharpness(hidden)) + 1)
        return weights / weights.sum(1, keepdim=True)


@models.register("ntm")
class NTM(RelationalModel):
    """An LSTM that reads and writes a memory by content and by shifts.

    Equation:
        h_t = LSTM([z_t, r_{t−1}]),  r_t = Σ_i a_t(i) M_{t−1}(i),  y = W h_{T+1}
        M_t(i) = M_{t−1}(i) (1 − w_t(i) e_t) + w_t(i) c_t

    Symbols:
        z_t normalised code of image t (zero after the last), M memory, a and w addresses of the
        reading and the writing head, e and c erased and added values; r_1 is zero.

    Promise:
        None: the controller reads the images themselves.

    Args:
        hidden_size: Units of the LSTM.
        memory_size: Rows of the memory.
        memory_width: Size of a row.
        sight: See `SightOptions`.

    Reference:
        A. Graves, G. Wayne, I. Danihelka. Neural Turing machines. 2014; as in the program of
        T. W. Webb and others.
    """

    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 512}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        hidden_size: Units = 512,
        memory_size: Units = 10,
        memory_width: Units = 256,
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        self.lstm = nn.LSTMCell(self.features + memory_width, hidden_size)
        start_gates(self.lstm)
        self.read, self.write = (_Address(hidden_size, memory_width) for _ in range(2))
        self.erase = start(nn.Linear(hidden_size, memory_width))
        self.add = start(nn.Linear(hidden_size, memory_width), 5 / 3)
        self.memory = nn.Parameter(torch.empty(memory_size, memory_width))
        nn.init.xavier_normal_(self.memory)
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def decide(self, codes: Tensor) -> Tensor:
        z = self.normalise(codes)
        batch = z.shape[1]
        memory = self.memory.expand(batch, -1, -1)
        retrieved = z.new_zeros(batch, self.memory.shape[1])
        read_address: Tensor | None = None
        write_address: Tensor | None = None
        state: Any = None
        for t, code in enumerate(z):
            state = self.lstm(torch.cat([code, retrieved], 1), state)
            hidden = state[0]
            if t > 0:  # the memory is empty before the first image is written
                read_address = self.read(hidden, memory, read_address)
                retrieved = torch.einsum("bi,biw->bw", read_address, memory)
            address: Tensor = self.write(hidden, memory, write_address)
            write_address, weight = address, address.unsqueeze(2)
            erased = memory * (1 - weight * torch.sigmoid(self.erase(hidden)).unsqueeze(1))
            memory = erased + weight * torch.tanh(self.add(hidden)).unsqueeze(1)
        last = torch.cat([torch.zeros_like(z[0]), retrieved], 1)
        return self.head(self.lstm(last, state)[0])


@models.register("mnm")
class MNM(RelationalModel):
    """An LSTM whose memory is a small network that it rewrites by predicted targets.

    Equation:
        h_t = LSTM([z_t, r_{t−1}]),  k, v, q, b = tanh(W h_t),  β = σ(w · b)
        M_l ← M_l − (2β / d) (a_l − e_l) a_{l−1}ᵀ,  e = E v,  r_t = M(q)
        y = W_y W_r [h_{T+1}, r_{T+1}]

    Symbols:
        z_t normalised code of image t (zero after the last), M a network of three layers with a
        tanh after the first two, a_l outputs of its layers for the key k (a_0 = k), e_l their
        targets, v value, q query, β rate, d size. Training also minimises ‖M(k) − v‖² after each
        update.

    Promise:
        None: the controller reads the images themselves.

    Args:
        hidden_size: Units of the LSTM, and of each layer of the memory.
        sight: See `SightOptions`.

    Reference:
        T. Munkhdalai, A. Sordoni, T. Wang, A. Trischler. Metalearned neural memory. NeurIPS, 2019;
        as in the program of T. W. Webb and others, with a trained initial memory.
    """

    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 128}}

    @checked
    def __init__(
        self, shape: TaskShape, *, hidden_size: Units = 128, **sight: Unpack[SightOptions]
    ) -> None:
        super().__init__(shape, **sight)
        self.hidden_size = hidden_size
        self.lstm = nn.LSTMCell(self.features + hidden_size, hidden_size)
        self.heads = nn.Linear(hidden_size, 4 * hidden_size)
        self.rate = nn.Linear(hidden_size, 1)
        self.targets = nn.Linear(hidden_size, 3 * hidden_size)
        self.read_out = nn.Linear(2 * hidden_size, hidden_size)
        bound = 1 / math.sqrt(hidden_size)
        self.memory = nn.ParameterList(
            [torch.empty(hidden_size, hidden_size).uniform_(-bound, bound) for _ in range(3)]
        )
        self.head = nn.Linear(hidden_size, shape.output_size)

    def decide(self, codes: Tensor) -> Tensor:
        z = self.normalise(codes)
        memory = [weight.expand(z.shape[1], -1, -1) for weight in self.memory]
        retrieved = z.new_zeros(z.shape[1], self.hidden_size)
        state: Any = None
        error = z.new_zeros(())
        for code in [*z, torch.zeros_like(z[0])]:
            state = self.lstm(torch.cat([code, retrieved], 1), state)
            rate, key, value, query = torch.tanh(self.heads(state[0])).split(self.hidden_size, 1)
            memory = self._update(memory, key, value, torch.sigmoid(self.rate(rate)))
            error = error + (_outputs(memory, key)[-1] - value).square().mean()
            retrieved = _outputs(memory, query)[-1]
        self.add_penalty(error / len(z))
        return self.head(self.read_out(torch.cat([state[0], retrieved], 1)))

    def _update(self, memory: Memory, key: Tensor, value: Tensor, rate: Tensor) -> Memory:
        """Return the memory after a step towards a value for a key."""
        outputs = _outputs(memory, key)
        targets = self.targets(value).split(self.hidden_size, 1)
        factor = 2 / self.hidden_size
        return [
            weight - factor * (after - target).unsqueeze(2) * (rate * before).unsqueeze(1)
            for weight, before, after, target in zip(
                memory, [key, *outputs[:-1]], outputs, targets, strict=True
            )
        ]


def _outputs(memory: Memory, key: Tensor) -> list[Tensor]:
    """Return the output of each layer of a memory for a key (batch, size)."""
    first = torch.tanh(_product(memory[0], key))
    second = torch.tanh(_product(memory[1], first))
    return [first, second, _product(memory[2], second)]


def _product(weight: Tensor, x: Tensor) -> Tensor:
    return (weight @ x.unsqueeze(2)).squeeze(2)
