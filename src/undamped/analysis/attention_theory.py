"""Decay of gradients in recurrent networks with uniform attention to all states, or to a few.

With equal weights and a linear recurrence h_{n+1} = V s_n, V normal, the gradient of s_T with
respect to h_t splits into one number for every eigenvalue λ of V, which obeys a recursion: with
s = h + c

    S_n = λ S_{n−1} + (1 + λ A_{n−1})/n,  A_{n−1} = S_t + … + S_{n−1},  S_t = 1 + 1/t

and half of the right sides for s = (h + c)/2. It grows or falls as a power of n, the exponent being
Re[λ/(1 − λ)] − 1 for the sum and Re[λ/(2 − λ)] − 1 for the half. The theorem of the thesis
(B.1.34) has 1/T for every |λ| < 1; that needs Re λ ≥ |λ|² for the sum, and a real λ above one half
makes the gradient grow. With the half it never grows for |λ| ≤ 1.

With equal weights over a few states at every step, S_n = f (G_n + mean of G_i over the attended i),
G_{n+1} = λ S_n, G_t = 1, f being 1 or one half. For λ > 0 nothing can cancel, so that the gradient
is at least what one chain of attention carries: (f/κ)^(d+1) λ^d with d states in between and at
most κ attended to at each (theorem B.1.39, whose factor λ^d is not printed). For other eigenvalues
chains cancel, and it may be zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from undamped._base.errors import OptionError

Mix = Literal["half", "sum"]


def attention_exponent(eigenvalue: complex, *, mix: Mix = "half") -> float:
    """Return the exponent p of the gradient T^p under uniform attention.

    Args:
        eigenvalue: An eigenvalue λ of the recurrent matrix, of modulus below one (at most one
            for half).
        mix: Whether s = (h + c)/2 or h + c.

    Example:
        >>> attention_exponent(0.5, mix="sum")
        0.0
    """
    divisor = _check(eigenvalue, mix)
    return float((eigenvalue / (divisor - eigenvalue)).real - 1)


def uniform_attention_gradient(
    eigenvalue: complex, steps: int, *, begin: int = 1, mix: Mix = "half"
) -> NDArray[Any]:
    """Return ds_n/dh_t for n = t, …, T by the recursion, one complex number each.

    Args:
        eigenvalue: An eigenvalue λ of the recurrent matrix.
        steps: The last time T.
        begin: The time t, 1 or later.
        mix: Whether s = (h + c)/2 or h + c.

    Example:
        >>> uniform_attention_gradient(0.5, 1000, mix="sum")[-1]
    """
    factor = 1 / _check(eigenvalue, mix)
    gradients = np.empty(steps - begin + 1, dtype=np.complex128)
    gradients[0] = total = factor * (1 + 1 / begin)
    for at, n in enumerate(range(begin + 1, steps + 1), start=1):
        gradients[at] = factor * (eigenvalue * gradients[at - 1] + (1 + eigenvalue * total) / n)
        total += gradients[at]
    return gradients


def sparse_attention_gradient(
    eigenvalue: complex, attended: Sequence[Sequence[int]], *, begin: int = 1, mix: Mix = "half"
) -> NDArray[Any]:
    """Return ds_n/dh_t for n = t, …, T where every step attends uniformly to a few states.

    Args:
        eigenvalue: An eigenvalue λ of the recurrent matrix.
        attended: For the steps 1, …, T, the steps that each attends to.
        begin: The time t, 1 or later.
        mix: Whether s = (h + c)/2 or h + c.

    Example:
        >>> sparse_attention_gradient(0.5, [[1], [1, 2], [1, 3]], mix="sum")[-1]
        (1.0625+0j)
    """
    factor = 1 / _check(eigenvalue, mix)
    states = {begin: 1 + 0j}  # of h with respect to h_t; those before it are zero
    gradients = []
    for n in range(begin, len(attended) + 1):
        sources = attended[n - 1]
        context = sum(states.get(i, 0) for i in sources) / len(sources) if sources else 0
        gradients.append(factor * (states[n] + context))
        states[n + 1] = eigenvalue * gradients[-1]
    return np.array(gradients)


def sparse_attention_bound(
    eigenvalue: float, sparsity: int, depth: int, *, mix: Mix = "half"
) -> float:
    """Return a lower bound of |ds_T/dh_t|, if a chain of attention connects T to t.

    Args:
        eigenvalue: A positive eigenvalue λ of the recurrent matrix.
        sparsity: The largest number κ of states that a step of the chain attends to.
        depth: The number d of states between the last step and step t.
        mix: Whether s = (h + c)/2 or h + c.

    Example:
        >>> sparse_attention_bound(0.5, sparsity=4, depth=1, mix="sum")
        0.03125
    """
    factor = 1 / _check(eigenvalue, mix)
    if not eigenvalue > 0:
        raise OptionError(
            f"eigenvalue must be > 0, got {eigenvalue}, because other chains may cancel. "
            "Compute `sparse_attention_gradient` instead."
        )
    return (factor / sparsity) ** (depth + 1) * eigenvalue**depth


def _check(eigenvalue: complex, mix: Mix) -> int:
    if mix not in ("half", "sum"):
        raise OptionError(f"mix must be 'half' or 'sum', got {mix!r}.")
    divisor = 2 if mix == "half" else 1
    if eigenvalue == divisor:
        raise OptionError(f"eigenvalue must not be {divisor}, where the exponent is infinite.")
    return divisor
