"""Separable energies as sums of functions: SSINN and Taylor-net.

SSINN (DiPietro, Xiong and Zhu, 2020): an energy as an equation, by sparse regression. Taylor-net
(Tong and others, 2021): forces as Taylor series, with fourth-order symplectic steps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import StateSpace, TaskShape
from undamped._base.options import NonNegativeFloat, NonNegativeInt, PositiveInt
from undamped._base.registry import models
from undamped.models.physics.base import ENERGY, SYMPLECTIC, VOLUME, FourthOrderOptions, MotionModel
from undamped.models.physics.fields.coordinates import Coordinates
from undamped.models.physics.fields.hamiltonian import PairField

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class FunctionLibrary(nn.Module):
    """A weighted sum of monomials, and of sines and cosines of single variables.

    Equation:
        φ(x) = Σ_e c_e Π_j x_j^{e_j} + Σ_{j,k} (a_{jk} cos k x_j + b_{jk} sin k x_j)

    Args:
        size: Variables.
        degree: Largest power of each variable.
        total_degree: Largest sum of powers; None for no limit.
        harmonics: Largest k; 0 for no sines and cosines.
    """

    active: Tensor
    _powers_of: Tensor
    _variables: Tensor

    def __init__(
        self, size: int, degree: int = 3, total_degree: int | None = None, harmonics: int = 0
    ) -> None:
        super().__init__()
        most = size * degree if total_degree is None else total_degree
        powers = itertools.product(range(degree + 1), repeat=size)
        self.exponents = sorted((e for e in powers if 0 < sum(e) <= most), key=_order)
        self.waves = [
            (index, k, kind)
            for index in range(size)
            for k in range(1, harmonics + 1)
            for kind in ("cos", "sin")
        ]
        self.degree, self.harmonics = degree, harmonics
        count = len(self.exponents) + len(self.waves)
        self.coefficients = nn.Parameter(0.01 * torch.randn(count))
        self.register_buffer("active", torch.ones_like(self.coefficients))
        powers_of = torch.tensor(self.exponents, dtype=torch.long)
        self.register_buffer("_powers_of", powers_of, persistent=False)
        self.register_buffer("_variables", torch.arange(size), persistent=False)

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def weights(self) -> Tensor:
        """The coefficients; pruned ones are zero."""
        return self.coefficients * self.active

    @torch.no_grad()
    def prune(self, threshold: float) -> None:
        """Drop all terms whose coefficients are below a threshold, permanently."""
        self.active.mul_((self.coefficients.abs() >= threshold).to(self.active.dtype))

    def _powers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x^0 … x^degree and their slopes, each (…, size, degree + 1)."""
        raised = [torch.ones_like(x)]
        for _ in range(self.degree):
            raised.append(raised[-1] * x)
        slopes = [torch.zeros_like(x)]
        slopes += [(k + 1) * raised[k] for k in range(self.degree)]
        return torch.stack(raised, dim=-1), torch.stack(slopes, dim=-1)

    def _factors(self, table: Tensor) -> Tensor:
        """Return the entries of a table of powers for each monomial, (…, monomials, size)."""
        return table[..., self._variables, self._powers_of]

    def _angles(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return k x for every wave, and which waves are sines, in the order of `waves`."""
        indices = [index for index, _, _ in self.waves]
        counts = x.new_tensor([k for _, k, _ in self.waves])
        sines = torch.tensor([kind == "sin" for _, _, kind in self.waves], device=x.device)
        return x[..., indices] * counts, sines

    def forward(self, x: Tensor) -> Tensor:
        """Return φ, (…,)."""
        values = [self._factors(self._powers(x)[0]).prod(-1)]
        if self.waves:
            angle, sines = self._angles(x)
            values.append(torch.where(sines, angle.sin(), angle.cos()))
        return torch.cat(values, dim=-1) @ self.weights

    def gradient(self, x: Tensor) -> Tensor:
        """Return ∇φ, (…, size)."""
        size, weights = x.shape[-1], self.weights
        raised, slopes = (self._factors(table) for table in self._powers(x))
        columns = []
        for j in range(size):
            rest = [k for k in range(size) if k != j]
            columns.append(slopes[..., j] * raised[..., rest].prod(-1))
        polynomial = torch.stack(columns, dim=-2) @ weights[: len(self.exponents)]
        if not self.waves:
            return polynomial
        angle, sines = self._angles(x)
        counts = x.new_tensor([k for _, k, _ in self.waves])
        each = torch.where(sines, angle.cos(), -angle.sin()) * counts
        waves = (each * weights[len(self.exponents) :]).unflatten(-1, (size, 2 * self.harmonics))
        return polynomial + waves.sum(-1)

    def terms(self, names: Sequence[str], threshold: float = 0.0) -> dict[str, float]:
        """Return the terms, as text, whose coefficients are at least a threshold."""
        labels = [_monomial(e, names) for e in self.exponents]
        labels += [f"{kind}({'' if k == 1 else k}{names[index]})" for index, k, kind in self.waves]
        pairs = zip(labels, self.weights.tolist(), strict=True)
        return {term: weight for term, weight in pairs if weight and abs(weight) >= threshold}


def _order(exponents: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return sum(exponents), tuple(-e for e in exponents)


def _monomial(exponents: tuple[int, ...], names: Sequence[str]) -> str:
    parts = zip(names, exponents, strict=True)
    return " ".join(name + (str(e).translate(_RAISED) if e > 1 else "") for name, e in parts if e)


def format_sum(terms: dict[str, float]) -> str:
    """Return terms and their coefficients as the text of a sum."""
    text = ""
    for term, weight in terms.items():
        sign = "−" if weight < 0 else "+"
        text += f" {sign} {abs(weight):.4g} {term}"
    return text.strip().removeprefix("+ ") or "0"


@models.register("ssinn")
class SSINN(MotionModel):
    """Sparse symplectically integrated network: the energy as an equation that can be read.

    Equation:
        H = Σ_k a_k φ_k(p) + Σ_k b_k φ_k(q), with few a_k and b_k that are not zero

    Symbols:
        q positions, p momenta, φ_k monomials and, for positions, optional sines and cosines.

    Promise:
        Every step is symplectic. An energy that is not of the form T(p) + V(q) cannot be
        represented, nor one whose functions are not in the library.

    Args:
        degree: Largest power of each variable.
        total_degree: Largest sum of powers in a term; no limit by default.
        harmonics: Number of sines and cosines of multiples of each position; by default 1 if there
            are angles, otherwise 0.
        sparsity: Factor on the sum of absolute coefficients, which training adds to its loss.
        threshold: Terms with smaller coefficients are dropped permanently.
        prune_every: Training steps between two prunings.
        solve: Method, step_size and gradient: see `StepOptions`.

    Example:
        >>> model = undamped.models.SSINN(1, degree=2)
        >>> sorted(model.terms())
        ['p1', 'p1²', 'q1', 'q1²']

    Reference:
        D. M. DiPietro, S. Xiong, B. Zhu. Sparse symplectically integrated neural networks. NeurIPS,
        2020.
    """

    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {
        "task": {"form": "trajectory", "window": 1, "error": "absolute"},
        "train": {"learning_rate": 5e-2},
    }

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        degree: PositiveInt = 3,
        total_degree: PositiveInt | None = None,
        harmonics: NonNegativeInt | None = None,
        sparsity: NonNegativeFloat = 1e-3,
        threshold: NonNegativeFloat = 0.05,
        prune_every: PositiveInt = 1000,
        **solve: Unpack[FourthOrderOptions],
    ) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "SSINN")
        self.sparsity, self.threshold, self.prune_every = sparsity, threshold, prune_every
        waves = int(bool(coordinates.angles)) if harmonics is None else harmonics
        powers = coordinates.dof, degree, total_degree
        momenta, positions = FunctionLibrary(*powers), FunctionLibrary(*powers, waves)
        self.library = PairField(coordinates.dof, momenta, positions)
        self._build(self.library, coordinates, solve)

    def penalty(self) -> Tensor:
        """Return the weighted sum of absolute coefficients, which training adds to its loss."""
        sizes = [part.weights.abs().sum() for part in self._parts]
        return self.sparsity * (sizes[0] + sizes[1])

    def after_optimizer_step(self, step: int) -> None:
        """Drop small terms every `prune_every` steps."""
        if self.threshold and (step + 1) % self.prune_every == 0:
            for part in self._parts:
                part.prune(self.threshold)

    @property
    def _parts(self) -> tuple[FunctionLibrary, FunctionLibrary]:
        return self.library.of_momenta, self.library.of_positions

    def terms(self, threshold: float = 0.0) -> dict[str, float]:
        """Return the terms of H with coefficients of at least a threshold, momenta first."""
        assert self.coordinates is not None
        names = [self.space.names[index] for index in self.coordinates.order]
        half = self.coordinates.dof
        momenta, positions = self._parts
        return {
            **momenta.terms(names[half:], threshold),
            **positions.terms(names[:half], threshold),
        }

    def equation(self, threshold: float = 1e-3) -> str:
        """Return H as text, with the terms whose coefficients are at least a threshold."""
        return f"H = {format_sum(self.terms(threshold))}"

    def findings(self) -> list[str]:
        return [f"The learned equation: {self.equation()}."]


class TaylorPotential(nn.Module):
    """A potential whose gradient is a sum of powers of linear maps, with a symmetric Jacobian.

    Equation:
        φ(x) = bᵀx + Σ_i Σ_k ((A_i x)_k^{i+1} − (B_i x)_k^{i+1}) / (i+1)!
        ∇φ(x) = b + Σ_i (A_iᵀ (A_i x)^i − B_iᵀ (B_i x)^i) / i!

    Args:
        size: Features of x.
        hidden_size: Rows of every A_i and B_i.
        terms: Number of powers.
    """

    def __init__(self, size: int, hidden_size: int = 16, terms: int = 8) -> None:
        super().__init__()
        # Small, so that high powers are small at first.
        scale = 1 / math.sqrt(2 * hidden_size * size)
        self.plus = nn.Parameter(scale * torch.randn(terms, hidden_size, size))
        self.minus = nn.Parameter(scale * torch.randn(terms, hidden_size, size))
        self.slope = nn.Parameter(torch.zeros(size))
        powers = torch.arange(1, terms + 1)
        factorials = [1 / math.factorial(int(i)) for i in powers]
        self.register_buffer("powers", powers, persistent=False)
        self.register_buffer(
            "weights", torch.tensor(factorials, dtype=torch.float64), persistent=False
        )

    powers: Tensor
    weights: Tensor

    def _raised(self, maps: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return y_i = (A x)_i, (…, terms, hidden), and y_i^i / i!."""
        y = torch.einsum("khn,...n->...kh", maps, x)
        raised = [y[..., k, :] ** int(i) for k, i in enumerate(self.powers.tolist())]
        return y, torch.stack(raised, dim=-2) * self.weights.to(x.dtype).unsqueeze(-1)

    def forward(self, x: Tensor) -> Tensor:
        """Return φ, (…,)."""
        total = (self.slope * x).sum(-1)
        over = (self.powers + 1).to(x.dtype).unsqueeze(-1)
        for sign, maps in ((1, self.plus), (-1, self.minus)):
            y, raised = self._raised(maps, x)
            total = total + sign * (y * raised / over).sum((-2, -1))
        return total

    def gradient(self, x: Tensor) -> Tensor:
        """Return ∇φ, (…, size)."""
        total = self.slope.expand_as(x)
        for sign, maps in ((1, self.plus), (-1, self.minus)):
            raised = self._raised(maps, x)[1]
            total = total + sign * torch.einsum("...kh,khn->...n", raised, maps)
        return total


@models.register("taylor-net")
class TaylorNet(MotionModel):
    """Taylor network: forces and velocities as Taylor series of linear maps, from very few data.

    Equation:
        ∂V/∂q = b + Σ_{i≤M} (A_iᵀ (A_i q)^i − B_iᵀ (B_i q)^i) / i!,  ∂T/∂p likewise

    Symbols:
        q positions, p momenta, A_i, B_i and b parameters, powers taken elementwise.

    Promise:
        The maps have symmetric Jacobians, so that they are gradients of energies; every step is
        symplectic. An energy that is not of the form T(p) + V(q) cannot be represented.

    Args:
        hidden_size: Rows of every A_i and B_i.
        terms: Number M of powers.
        solve: Method, step_size and gradient: see `StepOptions`.

    Reference:
        Y. Tong, S. Xiong, X. He, G. Pan, B. Zhu. Symplectic neural networks in Taylor series form
        for Hamiltonian systems. Journal of Computational Physics, 2021.
    """

    promises = (ENERGY, VOLUME, SYMPLECTIC)
    recipe: ClassVar = {
        "task": {"form": "trajectory", "window": 1, "error": "absolute"},
        "model": {"hidden_size": 16},
        "train": {"learning_rate": 3e-3},
    }

    @checked
    def __init__(
        self,
        shape: TaskShape | StateSpace | int,
        *,
        hidden_size: PositiveInt = 16,
        terms: PositiveInt = 8,
        **solve: Unpack[FourthOrderOptions],
    ) -> None:
        super().__init__()
        coordinates = Coordinates.of(shape, "TaylorNet")
        sizes = coordinates.dof, hidden_size, terms
        field = PairField(coordinates.dof, TaylorPotential(*sizes), TaylorPotential(*sizes))
        self._build(field, coordinates, solve)
