"""HNN (Greydanus, Dzamba and Yosinski, 2019): the motion is the gradient of a learned energy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.registry import models
from undamped.models.physics.base import (
    ENERGY,
    SYMPLECTIC,
    VOLUME,
    MotionModel,
    MotionSolveOptions,
    PerceptronOptions,
    Width,
    perceptron_arguments,
)
from undamped.models.physics.fields.coordinates import Coordinates, PositionFeatures
from undamped.models.physics.fields.hamiltonian import HamiltonianField
from undamped.models.physics.fields.ports import Ports
from undamped.models.physics.fields.smooth_perceptron import SmoothPerceptron


class PerceptronHamiltonian(HamiltonianField):
    """H(q, p) by one perceptron.

    Equation:
        H = w σ(W₂ σ(W₁ [φ(q), p] + b₁) + b₂)

    Args:
        dof: Positions; as many momenta.
        hidden_size: Width of the hidden layers.
        angles: Positions that are replaced by cosine and sine.
        ports: Inputs and friction.
        layers: Hidden layers and activation, as for `SmoothPerceptron`.

    Example:
        >>> field = PerceptronHamiltonian(2)
        >>> field(0.0, torch.randn(5, 4)).shape, field.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
    """

    def __init__(
        self,
        dof: int,
        hidden_size: int = 200,
        *,
        angles: Sequence[int] = (),
        ports: Ports | None = None,
        **layers: Any,
    ) -> None:
        super().__init__(dof, ports)
        self.features = PositionFeatures(dof, angles)
        size = self.features.size + dof
        self.net = SmoothPerceptron(
            size, 1, hidden_size, orthogonal=True, readout_bias=False, **layers
        )

    def hamiltonian(self, t: Any, q: Tensor, p: Tensor) -> Tensor:
        """Return H, (…,)."""
        return self.net(torch.cat((self.features(q), p), dim=-1)).squeeze(-1)

    def gradient(self, t: Any, q: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        """Return ∂H/∂q and ∂H/∂p in closed form."""
        features = self.features(q)
        slope = self.net.linearise(torch.cat((features, p), dim=-1)).gradient()
        by_features, by_p = slope.split((self.features.size, self.dof), dim=-1)
        return self.features.vjp(features, by_features), by_p


class HNNOptions(PerceptronOptions, MotionSolveOptions, total=False):
    """Perceptron and solver of an HNN."""

    hidden_size: Width


@models.register("hnn")
class HNN(MotionModel):
    """Hamiltonian neural network: the energy of a state is learned, and the motion follows from it.

    Equation:
        q̇ = ∂H/∂p,  ṗ = −∂H/∂q

    Symbols:
        q positions, p momenta, H a perceptron.

    Promise:
        The field conserves its own energy H and the volume of phase space, for any weights. Steps
        are symplectic with method=implicit-midpoint; with leapfrog they are not, since H need not
        be of the form T(p) + V(q). The true energy is conserved as accurately as H was learned.

    Args:
        options: See `PerceptronOptions` and `SolveOptions`.

    Example:
        >>> model = undamped.models.HNN(2)
        >>> model(torch.randn(5, 4)).shape, model.energy(torch.randn(5, 4)).shape
        (torch.Size([5, 4]), torch.Size([5]))
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])

    Reference:
        S. Greydanus, M. Dzamba, J. Yosinski. Hamiltonian neural networks. NeurIPS, 2019.
    """

    usual_choice = True
    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {"task": {"form": "derivative"}, "model": {"hidden_size": 200}}

    @checked
    def __init__(self, shape: TaskShape | StateSpace | int, **options: Unpack[HNNOptions]) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "HNN")
        arguments = perceptron_arguments(coordinates, options)
        self._build(PerceptronHamiltonian(coordinates.dof, **arguments), coordinates, options)
