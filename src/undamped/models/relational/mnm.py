"""Metalearned neural memory (Munkhdalai and others, 2019) over the codes of images."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import TaskShape
from undamped._base.options import Units
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions

Memory = list[Tensor]
"""The weights of the three layers of a memory, (batch, size, size) each."""


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
        shape: The shape of the task.
        hidden_size: Units of the LSTM, and of each layer of the memory.
        sight: See `SightOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.MNM(task.task_shape, hidden_size=32)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        T. Munkhdalai, A. Sordoni, T. Wang, A. Trischler. Metalearned neural memory. NeurIPS, 2019;
        as T. W. Webb and others have it, with a trained initial memory.
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
        """Return predictions (batch, output) for codes (time, batch, features)."""
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
