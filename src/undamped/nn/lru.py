"""LRU (Orvieto et al., 2023): a complex diagonal recurrence between two matrices."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import Fraction, NonNegativeInt, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.kernels.linear.scan import linear_scan
from undamped.nn.bases.cell import ScanResult, State
from undamped.nn.bases.state_space import StateSpaceCell
from undamped.nn.recurrent import Recurrent

Start = Literal["ring", "hippo"]
STEPS = (1e-3, 1e-1)
"""The range from which S5 draws its steps."""


class LRUCell(StateSpaceCell):
    """LRU: units rotate and decay in the complex plane, each at its own rate.

    Equation:
        h' = λ ⊙ h + γ ⊙ B u,  λ = exp(−exp(ν) + i exp(θ)),  y = Re(C h) + D u

    Symbols:
        h hidden state, complex; u input, y output, ν, θ and ln γ are learned, B and C complex
        matrices, D a factor for every feature, or a matrix where input and output differ in size.
        With the initial γ = √(1 − |λ|²) the state is as large as the input.

        With start="hippo" initial eigenvalues are those of S5: λ = exp(Λ Δ) with Λ those of the
        normal part of HiPPO-LegS, one of each conjugate pair, ln Δ uniform between ln 0.001 and
        ln 0.1, and γ = |λ − 1| / |Λ|.

        The layer is linear. In the papers it is inside a block of normalisation, gelu, gated linear
        unit and residual connection: block="batch-norm", or "layer-norm", which allows streaming.

    Promise:
        |λ| = exp(−exp(ν)), below one for any weights.

    Args:
        modes: Number of complex units; 0 for as many as the output has features.
        smallest: The smallest initial modulus |λ|, for the ring.
        largest: The largest initial modulus |λ|, for the ring.
        largest_phase: The largest initial phase of λ, for the ring.
        start: Whether initial eigenvalues are uniform in a ring, or those of S5.

    Example:
        >>> net = undamped.nn.LRU(6, 16, num_layers=2, modes=8)
        >>> output, state = net(torch.randn(50, 4, 6))

    Reference:
        A. Orvieto, S. L. Smith, A. Gu, A. Fernando, C. Gulcehre, R. Pascanu, S. De. Resurrecting
        recurrent neural networks for long sequences. ICML, 2023. The other start: J. T. H. Smith,
        A. Warrington, S. W. Linderman. Simplified state space layers for sequence modeling. ICLR,
        2023.
    """

    promises = (Promise(Kind.SCALED_SPECTRUM, "|λ| = exp(−exp(ν)) < 1"),)
    state_names = ("output", "hidden")

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        modes: NonNegativeInt = 0,
        smallest: Fraction = 0.0,
        largest: Fraction = 1.0,
        largest_phase: PositiveFloat = 2 * math.pi,
        start: Start = "ring",
    ) -> None:
        modes = modes or hidden_size
        super().__init__(input_size, hidden_size, 2 * modes)
        self.modes = modes
        if start == "ring":
            shrink, phase = _ring(modes, smallest, largest, largest_phase)
            gain = (1 - torch.exp(-2 * shrink)).sqrt()
        else:
            shrink, phase, gain = _hippo(modes)
        self.shrink_log = nn.Parameter(shrink.log())
        self.phase_log = nn.Parameter(phase.log())
        self.gain_log = nn.Parameter(gain.log())
        # Real and imaginary parts alternate, as those of complex numbers in memory; those of C have
        # the sign of the real part of C h.
        self.input_weight = nn.Parameter(
            torch.randn(modes, 2, input_size) / (2 * input_size) ** 0.5
        )
        self.output_weight = nn.Parameter(torch.randn(hidden_size, 2 * modes) / modes**0.5)

    def drive_weight(self) -> Tensor:
        """Return γ B, the real part of a row above its imaginary part."""
        scaled = self.gain_log.exp().view(-1, 1, 1) * self.input_weight
        return scaled.flatten(0, 1)

    def eigenvalues(self) -> Tensor:
        """Return λ as pairs (modes, 2)."""
        size, phase = torch.exp(-self.shrink_log.exp()), self.phase_log.exp()
        return torch.stack([size * phase.cos(), size * phase.sin()], -1)

    def constants(self) -> State:
        return self.eigenvalues().unbind(-1)

    def move(self, drive: Tensor, units: State, constants: State) -> State:
        """Return λ ⊙ h + γ ⊙ B u."""
        a, b = constants
        x, y = units[0][..., ::2], units[0][..., 1::2]
        rotated = torch.stack([a * x - b * y, b * x + a * y], -1)
        return (rotated.flatten(-2) + drive,)

    def move_along(self, drive: Tensor, units: State, lengths: Tensor | None) -> ScanResult:
        """Make all steps in one compiled loop."""
        pairs = (self.modes, 2)
        outputs, last = linear_scan(
            drive.unflatten(-1, pairs), self.eigenvalues(), units[0].unflatten(-1, pairs), lengths
        )
        return outputs.flatten(-2), (last.flatten(-2),)

    def free_parameters(self) -> list[nn.Parameter]:
        """Return ν and θ."""
        return [self.shrink_log, self.phase_log]

    def recurrent_matrix(self) -> Tensor:
        """Return the real matrix of a step on all pairs."""
        real, imaginary = self.eigenvalues().unbind(-1)
        blocks = [
            torch.stack([torch.stack([a, -b]), torch.stack([b, a])])
            for a, b in zip(real, imaginary, strict=True)
        ]
        return torch.block_diag(*blocks)

    def spectrum(self) -> Tensor:
        """Return the moduli of all eigenvalues, conjugates included."""
        return torch.exp(-self.shrink_log.exp()).repeat(2)


def _ring(
    modes: int, smallest: float, largest: float, largest_phase: float
) -> tuple[Tensor, Tensor]:
    """Draw λ uniformly from a ring; return −ln|λ| and the phase."""
    if smallest > largest or not largest:
        raise OptionError(
            f"smallest must be at most largest={largest:g}, which must be > 0, got {smallest}."
        )
    squares = torch.empty(modes).uniform_(smallest**2, largest**2)
    # Away from the ends by what single precision resolves: both have no logarithm.
    shrink = (-0.5 * squares.clamp(1e-12, 1 - 1e-7).log()).clamp(min=1e-7)
    return shrink, largest_phase * torch.rand(modes).clamp(min=1e-6)


def legs_frequencies(modes: int) -> Tensor:
    """Return the positive imaginary parts of the eigenvalues of the normal part of HiPPO-LegS."""
    size = 2 * modes
    root = (2 * torch.arange(size, dtype=torch.float64) + 1).sqrt()
    # The normal part of HiPPO-LegS is −1/2 on the diagonal and half of the outer product elsewhere,
    # with opposite signs: skew, so that its eigenvalues are conjugate pairs.
    skew = 0.5 * torch.outer(root, root)
    skew = skew.triu(1) - skew.tril(-1)
    return torch.linalg.eigvalsh(1j * skew)[modes:]


def _hippo(modes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draw the steps of S5; return −ln|λ|, the phase, and the factor of the input."""
    frequencies = legs_frequencies(modes)
    low, high = (math.log(step) for step in STEPS)
    step = torch.empty(modes).uniform_(low, high).exp()
    rates = torch.complex(torch.full_like(frequencies, -0.5), frequencies)
    gain = (torch.exp(rates * step) - 1).abs() / rates.abs()
    return 0.5 * step, (frequencies * step).to(step.dtype), gain.to(step.dtype)


class LRU(Recurrent, cell=LRUCell, name="lru"): ...
