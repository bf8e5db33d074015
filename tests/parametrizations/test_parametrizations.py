"""Sets of matrices: the map, its inverse, membership, and membership after a thousand updates."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrize

from undamped._base.errors import OptionError
from undamped.parametrizations import (
    Exponential,
    FourierUnitary,
    Givens,
    Householder,
    Riemannian,
    ScaledCayley,
    Schur,
    SingularBand,
    Skew,
    isometry_defect,
    orthogonal_start,
    orthogonality_penalty,
    random_orthogonal,
    riemannian_step,
)
from undamped.parametrizations.cayley import cayley_transform
from undamped.parametrizations.exponential import rotation_logarithm, skew
from undamped.parametrizations.householder import reflection_factors
from undamped.parametrizations.initial import henaff
from undamped.parametrizations.spectra import lower_mask
from undamped.parametrizations.transforms import real_form, to_complex, to_pair

SIZE = 6
SETS = {
    "skew": lambda n: Skew(n),
    "exponential": lambda n: Exponential(n),
    "cayley": lambda n: ScaledCayley(n),
    "scaled-cayley": lambda n: ScaledCayley(n, n // 2),
    "householder": lambda n: Householder(n, n),
    "householder-few": lambda n: Householder(n, 2),
    "singular-band": lambda n: SingularBand(n, 0.1),
    "schur": lambda n: Schur(n),
    "riemannian": lambda n: Riemannian(n),
}
NO_INVERSE = {
    "givens": lambda n: Givens(n, 3),
    "givens-real": lambda n: Givens(n, 3, unitary=False),
    "fourier": lambda n: FourierUnitary(n),
}


def frees(inverse):
    return inverse if isinstance(inverse, tuple) else (inverse,)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("size", [2, 5, 6])
def test_samples_lie_in_the_set_and_come_back(name, size):
    maps = SETS[name](size).double()
    generator = torch.Generator().manual_seed(4)
    matrix = maps.sample(generator)
    assert maps.contains(matrix, 1e-9)
    repeated = maps.sample(torch.Generator().manual_seed(4))
    assert torch.equal(matrix, repeated)
    torch.testing.assert_close(maps(*frees(maps.right_inverse(matrix))), matrix)


@pytest.mark.parametrize("name", NO_INVERSE)
def test_thin_sets_say_that_they_cannot_be_read_back(name):
    maps = NO_INVERSE[name](SIZE)
    matrix = maps.sample(torch.Generator().manual_seed(4))
    assert maps.contains(matrix, 1e-9)
    with pytest.raises(OptionError, match="sample_free"):
        maps.right_inverse(matrix)


@pytest.mark.parametrize("name", [n for n in SETS if n != "schur"])
def test_other_matrices_do_not_lie_in_the_set(name):
    maps = SETS[name](SIZE).double()
    other = 3 * torch.eye(SIZE).double() + torch.ones(SIZE, SIZE).double()
    assert not maps.contains(other)
    with pytest.raises(OptionError, match="contains"):
        maps.right_inverse(other)


def trained(maps, start, steps=1000, hook=None):
    """Adam on a random linear target, in float32, through torch's own parametrisation."""
    torch.manual_seed(0)
    module = nn.Module()
    module.weight = nn.Parameter(start.float())
    parametrize.register_parametrization(module, "weight", maps)
    target = torch.randn(SIZE, SIZE)
    optimiser = torch.optim.Adam(module.parameters(), lr=3e-3)
    for step in range(1, steps + 1):
        optimiser.zero_grad()
        (module.weight - target).square().sum().backward()
        optimiser.step()
        if hook is not None:
            hook(module, step)
    return module.weight.detach()


@pytest.mark.parametrize("name", ["exponential", "scaled-cayley", "householder", "skew"])
def test_a_thousand_updates_stay_in_the_set(name):
    maps = SETS[name](SIZE)
    start = maps.sample(torch.Generator().manual_seed(1))
    weight = trained(maps, start)
    assert maps.contains(weight, 1e-5), maps.distance(weight)
    assert (weight - start.float()).abs().max() > 0.05


@pytest.mark.slow
def test_a_thousand_updates_keep_the_band():
    maps = SingularBand(SIZE, 0.1)
    weight = trained(maps, maps.sample(torch.Generator().manual_seed(1)))
    assert maps.contains(weight, 1e-5)
    assert torch.linalg.svdvals(weight).sub(1).abs().max() > 0.05


def test_a_thousand_updates_with_rebasing_stay_orthogonal():
    maps = Exponential(SIZE)

    def hook(module, step):
        if step % 20 == 0:
            maps.rebase(module.parametrizations.weight.original, project=step % 200 == 0)

    weight = trained(maps, maps.sample(torch.Generator().manual_seed(1)), hook=hook)
    assert maps.contains(weight, 1e-5)


def test_large_matrices_stay_orthogonal_in_single_precision():
    """The size of real networks, with an exponent as large as training makes it."""
    for maps in (Exponential(128), ScaledCayley(128, 64)):
        free = torch.randn(128, 128) * 0.2
        assert maps.distance(maps(free)) <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("maps", [Givens(SIZE, 3), FourierUnitary(SIZE)])
def test_a_thousand_updates_of_free_numbers_stay_unitary(maps):
    torch.manual_seed(0)
    free = nn.Parameter(maps.sample_free())
    target = torch.randn(SIZE, SIZE, dtype=torch.complex64)
    optimiser = torch.optim.Adam([free], lr=3e-3)
    for _ in range(1000):
        optimiser.zero_grad()
        (maps(free) - target).abs().square().sum().backward()
        optimiser.step()
    assert maps.contains(maps(free), 1e-5)


def test_riemannian_updates_stay_unitary_and_descend():
    torch.manual_seed(0)
    maps = Riemannian(SIZE)
    target = maps.sample().to(torch.complex64)
    free = nn.Parameter(maps.right_inverse(maps.sample()).float())
    optimiser, losses = torch.optim.RMSprop([free], lr=1e-3), []
    for step in range(1, 1001):
        optimiser.zero_grad()
        loss = (maps(free) - target).abs().square().sum()
        losses.append(loss.item())
        loss.backward()
        previous = free.detach().clone()
        optimiser.step()
        maps.settle(free, previous, project=step % 100 == 0)
    assert maps.contains(maps(free), 1e-5)
    assert losses[-1] < 0.5 * losses[0]


def test_the_riemannian_step_agrees_with_the_flat_one_to_first_order():
    maps = Riemannian(4)
    W = maps.sample(torch.Generator().manual_seed(0))
    tangent = W @ (1j * torch.diag(torch.arange(4.0).double()))
    for size, tolerance in ((1e-2, 1e-2), (1e-3, 1e-3)):
        moved = (riemannian_step(W, W + size * tangent) - W) / size
        # For a tangent step, A = G Wᴴ − W Gᴴ counts it twice: once from each side.
        assert (moved - 2 * tangent).abs().max() < 30 * tolerance


def test_initialisations():
    generator = torch.Generator().manual_seed(0)
    for kind in ("random", "henaff", "henaff-half", "cayley", "identity"):
        W = orthogonal_start(kind, 7, generator=generator).double()
        assert isometry_defect(W) < 1e-5
        assert torch.linalg.det(W) > 0
    angles = torch.linalg.eigvals(henaff(200, low=0.1, high=0.2, dtype=torch.float64)).angle().abs()
    assert angles.min() >= 0.1 - 1e-9 and angles.max() <= 0.2 + 1e-9
    assert torch.equal(orthogonal_start("identity", 3), torch.eye(3))


@settings(deadline=None, max_examples=25)
@given(size=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_the_logarithm_is_the_inverse_of_the_exponential(size, seed):
    Q = random_orthogonal(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    A = rotation_logarithm(Q)
    torch.testing.assert_close(A, -A.T)
    torch.testing.assert_close(torch.matrix_exp(A), Q, atol=1e-7, rtol=0)


def test_a_reflection_has_no_logarithm_and_becomes_the_base():
    maps = Exponential(3).double()
    mirror = torch.diag(torch.tensor([1.0, 1.0, -1.0])).double()
    free = maps.right_inverse(mirror)
    assert not free.any()
    torch.testing.assert_close(maps(free), mirror)


@settings(deadline=None, max_examples=25)
@given(size=st.integers(1, 7), count=st.integers(1, 7), seed=st.integers(0, 10**6))
def test_reflections_multiply_out(size, count, seed):
    count = min(size, count)
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(size, count, generator=generator, dtype=torch.float64)
    unit, rest = reflection_factors(vectors)
    W = torch.eye(size).double()
    for v in vectors.tril().T:
        W = W @ (torch.eye(size).double() - 2 * torch.outer(v, v) / v.dot(v))
    torch.testing.assert_close(torch.eye(size).double() - unit @ rest, W)


def test_all_reflections_reach_every_orthogonal_matrix():
    """With the signs, the set of n reflections is the whole orthogonal group."""
    generator = torch.Generator().manual_seed(0)
    for flip in (1, -1):
        W = random_orthogonal(5, generator=generator, dtype=torch.float64)
        W[:, 0] *= flip
        maps = Householder(5, 5).double()
        torch.testing.assert_close(maps(maps.right_inverse(W)), W)


@pytest.mark.parametrize(("size", "layers", "style"), [(5, 4, "tunable"), (8, None, "fft")])
@pytest.mark.parametrize("unitary", [True, False])
def test_layers_of_rotations(size, layers, style, unitary):
    maps = Givens(size, layers, style, unitary=unitary).double()
    free = maps.sample_free(torch.Generator().manual_seed(0)).double()
    W = maps(free)
    assert isometry_defect(W) < 1e-12
    assert W.is_complex() == unitary
    rows = torch.randn(3, size, dtype=W.dtype)
    torch.testing.assert_close(maps.transform(free, rows), rows @ W.T)
    if style == "fft":
        assert (W.abs() > 1e-12).all()  # log₂ n layers mix everything with everything


def test_the_number_of_angles_is_the_number_used():
    assert Givens(6, 2).angles == 3 + 2
    assert Givens(7, 2).angles == 3 + 3
    assert Givens(8, style="fft").angles == 3 * 4
    for maps in (Givens(6, 2), Givens(6, 2, unitary=False)):
        free = maps.sample_free().double().requires_grad_(True)
        probe = torch.randn(6, 6).double()
        gradient = torch.autograd.grad((maps(free) * probe).abs().square().sum(), free)[0]
        gradient += torch.autograd.grad((maps(free) * probe).sum().abs(), free)[0]
        assert (gradient != 0).all()


def test_the_fourier_product():
    maps = FourierUnitary(6, torch.Generator().manual_seed(0))
    free = maps.sample_free(torch.Generator().manual_seed(1)).double()
    W = maps(free)
    rows = torch.randn(4, 6, dtype=torch.complex128)
    torch.testing.assert_close(maps.transform(free, rows), rows @ W.T)


@pytest.mark.parametrize("size", [2, 5, 8])
def test_schur_spectrum_is_what_gamma_and_theta_say(size):
    maps = Schur(size).double()
    torch.manual_seed(0)
    turn, scales, angles, lower = maps.sample_free()
    scales = scales + 0.3 * torch.rand_like(scales)
    lower = torch.randn_like(lower)
    result = torch.linalg.eigvals(maps(turn, scales, angles, lower))
    pairs = size // 2
    expected = torch.cat(
        [torch.polar(scales[:pairs], angles), torch.polar(scales[:pairs], -angles)]
    )
    if size % 2:
        expected = torch.cat([expected, scales[pairs:].to(expected.dtype)])
    distance = (result.unsqueeze(1) - expected.unsqueeze(0)).abs()
    assert distance.min(0).values.max() < 1e-6
    assert distance.min(1).values.max() < 1e-6


def test_schur_keeps_its_blocks_free_of_the_lower_part():
    mask = lower_mask(5)
    assert mask.tolist() == [
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0],
    ]


def test_an_entry_inside_a_block_would_move_the_spectrum():
    """Why T stays outside the blocks: |λ|² would be γ² + γ t sin θ."""
    gamma, theta, t = 1.0, 0.7, 0.5
    c, s = math.cos(theta), math.sin(theta)
    block = torch.tensor([[gamma * c, -gamma * s], [gamma * s + t, gamma * c]]).double()
    result = torch.linalg.eigvals(block).abs().square()
    torch.testing.assert_close(result, torch.full((2,), gamma**2 + gamma * t * s).double())


def test_scaled_cayley_reaches_what_the_plain_one_cannot():
    turned = torch.diag(torch.tensor([1.0, -1.0])).double()
    with pytest.raises(OptionError, match="eigenvalue −1"):
        ScaledCayley(2).double().right_inverse(turned)
    maps = ScaledCayley(2, 1).double()
    torch.testing.assert_close(maps(maps.right_inverse(turned)), turned)


def test_maps_have_right_gradients():
    torch.manual_seed(0)
    for name in ("exponential", "scaled-cayley", "householder-few", "skew"):
        maps = SETS[name](4).double()
        free = torch.randn(4, 2 if "few" in name else 4, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(maps, free)
    schur = Schur(5).double()
    free = tuple(torch.randn_like(part).requires_grad_(True) for part in schur.sample_free())
    assert torch.autograd.gradcheck(schur, free)
    fourier = FourierUnitary(4)
    assert torch.autograd.gradcheck(fourier, fourier.sample_free().double().requires_grad_(True))


def test_pairs_are_complex_numbers():
    W = torch.randn(3, 4, dtype=torch.complex128)
    z = torch.randn(2, 4, dtype=torch.complex128)
    torch.testing.assert_close(to_complex(to_pair(z)), z)
    torch.testing.assert_close(to_pair(z) @ real_form(W).T, to_pair(z @ W.T))


def test_penalty_and_cayley_formulas():
    W = torch.randn(4, 4).double()
    expected = sum((s**2 - 1) ** 2 for s in torch.linalg.svdvals(W))
    torch.testing.assert_close(orthogonality_penalty(W), expected)
    A = skew(W)
    torch.testing.assert_close(cayley_transform(cayley_transform(A)), A)
