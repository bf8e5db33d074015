"""A perceptron over a fixed linear memory: the baseline of memory without gates."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.contract import Batch, TaskShape
from undamped._base.options import PositiveInt
from undamped._base.registry import models
from undamped.lab.baselines.window import as_vectors, check_readout
from undamped.models.task_model import TaskModel


@lru_cache(maxsize=8)
def basis_functions(basis: str, order: int, length: int) -> Tensor:
    """Return functions with a norm of one at the steps of a sequence, (order, length).

    Args:
        basis: "legendre" or "oscillators".
        order: Number of functions.
        length: Number of steps of the sequence.
    """
    if basis == "legendre":
        times = (2 * torch.arange(length, dtype=torch.float64) + 1) / length - 1
        rows = [torch.ones_like(times), times]
        for k in range(1, order - 1):  # Bonnet's recursion
            rows.append(((2 * k + 1) * times * rows[k] - k * rows[k - 1]) / (k + 1))
        functions = torch.stack(rows[:order])
    else:
        # Periods from 2 to 20,000 steps and time constants from 1 to 10,000 steps, both evenly in
        # logarithms.
        random = torch.Generator().manual_seed(0)
        scales = 10.0 ** (-4 * torch.rand(2, order, 1, generator=random).double())
        ages = torch.arange(length - 1, -1, -1, dtype=torch.float64)
        phases = torch.tensor((0.0, math.pi / 2)).repeat(order)[:order].unsqueeze(1)
        functions = torch.cos(math.pi * scales[0] * ages + phases) * torch.exp(-scales[1] * ages)
    return F.normalize(functions, dim=1)


@models.register("linear-memory")
class LinearMemory(TaskModel):
    """A perceptron that reads a fixed linear summary of every channel's whole past.

    With `basis="legendre"` the summary of a channel is its projection on Legendre polynomials over
    the whole sequence, which is what a Legendre memory unit with a window of that length holds.
    With `basis="oscillators"` it is the state of damped linear oscillators with fixed frequencies
    and dampings, which is a LinOSS layer that is not trained. Only the perceptron is trained.

    Equation:
        m_k = Σ_t f_k(t) x_t,  y = W₂ relu(W₁ m + b₁) + b₂

    Symbols:
        T length of the sequence, f_k basis function k with ‖f_k‖ = 1: P_k(2 t/T − 1), or the cosine
        or sine of ω_k (T − t) times exp(−γ_k (T − t)).

    Promise:
        None: the summary has a fixed size.

    Args:
        shape: Sizes of the task.
        basis: The functions that inputs are projected on.
        order: Number of functions.
        hidden_size: Units of the hidden layer.

    Example:
        >>> shape = undamped.models.TaskShape(3, 2)
        >>> model = undamped.build("linear-memory", shape=shape, order=16)
        >>> model(torch.randn(50, 4, 3)).shape
        torch.Size([4, 2])

    Reference:
        A. Voelker, I. Kajić, C. Eliasmith. Legendre memory units. NeurIPS, 2019.
        T. K. Rusch, D. Rus. Oscillatory state-space models. ICLR, 2025.
    """

    sequential = True
    input_kinds = frozenset({"vectors", "pixels"})

    def __init__(
        self,
        shape: TaskShape,
        *,
        basis: Literal["legendre", "oscillators"] = "legendre",
        order: PositiveInt = 64,
        hidden_size: PositiveInt = 128,
    ) -> None:
        super().__init__()
        check_readout("linear-memory", shape)
        self.basis, self.order = basis, order
        self.layers = nn.Sequential(
            nn.Linear(order * shape.input_size, hidden_size),
            nn.ReLU(),
            nn.Linear(hidden_size, shape.output_size),
        )

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, None]:
        """Return the answers from the memory at the end of every sequence."""
        x, lengths = as_vectors(batch.inputs), batch.lengths
        ends = [len(x)] * x.shape[1] if lengths is None else lengths.tolist()
        bases = {n: basis_functions(self.basis, self.order, n).to(x) for n in set(ends)}
        if len(bases) == 1:
            memory = torch.einsum("kt,tbc->bkc", bases[ends[0]], x[: ends[0]])
        else:
            memory = torch.stack([bases[end] @ x[:end, i] for i, end in enumerate(ends)])
        return self.layers(memory.flatten(1)), None
