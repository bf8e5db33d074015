"""Matrices whose eigenvalues or singular values are parameters, or stay in a band.

`Schur` has non-normal matrices by their Schur form, V = P(Λ + T)Pᵀ, whose spectrum is a parameter.
Λ has 2 × 2 blocks γ_i·rotation(θ_i), and for an odd size a last entry γ; T is strictly lower
triangular and zero inside the blocks; P is a rotation, kept by the exponential map. Because
Λ + T is block triangular, the eigenvalues are γ_i exp(±iθ_i) for any T and P. (With a
free entry t inside a block, |λ|² would be γ² + γ t sin θ: the spectrum would leave γ.)

`SingularBand` keeps singular values in [1 − m, 1 + m]: W = U diag(s) Vᵀ with U and V rotations and
s = 1 + 2m(σ̂(p) − ½). `orthogonality_penalty` has the same purpose.

Reference: G. Kerg, K. Goyette, M. Puelma Touzel, G. Gidel, E. Vorontsov, Y. Bengio, G. Lajoie.
Non-normal recurrent neural network (nnRNN). NeurIPS, 2019. E. Vorontsov, C. Trabelsi, S. Kadoury,
C. Pal. On orthogonality and learning recurrent networks with long term dependencies. ICML, 2017.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from undamped._base.options import Fraction, PositiveInt
from undamped._base.packages import require
from undamped.parametrizations.exponential import rotation, rotation_logarithm
from undamped.parametrizations.initial import block_diagonal, random_orthogonal
from undamped.parametrizations.matrix_set import MatrixSet


def lower_mask(size: int) -> Tensor:
    """Return ones strictly below the 2 × 2 blocks on the diagonal, zeros elsewhere."""
    block = torch.arange(size) // 2
    return (block.unsqueeze(1) > block.unsqueeze(0)).to(torch.get_default_dtype())


class Schur(MatrixSet):
    """V = P(Λ + T)Pᵀ from free (skew for P, scales γ, angles θ, lower for T).

    Args:
        size: Rows of the matrix.

    Example:
        >>> maps = Schur(5)
        >>> maps(*maps.sample_free()).shape
        torch.Size([5, 5])
    """

    base: Tensor
    mask: Tensor

    def __init__(self, size: PositiveInt) -> None:
        super().__init__(size)
        self.register_buffer("base", torch.eye(size))
        self.register_buffer("mask", lower_mask(size), persistent=False)

    @property
    def blocks(self) -> int:
        """Number of scales γ: one per 2 × 2 block, and one more for an odd size."""
        return (self.size + 1) // 2

    def basis(self, free: Tensor) -> Tensor:
        """Return P."""
        return self.base @ rotation(free)

    def forward(self, *free: Tensor) -> Tensor:
        """Map the four free tensors to P(Λ + T)Pᵀ."""
        skew, scales, angles, lower = free
        p = self.basis(skew)
        return p @ (block_diagonal(scales, angles, self.size) + self.mask * lower) @ p.mT

    def right_inverse(self, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return a Schur decomposition with scaled rotations, as normal matrices have one."""
        # Reversing rows and columns turns the upper form that LAPACK gives into the lower one.
        upper, basis = _real_schur(matrix.detach().cpu().double().numpy())
        order = _block_order(upper)
        form = torch.from_numpy(upper.copy())[order][:, order]
        p = torch.from_numpy(basis.copy())[:, order]
        pairs = self.size // 2
        first = torch.arange(0, 2 * pairs, 2)
        cosine, sine = form[first, first], form[first + 1, first]
        scales = torch.sqrt(cosine**2 + sine**2)
        angles = torch.atan2(sine, cosine)
        if self.size % 2:
            scales = torch.cat([scales, form[-1:, -1]])
        lower = form * self.mask.double()
        reached = p @ (block_diagonal(scales, angles, self.size) + lower) @ p.mT
        if not torch.allclose(reached, matrix.double(), atol=1e-5):
            raise self.refuse(matrix, "a Schur form with scaled rotations on its diagonal")
        self.base = p.to(matrix)
        free = (torch.zeros_like(p), scales, angles, lower)
        return tuple(part.to(matrix) for part in free)  # type: ignore[return-value]

    def distance(self, matrix: Tensor) -> Tensor:
        """Return how far the spectrum is from the unit circle: the largest |γ − 1|."""
        return (torch.linalg.eigvals(matrix.double()).abs() - 1).abs().max()

    def sample_free(
        self, basis: Tensor | None = None, generator: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw the start of the paper: γ = 1, θ uniform in [0, 2π), T = 0, and P = `basis`."""
        if basis is None:
            basis = random_orthogonal(self.size, generator=generator, dtype=torch.float64)
        kind = basis.dtype
        angles = 2 * math.pi * torch.rand(self.size // 2, generator=generator, dtype=kind)
        skew = rotation_logarithm(basis).triu(1)
        return skew, torch.ones(self.blocks, dtype=kind), angles, torch.zeros_like(basis)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw the start of the paper: an orthogonal matrix with uniform angles."""
        skew, scales, angles, _ = self.sample_free(generator=generator)
        p = rotation(skew)
        return p @ block_diagonal(scales, angles, self.size) @ p.mT


def _real_schur(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an upper form and its basis."""
    if np.array_equal(values, np.diag(np.diagonal(values))):  # as at the start of every cell
        return values, np.eye(len(values))
    require("the Schur form of a matrix", "scipy")
    import scipy.linalg

    return scipy.linalg.schur(values, output="real")[:2]


def _block_order(upper: object) -> Tensor:
    """Return an order that makes a real upper Schur form lower, 2 × 2 blocks first.

    Rotation blocks and pairs of equal real eigenvalues fill the pairs; a real eigenvalue that
    has no partner goes last. Within a 2 × 2 block the order does not change, nor does its sign.
    """
    form = torch.as_tensor(upper)
    size, at, blocks, singles = form.shape[0], 0, [], []
    while at < size:
        if at + 1 < size and abs(float(form[at + 1, at])) > 1e-12:
            blocks.append([at, at + 1])
            at += 2
        else:
            singles.append(at)
            at += 1
    ordered = [index for block in reversed(blocks) for index in block]
    return torch.tensor(ordered + singles[::-1])


def orthogonality_penalty(matrix: Tensor) -> Tensor:
    """Return ‖WᵀW − I‖² (Frobenius: every singular value is penalised unless it is one)."""
    eye = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    return (matrix.mT @ matrix - eye).square().sum()


class SingularBand(MatrixSet):
    """W = U diag(s) Vᵀ, s in [1 − m, 1 + m]; U and V are exponentials about base points.

    Args:
        size: Rows of the matrix.
        margin: The number m; 0 keeps the matrix orthogonal.

    Example:
        >>> maps = SingularBand(6, margin=0.1)
        >>> maps.contains(maps(torch.randn(6, 6), torch.randn(6, 6), torch.randn(6)), 1e-4)
        True
    """

    left: Tensor
    right: Tensor

    def __init__(self, size: PositiveInt, margin: Fraction = 0.01) -> None:
        super().__init__(size)
        self.margin = margin
        self.register_buffer("left", torch.eye(size))
        self.register_buffer("right", torch.eye(size))

    def forward(self, *free: Tensor) -> Tensor:
        """Map two free matrices and a free vector to U diag(s) Vᵀ."""
        free_u, free_v, logits = free
        values = 1 + 2 * self.margin * (torch.sigmoid(logits) - 0.5)
        u = self.left @ rotation(free_u)
        v = self.right @ rotation(free_v)
        return (u * values) @ v.mT

    def right_inverse(self, matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Use the singular value decomposition as the base point."""
        u, values, vh = torch.linalg.svd(matrix)
        if bool((values - 1).abs().max() > self.margin + 1e-4):
            raise self.refuse(matrix, f"singular values in [1 − {self.margin}, 1 + {self.margin}]")
        self.left, self.right = u.contiguous(), vh.mT.contiguous()
        fraction = (values - 1) / (2 * self.margin) + 0.5 if self.margin else 0.5 + 0 * values
        logits = torch.logit(fraction.clamp(1e-6, 1 - 1e-6))
        zeros = torch.zeros(matrix.shape, dtype=matrix.dtype, device=matrix.device)
        return zeros, zeros.clone(), logits

    def distance(self, matrix: Tensor) -> Tensor:
        """Return how far the worst singular value lies outside the band."""
        values = torch.linalg.svdvals(matrix.double())
        return ((values - 1).abs() - self.margin).clamp(min=0).max()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """Draw two rotations, and singular values uniformly from the band."""
        u, v = (
            random_orthogonal(self.size, generator=generator, dtype=torch.float64) for _ in range(2)
        )
        fraction = torch.rand(self.size, generator=generator, dtype=torch.float64)
        return (u * (1 + self.margin * (2 * fraction - 1))) @ v.mT
