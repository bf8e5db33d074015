"""S4D (Gu, Gupta, Goel and Ré, 2022): a diagonal state-space model for every feature."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.linear.scan import linear_scan
from undamped.nn.bases.cell import Cell, MemoryPlan, ScanResult, State
from undamped.nn.lru import legs_frequencies
from undamped.nn.recurrent import Recurrent
from undamped.nn.sequence_tensors import mask_and_last

Start = Literal["lin", "inv", "legs"]
Discretisation = Literal["zoh", "bilinear"]


class S4DCell(Cell):
    """S4D: every feature drives a diagonal linear system of its own.

    Equation:
        h' = λ ⊙ h + v,  y = 2 Re Σ C ⊙ γ ⊙ h' + D v,  v = u, or E u where the sizes differ
        zoh: λ = exp(ΔA), γ = (λ − 1) / A
        bilinear: λ = (1 + ΔA/2) / (1 − ΔA/2), γ = Δ / (1 − ΔA/2)

    Symbols:
        u input, v what drives the systems, y output, h states, complex, one of each conjugate pair,
        divided by the factor γ of the discretised input; A = −exp(a) + i ω rates, Δ one step for
        each feature, D a factor. The initial A are −1/2 + i π n (lin),
        −1/2 + i (N/π) (N/(2n + 1) − 1) with N = 2 modes (inv), or the eigenvalues of the normal
        part of HiPPO-LegS (legs), for n = 0, 1, …; ln Δ is uniform.

        The layer is linear and features do not mix. In the paper it is inside a block of
        normalisation, gelu, gated linear unit and residual connection: block="layer-norm".

    Promise:
        |λ| = exp(−Δ exp(a)) for zoh, and below one for any weights in both discretisations.

    Args:
        modes: Number of complex states of a feature, half of the state size N of the paper (64).
        start: The initial rates A.
        discretisation: How the continuous system becomes a recurrence.
        smallest_step: The smallest initial Δ.
        largest_step: The largest initial Δ.

    Example:
        >>> net = undamped.nn.S4D(6, 16, num_layers=2, block="layer-norm")
        >>> output, state = net(torch.randn(50, 4, 6))

    Reference:
        A. Gu, A. Gupta, K. Goel, C. Ré. On the parameterization and initialization of diagonal
        state space models. NeurIPS, 2022.
    """

    promises = (Promise(Kind.SCALED_SPECTRUM, "|λ| = exp(−Δ exp(a)) for zoh, < 1 for bilinear"),)
    state_names = ("output", "hidden")
    independent_units = True
    needs_full_precision = True
    memory_plan = MemoryPlan(saved_sequences=64, chunked=True)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        modes: PositiveInt = 16,
        start: Start = "lin",
        discretisation: Discretisation = "zoh",
        smallest_step: PositiveFloat = 1e-3,
        largest_step: PositiveFloat = 1e-1,
    ) -> None:
        super().__init__(input_size, hidden_size)
        if smallest_step > largest_step:
            raise OptionError(
                f"smallest_step must be at most largest_step={largest_step:g}, got {smallest_step}."
            )
        self.modes, self.discretisation = modes, discretisation
        self.encoder: nn.Parameter | None = None
        if input_size != hidden_size:
            self.encoder = nn.Parameter(torch.empty(hidden_size, input_size))
            nn.init.normal_(self.encoder, std=input_size**-0.5)
        low, high = math.log(smallest_step), math.log(largest_step)
        self.step_log = nn.Parameter(torch.empty(hidden_size, 1).uniform_(low, high))
        self.rate_log = nn.Parameter(torch.full((hidden_size, modes), math.log(0.5)))
        frequencies = _frequencies(start, modes).to(self.rate_log.dtype)
        self.frequency = nn.Parameter(frequencies.expand(hidden_size, modes).clone())
        # Real and imaginary parts of complex normal numbers.
        self.output_weight = nn.Parameter(torch.randn(hidden_size, modes, 2) * 0.5**0.5)
        self.pass_weight = nn.Parameter(torch.randn(hidden_size))

    @property
    def state_sizes(self) -> tuple[int, ...]:
        return (self.hidden_size, 2 * self.modes * self.hidden_size)

    def project(self, x: Tensor) -> Tensor:
        """Return v."""
        return x if self.encoder is None else F.linear(x, self.encoder)

    def constants(self) -> State:
        """Return λ as pairs (units, 2) and 2 C γ, conjugate, as (hidden, 2 modes)."""
        step, rate, frequency = self.step_log.exp(), self.rate_log.exp(), self.frequency
        a, b = -step * rate, step * frequency  # ΔA
        if self.discretisation == "zoh":
            size, cosine, sine = a.exp(), b.cos(), b.sin()
            real, imaginary = size * cosine, size * sine
            # λ − 1 without the cancellation at small steps.
            x, y = torch.expm1(a) * cosine - 2 * (b / 2).sin() ** 2, imaginary
            below = rate**2 + frequency**2
            gain = ((-x * rate + y * frequency) / below, (-y * rate - x * frequency) / below)
        else:
            below = (1 - a / 2) ** 2 + (b / 2) ** 2
            real, imaginary = (1 - (a**2 + b**2) / 4) / below, b / below
            gain = (step * (1 - a / 2) / below, step * (b / 2) / below)
        c, d = self.output_weight.unbind(-1)
        readout = torch.stack([c * gain[0] - d * gain[1], -(c * gain[1] + d * gain[0])], -1)
        eigenvalues = torch.stack([real, imaginary], -1)
        return eigenvalues.flatten(0, 1), 2 * readout.flatten(1)

    def read(self, hidden: Tensor, v: Tensor, readout: Tensor) -> Tensor:
        """Return 2 Re Σ C ⊙ γ ⊙ h + D v."""
        pairs = hidden.reshape(*hidden.shape[:-1], *readout.shape)
        return (pairs * readout).sum(-1) + self.pass_weight * v

    def drive(self, v: Tensor) -> Tensor:
        """Return v as the real parts of the inputs of all units, (…, units, 2)."""
        units = torch.stack([v] * self.modes, -1).flatten(-2)
        return torch.stack([units, torch.zeros_like(units)], -1)

    def advance(self, projected: Tensor, state: State, constants: State) -> State:
        """Make one step of the units, then read them."""
        eigenvalues, readout = constants
        a, b = eigenvalues.unbind(-1)
        x, y = state[1][..., ::2], state[1][..., 1::2]
        rotated = torch.stack([a * x - b * y, b * x + a * y], -1)
        hidden = (rotated + self.drive(projected)).flatten(-2)
        return self.read(hidden, projected, readout), hidden

    def scan(self, x: Tensor, state: State, lengths: Tensor | None = None) -> ScanResult:
        """Make all steps of all units in one compiled loop."""
        v, (eigenvalues, readout) = self.project(x), self.cached_constants()
        pairs = eigenvalues.shape
        hidden, last = linear_scan(
            self.drive(v), eigenvalues, state[1].unflatten(-1, pairs), lengths
        )
        output = self.read(hidden.flatten(-2), v, readout)
        output, last_output = mask_and_last(output, state[0], lengths)
        return output, (last_output, last.flatten(-2))

    def free_parameters(self) -> list[nn.Parameter]:
        """Return a, ω and ln Δ."""
        return [self.rate_log, self.frequency, self.step_log]

    def recurrent_matrix(self) -> Tensor:
        """Return the real matrix of a step on all pairs."""
        rows = [
            torch.stack([torch.stack([a, -b]), torch.stack([b, a])]) for a, b in self.constants()[0]
        ]
        return torch.block_diag(*rows)

    def spectrum(self) -> Tensor:
        """Return the moduli of all eigenvalues, conjugates included."""
        step, rate = self.step_log.exp(), self.rate_log.exp()
        if self.discretisation == "zoh":
            return torch.exp(-step * rate).flatten().repeat(2)
        rotation = (step * self.frequency / 2) ** 2
        factors = [(1 + sign * step * rate / 2) ** 2 + rotation for sign in (-1, 1)]
        return (factors[0] / factors[1]).sqrt().flatten().repeat(2)


def _frequencies(start: Start, modes: int) -> Tensor:
    """Return the imaginary parts of the initial rates."""
    n = torch.arange(modes, dtype=torch.float64)
    if start == "lin":
        return math.pi * n
    if start == "inv":
        return 2 * modes / math.pi * (2 * modes / (2 * n + 1) - 1)
    return legs_frequencies(modes)


class S4D(Recurrent, cell=S4DCell, name="s4d"): ...
