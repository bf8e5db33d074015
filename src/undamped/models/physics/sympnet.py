"""SympNet (Jin and others, 2020): the step itself is learned, made of symplectic shears."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Answer, StateSpace, TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.options import PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.smooth_perceptron import CURVES, SmoothActivation
from undamped.models.physics.state_model import StateModel, output_times, space_of
from undamped.ode.solve import OnFailure

Size = float | Tensor


class Shear(nn.Module):
    """A map that moves momenta by a gradient in the positions, or the other way round.

    Equation:
        up: p' = p + h ∇φ(q);  down: q' = q + h ∇φ(p)

    Args:
        up: Whether momenta are moved.
    """

    def __init__(self, up: bool) -> None:
        super().__init__()
        self.up = up

    def push(self, x: Tensor) -> Tensor:
        """Return ∇φ, (…, freedoms)."""
        raise NotImplementedError

    def forward(self, q: Tensor, p: Tensor, h: Size) -> tuple[Tensor, Tensor]:
        """Apply the map."""
        return (q, p + h * self.push(q)) if self.up else (q + h * self.push(p), p)

    def undo(self, q: Tensor, p: Tensor, h: Size) -> tuple[Tensor, Tensor]:
        """Take it back."""
        return self(q, p, -h)


class LinearShear(Shear):
    """∇φ(x) = (S + Sᵀ) x + b.

    Args:
        freedoms: Positions.
        up: Whether momenta are moved.
    """

    def __init__(self, freedoms: int, up: bool) -> None:
        super().__init__(up)
        self.weight = nn.Parameter(0.01 * torch.randn(freedoms, freedoms))
        self.bias = nn.Parameter(torch.zeros(freedoms))

    def push(self, x: Tensor) -> Tensor:
        """Return ∇φ."""
        return x @ (self.weight + self.weight.T) + self.bias


class ActivationShear(Shear):
    """∇φ(x) = a ⊙ σ(x).

    Args:
        freedoms: Positions.
        up: Whether momenta are moved.
        activation: σ.
    """

    def __init__(self, freedoms: int, up: bool, activation: SmoothActivation) -> None:
        super().__init__(up)
        self.scale = nn.Parameter(0.01 * torch.randn(freedoms))
        self.activation = activation

    def push(self, x: Tensor) -> Tensor:
        """Return ∇φ."""
        return self.scale * CURVES[self.activation].value(x)


class GradientShear(Shear):
    """∇φ(x) = Kᵀ (a ⊙ σ(K x + b)).

    Args:
        freedoms: Positions.
        up: Whether momenta are moved.
        width: Rows of K.
        activation: σ.
    """

    def __init__(self, freedoms: int, up: bool, width: int, activation: SmoothActivation) -> None:
        super().__init__(up)
        self.weight = nn.Parameter(0.01 * torch.randn(width, freedoms))
        self.bias = nn.Parameter(torch.zeros(width))
        self.scale = nn.Parameter(0.01 * torch.randn(width))
        self.activation = activation

    def push(self, x: Tensor) -> Tensor:
        """Return ∇φ."""
        inner = CURVES[self.activation].value(x @ self.weight.T + self.bias)
        return (self.scale * inner) @ self.weight


@models.register("sympnet")
class SympNet(StateModel):
    """Symplectic network: the map from one reading to the next, made of shears.

    Equation:
        LA: linear shears, p' = p + h ((S + Sᵀ) q + b) and the like for q, with activations
        p' = p + h a ⊙ σ(q) between them;  G: p' = p + h Kᵀ (a ⊙ σ(K q + b)) and the like for q

    Symbols:
        q positions, p momenta, S, K, a, b parameters, h one, or the time of the step.

    Promise:
        The map is symplectic and has an explicit inverse, whatever the weights. It has no energy
        that it keeps. A map for one step size says nothing about others; conditioned on the step it
        can be asked for any, and is proved to represent separable systems alone.

    Args:
        shape: The shape of the task; a `StateSpace`, or a number of positions with a momentum each.
        kind: LA or G.
        layers: Blocks of shears: up and down.
        width: Rows of K, for G.
        sublayers: Linear shears in a block, for LA.
        activation: σ.
        conditioned: Whether h is the time of the step, so that one map serves all times.
        step_size: The time of one application of the map; the first time between readings that is
            met in training, if none is given. Conditioned, no application is longer.

    Example:
        >>> model = undamped.models.SympNet(2)
        >>> model.trajectory(torch.randn(5, 4), [0.1, 0.2, 0.3]).shape
        torch.Size([3, 5, 4])

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
        self.space = space_of(shape, "SympNet")
        self.coordinates = Coordinates.of(self.space, "SympNet")
        if kind == "LA" and width != 30:
            raise _useless("width", "LA, whose shears have none")
        if kind == "G" and sublayers != 2:
            raise _useless("sublayers", "G, which has none")
        freedoms = self.coordinates.freedoms
        blocks: list[Shear] = []
        for layer in range(layers):
            if kind == "G":
                blocks += [GradientShear(freedoms, up, width, activation) for up in (True, False)]
            else:
                blocks += [LinearShear(freedoms, k % 2 == 0) for k in range(sublayers)]
                blocks.append(ActivationShear(freedoms, layer % 2 == 0, activation))
        if kind == "LA":
            blocks += [LinearShear(freedoms, k % 2 == 0) for k in range(sublayers)]
        self.shears = nn.ModuleList(blocks)
        self.conditioned = conditioned
        # Zero until it is known; with the weights, since it says what they are for.
        self.register_buffer("step", torch.tensor(step_size or 0.0, dtype=torch.float64))

    def map(self, states: Tensor, h: Size = 1.0) -> Tensor:
        """Apply the map to sorted states (…, size)."""
        q, p = states.chunk(2, dim=-1)
        for shear in self.shears:
            q, p = shear(q, p, h)
        return torch.cat((q, p), dim=-1)

    def inverse(self, states: Tensor, h: Size = 1.0) -> Tensor:
        """Take the map back."""
        q, p = states.chunk(2, dim=-1)
        for shear in reversed(self.shears):
            assert isinstance(shear, Shear)
            q, p = shear.undo(q, p, h)
        return torch.cat((q, p), dim=-1)

    def trajectory(
        self,
        start: Tensor,
        times: Tensor | Sequence[float],
        u: Tensor | None = None,
        *,
        on_failure: OnFailure = "raise",
    ) -> Tensor:
        """Return the states at some times after the start; see `StateModel.trajectory`."""
        when, later = output_times(times, start)
        state, found = self.coordinates.sort(start), []
        gaps = when.diff(dim=0)
        step = float(self.step) or float(gaps.flatten()[0])
        if self.training and not self.conditioned and not float(self.step):
            # A new tensor: transforms of torch.func refuse to have one filled.
            self.step = torch.full_like(self.step, step)
        for gap in gaps:
            count, h = self._applications(gap, step, start)
            for _ in range(count):
                state = self.map(state, h)
            found.append(state)
        path = torch.stack(found) if later else torch.stack([self.coordinates.sort(start), *found])
        return self.coordinates.unsort(path)

    def _applications(self, gap: Tensor, step: float, like: Tensor) -> tuple[int, Size]:
        """Return how often the map has to be applied, and what it is told of the time."""
        longest = float(gap.max())
        if self.conditioned:
            count = max(1, math.ceil(longest / step - 1e-6)) if float(self.step) else 1
            share = (gap / count).to(like.dtype)
            return count, (share.unsqueeze(-1) if share.dim() else share.item())
        times = longest / step
        count = round(times)
        own = gap.dim() and float(gap.min()) != longest
        if own or count < 1 or abs(times - count) > 1e-4 * max(1, count):
            raise OptionError(
                explain(
                    "times of SympNet",
                    expected=f"multiples of {step:g}, the step its map is for",
                    got="times that differ by sample" if own else f"{longest:g} between two",
                    remedy="Choose model.conditioned=true, whose map takes any step.",
                )
            )
        return count, 1.0

    # What promises are measured on

    def phase_states(self, count: int, generator: torch.Generator) -> Tensor:
        """Return random states: positions in the first half, momenta in the second."""
        return self.example_states(count, generator)[0]

    def _measured_step(self) -> Size:
        return (float(self.step) or 0.1) if self.conditioned else 1.0

    def phase_step(self, states: Tensor) -> Tensor:
        """Apply the map once."""
        return self.map(states, self._measured_step())

    def phase_undo(self, states: Tensor) -> Tensor:
        """Take the map back once."""
        return self.inverse(states, self._measured_step())


def _useless(option: str, of: str) -> OptionError:
    return OptionError(
        explain(
            f"SympNet.{option}", expected=f"to be left out for {of}", got="a value",
            remedy="Leave it out.",
        )
    )  # fmt: skip
