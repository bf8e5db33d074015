"""D-LinOSS (Boyer, Rusch and Rus, 2025): linear oscillators with a damping of their own."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped._base.options import Fraction, NonNegativeInt, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.nn.bases.state_space import width_or
from undamped.nn.linoss import LinearOscillators
from undamped.nn.recurrent import Recurrent


class DLinOSSCell(LinearOscillators):
    """D-LinOSS: linear oscillators that learn how fast each of them forgets.

    Equation:
        z' = (z + Δ (−A x + B u)) / (1 + Δ G),  x' = x + Δ z',  y = Re(C x) + D u
        A is kept between (2 + ΔG ∓ 2 √(1 + ΔG)) / Δ²

    Symbols:
        As in linoss; G = relu(Ĝ) dampings. Within its limits A makes an oscillation of every unit.
        At the start eigenvalues are uniform in a ring of the upper half plane, by
        G = (r⁻² − 1)/Δ and A = (1 + r² − 2 r cos θ)/(Δ² r²).

        The layer is linear; see linoss for what the papers put around it.

    Promise:
        |λ|² = 1 / (1 + Δ G), at most one whatever is learned.

    Args:
        oscillators: Number of complex oscillators; 0 for as many as the output has features.
        smallest: The smallest modulus |λ| at the start.
        largest: The largest modulus |λ| at the start.

    Example:
        >>> net = undamped.nn.DLinOSS(6, 16, num_layers=2, oscillators=8)
        >>> output, state = net(torch.randn(50, 4, 6))

    Reference:
        J. Boyer, T. K. Rusch, D. Rus. Learning to dissipate energy in oscillatory state-space
        models. arXiv:2505.12171, 2025.
    """

    promises = (Promise(Kind.SCALED_SPECTRUM, "|λ|² = 1/(1 + ΔG) ≤ 1"),)

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        oscillators: NonNegativeInt = 0,
        smallest: Fraction = 0.9,
        largest: Fraction = 1.0,
    ) -> None:
        super().__init__(input_size, hidden_size, width_or(oscillators, hidden_size))
        _check_ring(smallest, largest)
        self.step_logit = nn.Parameter(0.5 * torch.randn(self.oscillators))
        squares = torch.empty(self.oscillators).uniform_(smallest**2, largest**2)
        cosines = torch.empty(self.oscillators).uniform_(0, math.pi).cos()
        step = self.step_size().detach()
        self.damping = nn.Parameter((1 / squares - 1) / step)
        self.frequency = nn.Parameter(
            (1 + squares - 2 * squares.sqrt() * cosines) / (step**2 * squares)
        )

    def coefficients(self) -> tuple[Tensor | None, Tensor, Tensor, Tensor]:
        """1, Δ A and Δ, all over 1 + Δ G, and Δ."""
        step = self.step_size()
        damped = 1 + step * torch.relu(self.damping)
        middle, reach = 1 + damped, 2 * damped.sqrt()
        squared = torch.clamp(
            self.frequency, (middle - reach) / step**2, (middle + reach) / step**2
        )
        return 1 / damped, step * squared / damped, step / damped, step

    def free_parameters(self) -> list[nn.Parameter]:
        """A, G and δ before they are kept in their limits."""
        return [self.frequency, self.damping, self.step_logit]

    def spectrum(self) -> Tensor:
        """The moduli of all eigenvalues, 4 for each complex oscillator."""
        damped = 1 + self.step_size() * torch.relu(self.damping)
        return (1 / damped).sqrt().repeat(4)


def _check_ring(smallest: float, largest: float) -> None:
    if not 0 < smallest <= largest:
        raise OptionError(f"smallest must be > 0 and at most largest={largest:g}, got {smallest}.")


@models.register("d-linoss")
class DLinOSS(Recurrent):
    """Stacked layers of `DLinOSSCell`, which has the equation and the options."""

    cell_class = DLinOSSCell
