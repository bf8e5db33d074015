"""Stable deep residual networks (Haber and Ruthotto, 2017; Chang and others, 2018).

Each is a discretised ODE that neither grows nor decays; all but the first can be inverted layer by
layer, so that back-propagation needs the memory of one layer.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.errors import OptionError
from undamped._base.options import NonNegativeFloat, PositiveFloat, PositiveInt
from undamped._base.promises import Kind, Promise
from undamped.ode.flows.input_checks import fitting
from undamped.ode.gradients.refused import refuse_gradients

StableKind = Literal["antisymmetric", "verlet", "hamiltonian", "two-layer", "midpoint", "leapfrog"]
Pair = tuple[Tensor, Tensor]
Parameters = tuple[Tensor, ...]
_TWICE = (
    "Gradients of gradients need reversible=False, since the backward pass of reversible=True "
    "cannot be differentiated. Build the StableResidual with reversible=False, or set its "
    "`reversible` to False."
)
UNDONE = Promise(Kind.INVERTIBLE, "every layer can be undone (all kinds but antisymmetric)")
VOLUME = Promise(
    Kind.VOLUME_PRESERVING, "a layer keeps volume (verlet, leapfrog, hamiltonian, two-layer)"
)
SYMPLECTIC = Promise(Kind.SYMPLECTIC, "a layer is symplectic (leapfrog, two-layer)")
STABLE = Promise(
    Kind.STABLE_FLOW, "Jacobian eigenvalues have real parts in [−γ/2, 0] (antisymmetric, midpoint)"
)


class StableLayers(nn.Module):
    """The layers of one kind: `step` and, where there is one, its inverse.

    Args:
        size: Features.
        depth: Layers.
        step_size: h.
        gamma: Diffusion γ, where the kind has one.
    """

    invertible: ClassVar[bool] = True
    promises: ClassVar[tuple[Promise, ...]] = (UNDONE,)

    def __init__(self, size: int, depth: int, step_size: float, gamma: float) -> None:
        super().__init__()
        scale = 1 / math.sqrt(size)
        self.weight = nn.Parameter(torch.randn(depth, size, size) * scale)
        self.bias = nn.Parameter(torch.zeros(depth, size))
        self.size, self.depth, self.step_size, self.gamma = size, depth, step_size, gamma

    def begin(self, y: Tensor) -> Pair:
        """Return the pair of states before the first layer."""
        return y, y

    def step(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        """Apply a layer.

        Args:
            layer: Which.
            pair: The states before it.
            parameters: Its parameters, where they are available, in the order of `stacks`.
        """
        raise NotImplementedError

    def undo(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        """Undo a layer."""
        raise NotImplementedError

    def stacks(self) -> tuple[Tensor, ...]:
        """Return the parameters of all layers, each stacked along its first dimension."""
        return self.weight, self.bias

    def by_layer(self) -> list[Parameters]:
        """Return the parameters layer by layer, by one operation.

        Indexing one layer at a time would cost the backward pass a gradient of the size of all
        layers for each.
        """
        return list(zip(*(stack.unbind() for stack in self.stacks()), strict=True))

    def _of_layer(self, layer: int, parameters: Parameters | None) -> Parameters:
        return tuple(stack[layer] for stack in self.stacks()) if parameters is None else parameters


class SkewLayers(StableLayers):
    """Layers of ẏ = σ(½(K − Kᵀ − γI) y + b)."""

    @property
    def diffusion(self) -> float:
        """How far below zero real parts of the Jacobian's eigenvalues may lie."""
        return self.gamma / 2

    def _antisymmetric(self, weight: Tensor) -> Tensor:
        eye = torch.eye(self.size, dtype=weight.dtype, device=weight.device)
        return 0.5 * (weight - weight.T - self.gamma * eye)

    def flow_jacobian(self, layer: int, y: Tensor) -> Tensor:
        """Return ∂ẏ/∂y of a layer's ODE at states (batch, size)."""
        weight, bias = self._of_layer(layer, None)
        matrix = self._antisymmetric(weight)
        slope = 1 - torch.tanh(y @ matrix.T + bias).square()
        return slope.unsqueeze(-1) * matrix


class AntisymmetricLayers(SkewLayers):
    """Forward Euler: y' = y + h σ(½(K − Kᵀ − γI) y + b)."""

    invertible = False
    promises = (STABLE,)

    def step(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        y = pair[1]
        weight, bias = self._of_layer(layer, parameters)
        force = torch.tanh(y @ self._antisymmetric(weight).T + bias)
        return y, y + self.step_size * force


class VerletLayers(StableLayers):
    """Verlet for ÿ = σ(K y + b), K = −CᵀC: y'' = 2y' − y + h² σ(K y' + b), at rest at first."""

    promises = (UNDONE, VOLUME)

    def _force(self, layer: int, y: Tensor, parameters: Parameters | None) -> Tensor:
        weight, bias = self._of_layer(layer, parameters)
        return self.step_size**2 * torch.tanh(-(y @ weight.T) @ weight + bias)

    def step(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        before, y = pair
        return y, 2 * y - before + self._force(layer, y, parameters)

    def undo(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        y, after = pair
        return 2 * y - after + self._force(layer, y, parameters), y


class LeapfrogLayers(VerletLayers):
    """Leapfrog: y'' = 2y' − y − h² Kᵀ σ(K y' + b)."""

    promises = (UNDONE, VOLUME, SYMPLECTIC)

    def _force(self, layer: int, y: Tensor, parameters: Parameters | None) -> Tensor:
        weight, bias = self._of_layer(layer, parameters)
        inner = torch.tanh(y @ weight.T + bias)
        return -(self.step_size**2) * inner @ weight


class MidpointLayers(SkewLayers):
    """Midpoint: y'' = y + 2h σ(½(K − Kᵀ − γI) y' + b); the first layer is an Euler step."""

    promises = (UNDONE, STABLE)

    def _force(self, layer: int, y: Tensor, parameters: Parameters | None) -> Tensor:
        size = self.step_size * (2 if layer else 1)
        weight, bias = self._of_layer(layer, parameters)
        return size * torch.tanh(y @ self._antisymmetric(weight).T + bias)

    def step(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        before, y = pair
        return y, before + self._force(layer, y, parameters)

    def undo(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        y, after = pair
        return after - self._force(layer, y, parameters), y


class HamiltonianLayers(StableLayers):
    """Staggered: z' = z − h σ(Kᵀ y + b), y' = y + h σ(K z' + b), from z = 0."""

    promises = (UNDONE, VOLUME)

    def begin(self, y: Tensor) -> Pair:
        """Start at rest."""
        return torch.zeros_like(y), y

    def _kick(self, layer: int, y: Tensor, parameters: Parameters | None) -> Tensor:
        weight, bias = self._of_layer(layer, parameters)
        return self.step_size * torch.tanh(y @ weight + bias)

    def _drift(self, layer: int, z: Tensor, parameters: Parameters | None) -> Tensor:
        weight, bias = self._of_layer(layer, parameters)
        return self.step_size * torch.tanh(z @ weight.T + bias)

    def step(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        z, y = pair
        z = z - self._kick(layer, y, parameters)
        return z, y + self._drift(layer, z, parameters)

    def undo(self, layer: int, pair: Pair, parameters: Parameters | None = None) -> Pair:
        z, y = pair
        y = y - self._drift(layer, z, parameters)
        return z + self._kick(layer, y, parameters), y


class TwoLayerHamiltonianLayers(HamiltonianLayers):
    """Two-layer: z' = z − h K₂ᵀσ(K₂ y + b₂), y' = y + h K₁ᵀσ(K₁ z' + b₁)."""

    promises = (UNDONE, VOLUME, SYMPLECTIC)

    def __init__(self, size: int, depth: int, step_size: float, gamma: float) -> None:
        super().__init__(size, depth, step_size, gamma)
        self.weight_kick = nn.Parameter(torch.randn(depth, size, size) / math.sqrt(size))
        self.bias_kick = nn.Parameter(torch.zeros(depth, size))

    def stacks(self) -> tuple[Tensor, ...]:
        return *super().stacks(), self.weight_kick, self.bias_kick

    def _kick(self, layer: int, y: Tensor, parameters: Parameters | None) -> Tensor:
        _, _, weight, bias = self._of_layer(layer, parameters)
        return self.step_size * torch.tanh(y @ weight.T + bias) @ weight

    def _drift(self, layer: int, z: Tensor, parameters: Parameters | None) -> Tensor:
        weight, bias, _, _ = self._of_layer(layer, parameters)
        return self.step_size * torch.tanh(z @ weight.T + bias) @ weight


KINDS: dict[str, type[StableLayers]] = {
    "antisymmetric": AntisymmetricLayers,
    "verlet": VerletLayers,
    "hamiltonian": HamiltonianLayers,
    "two-layer": TwoLayerHamiltonianLayers,
    "midpoint": MidpointLayers,
    "leapfrog": LeapfrogLayers,
}


class ReversibleStack(torch.autograd.Function):
    """All layers, of which only the last pair is stored; the backward pass undoes them one by one.

    The parameters are inputs, and saved: the backward pass uses the tensors of the forward pass,
    and torch notices when one was changed in between.
    """

    @staticmethod
    def forward(ctx: Any, layers: StableLayers, a: Tensor, b: Tensor, *stacks: Tensor) -> Pair:
        """Apply all layers to a pair of states."""
        pair: Pair = (a, b)
        for layer, parameters in enumerate(zip(*(stack.unbind() for stack in stacks), strict=True)):
            pair = layers.step(layer, pair, parameters)
        ctx.layers = layers
        ctx.save_for_backward(*pair, *stacks)
        return pair

    @staticmethod
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, *gradients: Tensor
    ) -> tuple[Any, ...]:
        """Undo them, gathering gradients of the first pair and of the stacks that need one."""
        pair, stacks = ctx.saved_tensors[:2], ctx.saved_tensors[2:]
        needed, grad_pair = ctx.needs_input_grad[3:], gradients
        totals = [torch.zeros_like(s) if n else None for s, n in zip(stacks, needed, strict=True)]
        required = [total for total in totals if total is not None]
        for layer in reversed(range(len(stacks[0]))):
            # Slices as leaves: a gradient through `stack[layer]` would have the size of the stack.
            parameters = tuple(stack[layer].detach() for stack in stacks)
            with torch.no_grad():
                pair = ctx.layers.undo(layer, pair, parameters)
            with torch.enable_grad():
                before = tuple(part.detach().requires_grad_() for part in pair)
                for part, n in zip(parameters, needed, strict=True):
                    part.requires_grad_(n)
                after = ctx.layers.step(layer, before, parameters)
            leaves = [*before, *(part for part in parameters if part.requires_grad)]
            with torch.no_grad():
                grads = torch.autograd.grad(after, leaves, grad_pair, materialize_grads=True)
                for total, part in zip(required, grads[2:], strict=True):
                    total[layer] = part
            grad_pair = grads[:2]
        totals = [*grad_pair, *totals]
        return None, *refuse_gradients(totals, (*gradients, *ctx.saved_tensors), _TWICE)


class StableResidual(nn.Module):
    """A deep residual network whose layers are steps of a stable ODE.

    Equation:
        antisymmetric: y' = y + h σ(½(K − Kᵀ − γI) y + b);
        verlet: ÿ = σ(−CᵀC y + b);  hamiltonian: ẏ = σ(K z + b), ż = −σ(Kᵀ y + b);
        two-layer: ẏ = K₁ᵀσ(K₁ z + b₁), ż = −K₂ᵀσ(K₂ y + b₂);
        midpoint and leapfrog: the two-step forms of the first and of ÿ = −Kᵀσ(K y + b)

    Symbols:
        y features, z momenta, K, C and b parameters of each layer, h step size, γ diffusion,
        σ tanh.

    Promise:
        Every kind but the antisymmetric Euler network is inverted exactly, layer by layer. Layers
        of the Verlet, leapfrog, Hamiltonian and two-layer kinds keep the volume of their pair of
        states; those of the leapfrog and two-layer kinds, whose forces have potentials, are
        symplectic. The ODE of the antisymmetric and midpoint kinds has Jacobian eigenvalues with
        real parts between −γ/2 and zero.

    Args:
        size: Features.
        depth: Layers.
        kind: Which ODE and discretisation.
        step_size: h.
        gamma: γ, for the antisymmetric and midpoint kinds.
        reversible: Whether back-propagation undoes the layers instead of storing them.

    Example:
        >>> net = undamped.ode.StableResidual(8, 100, kind="hamiltonian")
        >>> net(torch.randn(16, 8)).shape
        torch.Size([16, 8])

        The input again, from the states after the last layer:

        >>> x = torch.randn(16, 8)
        >>> torch.allclose(net.inverse(net.run(x)), x, atol=1e-4)
        True

    Reference:
        E. Haber, L. Ruthotto. Stable architectures for deep neural networks. 2017. B. Chang and
        others. Reversible architectures for arbitrarily deep residual neural networks. AAAI,
        2018.
    """

    promises: tuple[Promise, ...] = (UNDONE, VOLUME, SYMPLECTIC, STABLE)

    @checked
    def __init__(
        self,
        size: PositiveInt,
        depth: PositiveInt,
        *,
        kind: StableKind = "hamiltonian",
        step_size: PositiveFloat = 0.1,
        gamma: NonNegativeFloat = 0.0,
        reversible: bool | None = None,
    ) -> None:
        super().__init__()
        layers = KINDS[kind]
        if reversible and not layers.invertible:
            raise OptionError(
                f"reversible=True is not possible for kind='{kind}', whose layers have no inverse. "
                "Choose 'hamiltonian', 'verlet', 'midpoint' or 'leapfrog'."
            )
        if gamma and kind not in ("antisymmetric", "midpoint"):
            raise OptionError(
                f"gamma must be 0 for kind='{kind}', which has no diffusion, got {gamma:g}."
            )
        self.layers = layers(size, depth, step_size, gamma)
        self.promises = layers.promises
        self.reversible = layers.invertible if reversible is None else reversible

    @property
    def promising(self) -> StableLayers:
        """The layers, which make the promises."""
        return self.layers

    def run(self, y: Tensor) -> Pair:
        """Return the pair of states after all layers, from which `inverse` computes the input."""
        layers = self.layers
        y = fitting(y, layers.size, layers.stacks()[0].dtype, "StableResidual input")
        pair = layers.begin(y)
        if self.reversible:
            return ReversibleStack.apply(layers, *pair, *layers.stacks())
        for layer, parameters in enumerate(layers.by_layer()):
            pair = layers.step(layer, pair, parameters)
        return pair

    def forward(self, y: Tensor) -> Tensor:
        """Return (batch, size) after all layers."""
        return self.run(y)[1]

    @torch.no_grad()
    def inverse(self, pair: Pair) -> Tensor:
        """Return the input from the last pair of states.

        Args:
            pair: The result of `run`.
        """
        if not self.layers.invertible:
            raise OptionError(
                "The layers of kind='antisymmetric' have no inverse. Choose 'hamiltonian', "
                "'two-layer', 'verlet', 'midpoint' or 'leapfrog'."
            )
        parameters = self.layers.by_layer()
        for layer in reversed(range(self.layers.depth)):
            pair = self.layers.undo(layer, pair, parameters[layer])
        return pair[1]
