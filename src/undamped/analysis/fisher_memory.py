"""Fisher memory (Ganguli, Huh and Sompolinsky, 2008; TH 2.6 and A.2).

A linear network h' = W h + v s + z with Gaussian noise z of variance ε per unit holds, about
the signal that came k steps ago, the Fisher information

    J(k) = (Wᵏv)ᵀ C⁻¹ (Wᵏv),   C = ε Σ Wᵏ(Wᵏ)ᵀ,

in total J_tot = Σ J(k) = vᵀ J⁽ˢ⁾ v. For non-normal W the covariance C is so badly conditioned
that inverting it in double precision gives noise. Here C = R Rᵀ is never inverted: with
G = R⁻¹ W R, whose norm is at most one because C − W C Wᵀ = ε I,

    J(k) = ‖Gᵏ R⁻¹v‖²,   J⁽ˢ⁾ = R⁻ᵀ (Σ (Gᵏ)ᵀGᵏ) R⁻¹,

so that only R has to be accurate. R is computed by QR factorisations in double precision. If the
identity tr J⁽ˢ⁾ = N/ε shows that this is not enough, R is computed again in fixed-point arithmetic
with as many bits as necessary (every pivot of C/ε is at least one, so fixed point is safe).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from undamped._base.errors import OptionError, ShapeError
from undamped.analysis.core import Layout, Result, Style, Trace

Array = NDArray[Any]

TOLERANCE = 1e-6
"""Relative error of tr J⁽ˢ⁾ = N/ε above which more digits are used."""
MAX_BITS = 4096
MAX_DOUBLINGS = 24


@dataclass(frozen=True)
class FisherMemory(Result):
    """Fisher memory of a linear network.

    `curve[k]` is J(k), `total` the sum over all k, `spatial` the matrix J⁽ˢ⁾ with
    total = vᵀ J⁽ˢ⁾ v, `trace_error` the relative distance of its trace from N/ε, and `bits` the
    number of bits of the fixed-point arithmetic that was needed, 53 meaning double precision.
    """

    curve: Array
    total: float
    spatial: Array
    trace_error: float
    bits: int

    figure_layout = Layout(
        "Fisher memory curve", "delay k [steps]", "Fisher information J(k)", log_y=True
    )

    @property
    def sentence(self) -> str:
        return (
            "Fisher information of the state about a signal k steps ago; in total "
            f"{self.total:.4g}."
        )

    def traces(self, style: Style) -> list[Trace]:
        """One line, down to the limit of double precision."""
        delays = np.flatnonzero(self.curve > self.curve.max() * 1e-12)
        return [style.line(delays, self.curve[delays], "J(k)")]


def fisher_memory(
    W: ArrayLike, source: ArrayLike, noise: float = 1.0, *, steps: int | None = None
) -> FisherMemory:
    """Return the Fisher memory curve of h' = W h + source·s + noise.

    Args:
        W: The recurrent matrix (units, units); every eigenvalue inside the unit circle.
        source: The vector (units,) by which the signal enters.
        noise: Variance ε of the noise of each unit at each step.
        steps: Length of the curve; by default it ends where it has decayed to zero.
    """
    matrix, vector = _check(W, source, noise)
    bits = 53
    inverse_root, contraction = _double_precision(matrix)
    spatial = _spatial(inverse_root, contraction)
    error = _trace_error(spatial)
    while not error < TOLERANCE and bits < MAX_BITS:
        bits = 256 if bits == 53 else 2 * bits
        inverse_root, contraction = _fixed_point(matrix, bits)
        spatial = _spatial(inverse_root, contraction)
        error = _trace_error(spatial)
    if not error < TOLERANCE:
        raise _no_stationary_state("noise without bound")
    curve = _curve(contraction, inverse_root @ vector, steps)
    total = float(vector @ spatial @ vector)
    return FisherMemory(curve / noise, total / noise, spatial / noise, error, bits)


def _check(W: ArrayLike, source: ArrayLike, noise: float) -> tuple[Array, Array]:
    matrix, vector = (np.array(part, dtype=np.float64) for part in (W, source))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or vector.shape != matrix.shape[:1]:
        raise ShapeError(
            "W must be (units, units) and source (units,), got shapes "
            f"{matrix.shape} and {vector.shape}."
        )
    if not (np.isfinite(matrix).all() and np.isfinite(vector).all()):
        raise OptionError("W and source must be finite.")
    if not noise > 0:
        raise OptionError(
            f"noise must be a variance > 0, got {noise}. Without noise a linear network has "
            "infinite memory."
        )
    return matrix, vector


def _no_stationary_state(problem: str) -> OptionError:
    return OptionError(
        f"W must have all eigenvalues inside the unit circle, but has {problem}. "
        "Scale W so that its spectral radius is below 1."
    )


def _double_precision(W: Array) -> tuple[Array, Array]:
    """Return R⁻¹ and G = R⁻¹WR with R Rᵀ = Σ Wᵏ(Wᵏ)ᵀ, by doubling the number of terms."""
    upper, power = np.eye(len(W)), W
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(MAX_DOUBLINGS):
            added = upper @ power.T
            if not np.isfinite(added).all():
                raise _no_stationary_state("powers that grow without bound")
            small = np.linalg.norm(added, axis=0) <= 1e-18 * np.linalg.norm(upper, axis=0)
            # Householder QR is accurate column by column, so units of very different size
            # (a delay line that amplifies) do not disturb each other.
            upper = np.asarray(np.linalg.qr(np.vstack([upper, added]), mode="r"))
            if small.all():
                break
            power = power @ power
        else:
            raise _no_stationary_state("powers that do not fall to zero")
    root = torch.from_numpy(np.ascontiguousarray(upper.T))
    sides = torch.from_numpy(np.hstack([np.eye(len(W)), W @ upper.T]))
    solved = torch.linalg.solve_triangular(root, sides, upper=False).numpy()
    return solved[:, : len(W)], solved[:, len(W) :]


def _fixed_point(W: Array, bits: int) -> tuple[Array, Array]:
    """Return the same in fixed-point arithmetic with `bits` fractional bits."""
    exact = np.empty(W.shape, dtype=object)
    for index, value in np.ndenumerate(W):
        above, below = float(value).as_integer_ratio()
        exact[index] = (above << bits) // below
    covariance = _fixed_covariance(exact, bits)
    unit_lower, pivots = _ldl(covariance, bits)
    inverse = _unit_inverse(unit_lower, bits)
    similar = (inverse @ ((exact @ unit_lower) >> bits)) >> bits
    unit = 1 << bits
    n = len(W)
    root_inverse, contraction = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            # Division of long integers rounds once.
            size = inverse[i, j] ** 2 / (pivots[i] * unit)
            root_inverse[i, j] = np.copysign(np.sqrt(size), float(np.sign(inverse[i, j])))
            size = (similar[i, j] ** 2 * pivots[j]) / (pivots[i] * unit * unit)
            contraction[i, j] = np.copysign(np.sqrt(size), float(np.sign(similar[i, j])))
    return root_inverse, contraction


def _fixed_covariance(W: NDArray[Any], bits: int) -> NDArray[Any]:
    n = len(W)
    covariance = np.zeros((n, n), dtype=object)
    covariance[np.diag_indices(n)] = 1 << bits
    power = W
    for _ in range(MAX_DOUBLINGS):
        added = (power @ ((covariance @ power.T) >> bits)) >> bits
        largest = max(abs(int(entry)) for entry in added.flat)
        if largest.bit_length() > 4 * MAX_BITS:
            raise _no_stationary_state("powers that grow without bound")
        covariance = covariance + added
        if largest <= 1:
            return covariance
        power = (power @ power) >> bits
    raise _no_stationary_state("powers that do not fall to zero")


def _ldl(symmetric: NDArray[Any], bits: int) -> tuple[NDArray[Any], list[int]]:
    rest, n = symmetric.copy(), len(symmetric)
    lower, pivots = np.zeros((n, n), dtype=object), []
    for j in range(n):
        pivot = max(rest[j, j], 1)
        pivots.append(pivot)
        column = rest[j:, j].copy()
        lower[j:, j] = (column << bits) // pivot
        lower[j, j] = 1 << bits
        rest[j + 1 :, j + 1 :] -= np.outer(lower[j + 1 :, j], column[1:]) >> bits
    return lower, pivots


def _unit_inverse(lower: NDArray[Any], bits: int) -> NDArray[Any]:
    n = len(lower)
    inverse = np.zeros((n, n), dtype=object)
    for i in range(n):
        if i:
            inverse[i] = -((lower[i, :i] @ inverse[:i]) >> bits)
        inverse[i, i] += 1 << bits
    return inverse


def _spatial(inverse_root: Array, contraction: Array) -> Array:
    """R⁻ᵀ (Σ (Gᵏ)ᵀGᵏ) R⁻¹, summed by doubling; the caller divides by the noise."""
    rows, power = inverse_root, contraction
    gram, step = np.eye(len(rows)), power
    for _ in range(MAX_DOUBLINGS):
        added = step.T @ gram @ step
        gram = gram + added
        if np.abs(added).max() <= 1e-17 * np.abs(gram).max():
            break
        step = step @ step
    return rows.T @ gram @ rows


def _trace_error(spatial: Array) -> float:
    return float(abs(np.trace(spatial) / len(spatial) - 1))


def _curve(contraction: Array, start: Array, steps: int | None) -> Array:
    values, state = [], start
    limit = steps if steps is not None else 10**6
    while len(values) < limit:
        values.append(float(state @ state))
        # Stop where double precision has no digit left.
        if steps is None and values[-1] <= 1e-16 * max(values):
            break
        state = contraction @ state
    return np.array(values)
