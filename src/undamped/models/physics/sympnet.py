"""SympNet (Jin and others, 2020): the step itself is learned, composed of symplectic shears."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, StateSpace, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.smooth_perceptron import CURVES, SmoothActivation
from undamped.models.physics.state_model import StateModel
from undamped.ode.solve import OnFailure

Size = float | Tensor


class Shear(nn.Module):
    """A map that changes momenta by a gradient in the positions, or positions by one in momenta.

    Equation:
        up: p' = p + h ∇φ(q);  down: q' = q + h ∇φ(p)

    Args:
        up: Whether momenta are changed.
    """

    def __init__(self, up: bool) -> None:
        super().__init__()
        self.up = up

    def gradient(self, x: Tensor) -> Tensor:
        """Return ∇φ, (…, dof)."""
        raise NotImplementedError

    def forward(self, q: Tensor, p: Tensor, h: Size) -> tuple[Tensor, Tensor]:
        """Apply the map."""
        return (q, p + h * self.gradient(q)) if self.up else (q + h * self.gradient(p), p)


class LinearShear(Shear):
    """∇φ(x) = (S + Sᵀ) x + b, of `dof` positions or momenta."""

    def __init__(self, dof: int, up: bool) -> None:
        super().__init__(up)
        self.weight = nn.Parameter(0.01 * torch.randn(dof, dof))
        self.bias = nn.Parameter(torch.zeros(dof))

    def gradient(self, x: Tensor) -> Tensor:
        return x @ (self.weight + self.weight.T) + self.bias


class ActivationShear(Shear):
    """∇φ(x) = a ⊙ σ(x).

    Args:
        activation: σ.
    """

    def __init__(self, dof: int, up: bool, activation: SmoothActivation) -> None:
        super().__init__(up)
        self.scale = nn.Parameter(0.01 * torch.randn(dof))
        self.activation = activation

    def gradient(self, x: Tensor) -> Tensor:
        return self.scale * CURVES[self.activation].value(x)


class GradientShear(Shear):
    """∇φ(x) = Kᵀ (a ⊙ σ(K x + b)).

    Args:
        width: Rows of K.
        activation: σ.
    """

    def __init__(self, dof: int, up: bool, width: int, activation: SmoothActivation) -> None:
        super().__init__(up)
        self.weight = nn.Parameter(0.01 * torch.randn(width, dof))
        self.bias = nn.Parameter(torch.zeros(width))
        self.scale = nn.Parameter(0.01 * torch.randn(width))
        self.activation = activation

    def gradient(self, x: Tensor) -> Tensor:
        inner = CURVES[self.activation].value(x @ self.weight.T + self.bias)
        return (self.scale * inner) @ self.weight


def _apply(shears: Iterable[nn.Module], states: Tensor, h: Size) -> Tensor:
    q, p = states.chunk(2, dim=-1)
    for shear in shears:
        q, p = shear(q, p, h)
    return torch.cat((q, p), dim=-1)


@models.register("sympnet")
class SympNet(StateModel):
    """Symplectic network: the map from one reading to the next, composed of shears.

    Equation:
        LA: linear shears, p' = p + h ((S + Sᵀ) q + b) and likewise for q, with activations
        p' = p + h a ⊙ σ(q) between them;  G: p' = p + h Kᵀ (a ⊙ σ(K q + b)) and likewise for q

    Symbols:
        q positions, p momenta, S, K, a, b parameters, h one, or the time of the step.

    Promise:
        The map is symplectic and has an explicit inverse, for any weights. It conserves no energy.
        A map for one step size cannot be used for others; conditioned on the step it applies to
        any, and is proved to represent only separable systems.

    Args:
        kind: LA or G.
        layers: Blocks of shears: up and down.
        width: Rows of K, for G.
        sublayers: Linear shears in a block, for LA.
        activation: σ.
        conditioned: Whether h is the time of the step, so that one map serves all times.
        step_size: The time of one application of the map, for a conditioned map its upper bound; by
            default the first time between readings in training.

    Reference:
        P. Jin, Z. Zhang, A. Zhu, Y. Tang, G. E. Karniadakis. SympNets: intrinsic
        structure-preserving symplectic networks for identifying Hamiltonian systems. Neural
        Networks, 2020.
    """

    answers = frozenset[Answer]({"trajectory"})
    promises = (
        Promise(Kind.SYMPLECTIC, "the map is symplectic: DᵀJD = J"),
        Promise(Kind.INVERTIBLE, "the map has an explicit inverse"),
    )
    recipe: ClassVar = {"task": {"form": "trajectory"}}

    step: Tensor

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        kind: Literal["LA", "G"] = "G",
        layers: PositiveInt = 5,
        width: PositiveInt = 30,
        sublayers: PositiveInt = 2,
        activation: SmoothActivation = "sigmoid",
        conditioned: bool = False,
        step_size: PositiveFloat | None = None,
    ) -> None:
        super().__init__()
        self.coordinates = Coordinates.of(shape, "SympNet")
        self.space = self.coordinates.space
        if kind == "LA" and width != 30:
            raise OptionError("SympNet.width applies to kind='G' only. Leave it out.")
        if kind == "G" and sublayers != 2:
            raise OptionError("SympNet.sublayers applies to kind='LA' only. Leave it out.")
        dof = self.coordinates.dof
        blocks: list[Shear] = []
        for layer in range(layers):
            if kind == "G":
                blocks += [GradientShear(dof, up, width, activation) for up in (True, False)]
            else:
                blocks += [LinearShear(dof, k % 2 == 0) for k in range(sublayers)]
                blocks.append(ActivationShear(dof, layer % 2 == 0, activation))
        if kind == "LA":
            blocks += [LinearShear(dof, k % 2 == 0) for k in range(sublayers)]
        self.shears = nn.ModuleList(blocks)
        self.conditioned = conditioned
        # Zero until training sets it; saved with the weights, which are for this step only.
        self.register_buffer("step", torch.tensor(step_size or 0.0, dtype=torch.float64))

    def map(self, states: Tensor, h: Size = 1.0) -> Tensor:
        """Apply the map to sorted states (…, size)."""
        return _apply(self.shears, states, h)

    def inverse(self, states: Tensor, h: Size = 1.0) -> Tensor:
        """Apply the inverse of the map, whose shears are undone in reverse order."""
        return _apply(reversed(self.shears), states, -h)

    def _solve(
        self, start: Tensor, times: Tensor, first: int, u: Tensor | None, on_failure: OnFailure
    ) -> Tensor:
        states = [self.coordinates.sort(start)]
        gaps = times.diff(dim=0)
        step = float(self.step) or float(gaps.flatten()[0])
        if self.training and not self.conditioned and not float(self.step):
            # A new tensor, since transforms of torch.func do not allow filling the old one.
            self.step = torch.full_like(self.step, step)
        for gap in gaps:
            count, h = self._applications(gap, step, start)
            state = states[-1]
            for _ in range(count):
                state = self.map(state, h)
            states.append(state)
        return self.coordinates.unsort(torch.stack(states[first:]))

    def _applications(self, gap: Tensor, step: float, like: Tensor) -> tuple[int, Size]:
        """Return how often the map is applied over a gap, and with which h."""
        longest = float(gap.max())
        if self.conditioned:
            count = max(1, math.ceil(longest / step - 1e-6)) if float(self.step) else 1
            h = (gap / count).to(like.dtype)
            return count, (h.unsqueeze(-1) if h.dim() else h.item())
        ratio = longest / step
        count = round(ratio)
        uneven = gap.dim() and float(gap.min()) != longest
        if uneven or count < 1 or abs(ratio - count) > 1e-4 * max(1, count):
            got = "times that differ by sample" if uneven else f"a gap of {longest:g}"
            raise OptionError(
                f"SympNet needs times at multiples of {step:g}, the step of its map, got {got}. "
                "model.conditioned=true allows any step."
            )
        return count, 1.0

    # States and steps on which promises are measured

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random states: positions in the first half, momenta in the second."""
        return self.example_states(count, generator)[0]

    def _measured_step(self) -> Size:
        return (float(self.step) or 0.1) if self.conditioned else 1.0

    def phase_step(self, states: Tensor) -> Tensor:
        """Apply the map once."""
        return self.map(states, self._measured_step())

    def phase_undo(self, states: Tensor) -> Tensor:
        """Apply the inverse of the map once."""
        return self.inverse(states, self._measured_step())
