"""Residual UnICORNN (Rusch and Mishra, 2021, appendix C.5): deep stacks with skipped layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from torch import nn

from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt, Range
from undamped._base.registry import models
from undamped.nn.oscillators import OscillatorNetwork
from undamped.nn.unicornn import UnICORNNCell


class ResidualUnICORNNCell(UnICORNNCell):
    """Residual UnICORNN: each layer also sees the one S layers further down.

    Equation:
        z' = z − Δt σ̂(c) ⊙ [tanh(w ⊙ y + x + b) + α y],  y' = y + Δt σ̂(c) ⊙ z'
        x = Λ y^(ℓ−S−1) + V y^(ℓ−1) for ℓ > S,  x = V y^(ℓ−1) otherwise

    Symbols:
        As in unicornn; ℓ counts layers from 1, y⁰ is the network's input, S skipped layers,
        Λ the trained matrix of the skip connection.

    Promise:
        As unicornn in time. In depth the gradient scales like Δt^(2ν + 2L − 2νS − 1), not
        Δt^(2L − 1), so that many layers can be stacked.

    Args:
        input_size: Number of features of the input at each step; of all sources together.
        dt: Largest time step Δt, one number or one for each layer.
        train_step: Whether c is trained.
        skip: Number S of skipped layers.

    Example:
        >>> net = undamped.nn.ResidualUnICORNN(6, 32, num_layers=6, skip=2)
        >>> output, state = net(torch.randn(1000, 4, 6))

    Reference:
        T. K. Rusch, S. Mishra. UnICORNN: a recurrent model for learning very long time
        dependencies. ICML, 2021. Appendix C.5.
    """

    independent_units = False  # a layer reads two others, a block one

    def __init__(
        self,
        input_size: PositiveInt,
        hidden_size: PositiveInt,
        *,
        dt: PositiveFloat | Sequence[PositiveFloat] = 0.1,
        alpha: NonNegativeFloat = 1.0,
        train_step: bool = True,
        skip: Annotated[int, Range(low=2)] = 2,
    ) -> None:
        super().__init__(input_size, hidden_size, dt=dt, alpha=alpha, train_step=train_step)
        self.skip = skip

    @classmethod
    def sources(cls, layer: int, options: Mapping[str, Any]) -> tuple[int, ...]:
        """The layer below, and the one S further down where there is one."""
        skip = options.get("skip", 2)
        return (layer - 1, layer - skip - 1) if layer > skip else (layer - 1,)

    def _draw_sources(self, sizes: tuple[int, ...]) -> None:
        """Draw V and Λ each as if it stood alone: a sum of two maps, not one wider map."""
        for block in self.input_weight.detach().split(sizes, dim=1):
            nn.init.kaiming_uniform_(block, a=8)


@models.register("residual-unicornn")
class ResidualUnICORNN(OscillatorNetwork):
    """Stacked layers of `ResidualUnICORNNCell`, which has the equation and the options."""

    cell_class = ResidualUnICORNNCell
