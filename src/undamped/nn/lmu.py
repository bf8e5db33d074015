"""LMU (Voelker, Kajić and Eliasmith, 2019): a memory of Legendre polynomials over a window."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.options import PositiveFloat, PositiveInt
from undamped.kernels.coupled import steps
from undamped.nn.bases.cell import Cell, MemoryPlan, ScanResult, State, loop_scan
from undamped.nn.bases.coupled import CoupledCell
from undamped.nn.recurrent import Recurrent
from undamped.nn.sequence_tensors import mask_and_last


@lru_cache(maxsize=32)
def legendre_memory(order: int, window: float) -> tuple[np.ndarray, np.ndarray]:
    """Return Ā (order, order) and B̄ (order, 1) of a step, for orthonormal polynomials, in float64.

    Args:
        order: Number of polynomials.
        window: Number of steps that the memory covers.
    """
    i = np.arange(order)
    root, sign = np.sqrt(2.0 * i + 1), 1.0 - 2 * (i % 2)
    # The paper's (2i + 1) (−1 for i < j, else (−1)^(i−j+1)), between the roots of 2i + 1.
    signs = np.where(i[:, None] < i, -1.0, -np.outer(sign, sign))
    generator = np.zeros((order + 1, order + 1))
    generator[:order, :order] = np.outer(root, root) * signs / window
    generator[:order, order] = root * sign / window
    step = torch.linalg.matrix_exp(torch.from_numpy(generator)).numpy()  # zero-order hold
    return step[:order, :order].copy(), step[:order, order:].copy()


class LegendreMemory(CoupledCell):
    """The memory of one signal: m' = Ā m + B̄ u.

    The eigenvectors of Ā have a condition number of 10⁸ at order 16, so that the step is a product
    with the matrix and not a diagonal recurrence.

    Args:
        order: Number of polynomials.
        window: Number of steps that the memory covers.
    """

    kernel = steps.LeakyRelu(1.0)  # the identity
    like: Tensor

    def __init__(self, order: int, window: float) -> None:
        super().__init__(1, order)
        # Arrays, because tensors of a trace must not be cached.
        self.arrays = legendre_memory(order, window)
        self.register_buffer("like", torch.empty(0), persistent=False)  # device and type

    def matrices(self) -> State:
        """Return Ā and B̄."""
        step, drive = (torch.as_tensor(array) for array in self.arrays)
        return step.to(self.like), drive.to(self.like)

    def constants(self) -> State:
        return self.matrices()[:1]

    def input_tensors(self) -> State:
        return self.matrices()[1:]

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Return Ā m + B̄ u."""
        return (self.product(state, constants) + projected,)


class LMUCell(Cell):
    """LMU: a linear memory of the last θ steps, and a nonlinear layer that reads it.

    Equation:
        u = e_x x,  m' = Ā m + B̄ u,  h' = tanh(W_x x + W_m m' + b)
        feedback: u = e_x x + e_h h + e_m m,  h' = tanh(W_x x + W_h h + W_m m' + b)

    Symbols:
        x input, h output, u the signals that are remembered, m their coefficients of Legendre
        polynomials over the last θ steps, Ā and B̄ the zero-order hold of the paper's A/θ and B/θ,
        which are fixed. The state holds m/√(2i + 1), coefficients of orthonormal polynomials.

        Without feedback only the memory is recurrent, which is the parallel LMU of the second
        reference and the default of the authors' package. The paper of 2019 has feedback, and a
        loop over all steps.

    Promise:
        None strict. ‖Ā‖ ≤ 1 for orthonormal polynomials, so that a memory never grows by itself; it
        forgets what is older than θ steps.

    Args:
        order: Number of polynomials.
        window: θ, the number of steps that the memory covers.
        channels: Number of signals u that are remembered.
        feedback: Whether output and memory are fed back, as in the paper of 2019.

    Example:
        >>> net = undamped.nn.LMU(6, 16, order=32, window=50)
        >>> output, state = net(torch.randn(50, 4, 6))

    Reference:
        A. Voelker, I. Kajić, C. Eliasmith. Legendre memory units: continuous-time representation in
        recurrent neural networks. NeurIPS, 2019. Without feedback: N. R. Chilkuri, C. Eliasmith.
        Parallelizing Legendre memory unit training. ICML, 2021.
    """

    state_names = ("hidden", "memory")
    needs_full_precision = True
    memory_plan = MemoryPlan(chunked=True)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        order: PositiveInt = 64,
        window: PositiveFloat = 100.0,
        channels: PositiveInt = 1,
        feedback: bool = False,
    ) -> None:
        super().__init__(input_size, hidden_size)
        self.order, self.window, self.channels = order, window, channels
        self.feedback = feedback
        self.memory = LegendreMemory(order, window)
        width = channels * order
        self.encoder = nn.Parameter(_lecun_uniform(channels, input_size))
        self.input_weight = nn.Parameter(torch.empty(hidden_size, input_size))
        self.memory_weight = nn.Parameter(torch.empty(hidden_size, width))
        matrices = [self.input_weight, self.memory_weight]
        if feedback:
            self.hidden_encoder = nn.Parameter(_lecun_uniform(channels, hidden_size))
            self.memory_encoder = nn.Parameter(torch.zeros(channels, width))
            self.weight_hh = nn.Parameter(torch.empty(hidden_size, hidden_size))
            matrices.append(self.weight_hh)
        for matrix in matrices:
            nn.init.xavier_normal_(matrix)
        self.bias = nn.Parameter(torch.zeros(hidden_size))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (self.hidden_size, self.channels * self.order)

    def project(self, x: Tensor) -> Tensor:
        """Return e_x x and W_x x + b, concatenated."""
        return torch.cat([F.linear(x, self.encoder), F.linear(x, self.input_weight, self.bias)], -1)

    def constants(self) -> State:
        """Return Ā, B̄, and √(2i + 1), which the matrices that read m are multiplied by."""
        scale = (2 * torch.arange(self.order).to(self.bias) + 1).sqrt().repeat(self.channels)
        return (*self.memory.matrices(), scale)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Write u into the memory, then read it."""
        (hidden, memory), (step, drive, scale) = state, constants
        signals, direct = projected[..., : self.channels], projected[..., self.channels :]
        if self.feedback:
            signals = signals + F.linear(hidden, self.hidden_encoder)
            signals = signals + F.linear(memory * scale, self.memory_encoder)
            direct = direct + F.linear(hidden, self.weight_hh)
        coefficients = memory.reshape(*memory.shape[:-1], self.channels, self.order)
        updated = F.linear(coefficients, step) + F.linear(signals.unsqueeze(-1), drive)
        memory = updated.flatten(-2)
        return torch.tanh(direct + F.linear(memory * scale, self.memory_weight)), memory

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Scan the memory with the kernel for matrices, and read all steps at once."""
        if self.feedback:
            return loop_scan(self, x, state, lengths)
        steps_, batch = x.shape[:2]
        signals = F.linear(x, self.encoder).reshape(steps_, batch * self.channels, 1)
        each = None if lengths is None else lengths.repeat_interleave(self.channels)
        start = state[1].reshape(batch * self.channels, self.order)
        memory, (last,) = self.memory.scan(signals, (start,), each)
        memory = memory.reshape(steps_, batch, -1)
        read = F.linear(memory, self.memory_weight * self.constants()[2])
        output = torch.tanh(F.linear(x, self.input_weight, self.bias) + read)
        output, last_output = mask_and_last(output, state[0], lengths)
        return output, (last_output, last.reshape(batch, -1))


def _lecun_uniform(rows: int, columns: int) -> Tensor:
    bound = (3 / columns) ** 0.5
    return torch.empty(rows, columns).uniform_(-bound, bound)


class LMU(Recurrent, cell=LMUCell, name="lmu"): ...
