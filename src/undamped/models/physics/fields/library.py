"""Energies as sparse sums over a library of functions, which can be read as an equation."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from undamped.models.physics.fields.hamiltonian import PairField

_RAISED = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class FunctionLibrary(nn.Module):
    """A weighted sum of monomials, and of sines and cosines of single variables.

    Equation:
        φ(x) = Σ_e c_e Π_j x_j^{e_j} + Σ_{j,k} (a_{jk} cos k x_j + b_{jk} sin k x_j)

    Args:
        size: Variables.
        degree: Largest power of each variable.
        total_degree: Largest sum of powers; None for as many as there are.
        harmonics: Largest k; 0 for no sines and cosines.
    """

    active: Tensor
    _powers_of: Tensor
    _places: Tensor

    def __init__(
        self, size: int, degree: int = 3, total_degree: int | None = None, harmonics: int = 0
    ) -> None:
        super().__init__()
        most = size * degree if total_degree is None else total_degree
        powers = itertools.product(range(degree + 1), repeat=size)
        self.exponents = sorted((e for e in powers if 0 < sum(e) <= most), key=_order)
        self.waves = [
            (place, k, kind)
            for place in range(size)
            for k in range(1, harmonics + 1)
            for kind in ("cos", "sin")
        ]
        self.degree, self.harmonics = degree, harmonics
        count = len(self.exponents) + len(self.waves)
        self.coefficients = nn.Parameter(0.01 * torch.randn(count))
        self.register_buffer("active", torch.ones_like(self.coefficients))
        powers_of = torch.tensor(self.exponents, dtype=torch.long)
        self.register_buffer("_powers_of", powers_of, persistent=False)
        self.register_buffer("_places", torch.arange(size), persistent=False)

    def __len__(self) -> int:
        return len(self.coefficients)

    @property
    def weights(self) -> Tensor:
        """The coefficients; those that were pruned are zero."""
        return self.coefficients * self.active

    @torch.no_grad()
    def prune(self, threshold: float) -> None:
        """Drop all terms whose coefficients are below a threshold, for good."""
        self.active.mul_((self.coefficients.abs() >= threshold).to(self.active.dtype))

    def _powers(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return x^0 … x^degree and their slopes, each (…, size, degree + 1)."""
        raised = [torch.ones_like(x)]
        for _ in range(self.degree):
            raised.append(raised[-1] * x)
        slopes = [torch.zeros_like(x)]
        slopes += [(k + 1) * raised[k] for k in range(self.degree)]
        return torch.stack(raised, dim=-1), torch.stack(slopes, dim=-1)

    def _chosen(self, table: Tensor) -> Tensor:
        """Return what each monomial takes of a table of powers, (…, monomials, size)."""
        return table[..., self._places, self._powers_of]

    def _angles(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return k x for every wave, and which are sines, in the order of `waves`."""
        places = [place for place, _, _ in self.waves]
        counts = x.new_tensor([k for _, k, _ in self.waves])
        sines = torch.tensor([kind == "sin" for _, _, kind in self.waves], device=x.device)
        return x[..., places] * counts, sines

    def forward(self, x: Tensor) -> Tensor:
        """Return φ, (…,)."""
        values = [self._chosen(self._powers(x)[0]).prod(-1)]
        if self.waves:
            angle, sines = self._angles(x)
            values.append(torch.where(sines, angle.sin(), angle.cos()))
        return torch.cat(values, dim=-1) @ self.weights

    def gradient(self, x: Tensor) -> Tensor:
        """Return ∇φ, (…, size)."""
        size, weights = x.shape[-1], self.weights
        raised, slopes = (self._chosen(table) for table in self._powers(x))
        columns = []
        for j in range(size):
            others = [k for k in range(size) if k != j]
            columns.append(slopes[..., j] * raised[..., others].prod(-1))
        straight = torch.stack(columns, dim=-2) @ weights[: len(self.exponents)]
        if not self.waves:
            return straight
        angle, sines = self._angles(x)
        counts = x.new_tensor([k for _, k, _ in self.waves])
        each = torch.where(sines, angle.cos(), -angle.sin()) * counts
        waves = (each * weights[len(self.exponents) :]).unflatten(-1, (size, 2 * self.harmonics))
        return straight + waves.sum(-1)

    def terms(self, names: Sequence[str], threshold: float = 0.0) -> dict[str, float]:
        """Return the terms with their coefficients, by how a person writes them.

        Args:
            names: What the variables are called.
            threshold: Terms with smaller coefficients are left out.
        """
        written = [_monomial(e, names) for e in self.exponents]
        written += [f"{kind}({'' if k == 1 else k}{names[place]})" for place, k, kind in self.waves]
        pairs = zip(written, self.weights.tolist(), strict=True)
        return {term: weight for term, weight in pairs if weight and abs(weight) >= threshold}


def _order(exponents: tuple[int, ...]) -> tuple[int, tuple[int, ...]]:
    return sum(exponents), tuple(-e for e in exponents)


def _monomial(exponents: tuple[int, ...], names: Sequence[str]) -> str:
    parts = zip(names, exponents, strict=True)
    return " ".join(name + (str(e).translate(_RAISED) if e > 1 else "") for name, e in parts if e)


def written_sum(terms: dict[str, float]) -> str:
    """Write terms and their coefficients as a sum."""
    text = ""
    for term, weight in terms.items():
        sign = "−" if weight < 0 else "+"
        text += f" {sign} {abs(weight):.4g} {term}"
    return text.strip().removeprefix("+ ") or "0"


class LibraryField(PairField):
    """T(p) + V(q), a library each.

    Args:
        freedoms: Positions; as many momenta.
        degree: Largest power of each variable.
        total_degree: Largest sum of powers.
        harmonics: Largest k of sines and cosines of positions; momenta have none.
    """

    of_momenta: FunctionLibrary
    of_positions: FunctionLibrary

    def __init__(
        self, freedoms: int, degree: int = 3, total_degree: int | None = None, harmonics: int = 0
    ) -> None:
        super().__init__(
            freedoms,
            FunctionLibrary(freedoms, degree, total_degree),
            FunctionLibrary(freedoms, degree, total_degree, harmonics),
        )
