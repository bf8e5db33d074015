"""The baseline of physics models: a perceptron as the field, without physical structure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import select
from undamped._base.registry import models
from undamped.models.physics.base import LayerOptions, MotionModel
from undamped.models.physics.fields.coordinates import PositionFeatures, space_of
from undamped.models.physics.fields.smooth_perceptron import SmoothPerceptron
from undamped.models.physics.hnn import HNNOptions


class PlainField(nn.Module):
    """A perceptron as dz/dt; or as d²q/dt² alone, where the state holds velocities.

    Equation:
        ż = f([z, u]);  of second order: q̇ = v, v̇ = f([q, v, u])

    Args:
        size: Size of a state.
        inputs: Number of inputs u.
        hidden_size: Width of the hidden layers.
        second_order: Whether the second half of a state is the rate of the first.
        angles: Which numbers of a state are replaced by cosine and sine.
        layers: Hidden layers and activation, as for `SmoothPerceptron`.
    """

    separable = False

    def __init__(
        self,
        size: int,
        inputs: int = 0,
        hidden_size: int = 200,
        *,
        second_order: bool = False,
        angles: Sequence[int] = (),
        **layers: Any,
    ) -> None:
        super().__init__()
        self.size, self.inputs, self.second_order = size, inputs, second_order
        self.features = PositionFeatures(size, angles)
        outputs = size // 2 if second_order else size
        self.net = SmoothPerceptron(
            self.features.size + inputs, outputs, hidden_size, orthogonal=True, **layers
        )

    def forward(self, t: Any, state: Tensor, u: Tensor | None = None) -> Tensor:
        """Return dz/dt, (…, size)."""
        features = self.features(state)
        if self.inputs:
            inputs = state.new_zeros(*state.shape[:-1], self.inputs) if u is None else u
            features = torch.cat((features, inputs), dim=-1)
        rate = self.net(features)
        if not self.second_order:
            return rate
        return torch.cat((state[..., self.size // 2 :], rate), dim=-1)


@models.register("plain-ode")
class PlainODE(MotionModel):
    """A perceptron as the rates of a state: the baseline without physical structure.

    Trained on derivatives it is the baseline of the HNN paper; trained on trajectories it is a
    neural ODE.

    Equation:
        ż = f(z, u)

    Symbols:
        z state, u inputs, f a perceptron.

    Promise:
        None: the energy drifts at an unknown rate.

    Args:
        second_order: Whether only velocities are learned, and positions follow from them; for
            states of positions and velocities.
        options: See `PerceptronOptions` and `SolveOptions`.

    Example:
        >>> model = undamped.models.PlainODE(2)
        >>> model(torch.randn(5, 4)).shape
        torch.Size([5, 4])

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019.
        R. Chen and others. Neural ordinary differential equations. NeurIPS, 2018.
    """

    usual_choice = True
    recipe: ClassVar = {"model": {"hidden_size": 200}}

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        second_order: bool = False,
        **options: Unpack[HNNOptions],
    ) -> None:
        super().__init__()
        space = space_of(shape, "PlainODE")
        half = space.size // 2
        if second_order and space.kinds[half:] != ("velocity",) * half:
            raise OptionError(
                "PlainODE.second_order needs velocities in the second half of a state, got "
                f"{', '.join(space.kinds)}."
            )
        field = PlainField(
            space.size,
            len(space.inputs),
            second_order=second_order,
            angles=space.indices("angle") if options.get("angles") == "embedded" else (),
            **select(options, LayerOptions),
        )
        self._build(field, space, options)
