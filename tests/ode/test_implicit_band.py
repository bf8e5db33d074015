"""Derivatives with few diagonals: found, taken in few products, solved as bands, never assumed."""

from __future__ import annotations

import pytest
import torch

from undamped._base.errors import OptionError
from undamped.ode import SDIRK4, Radau5, solve
from undamped.ode.methods.implicit.band import Band, BandFactors, solve_stages
from undamped.ode.methods.implicit.linearization import Linearization

D = torch.float64
BAND, SIZE = Band(2, 1), 11


def matrices(count, seed=0):
    full = torch.randn(count, SIZE, SIZE, dtype=D, generator=torch.Generator().manual_seed(seed))
    return full.triu(-BAND.lower).tril(BAND.upper)


def test_a_stored_band_is_the_matrix():
    full, w = matrices(3), torch.randn(3, SIZE, dtype=D)
    assert Band.of(full) == BAND and Band.of(torch.zeros(1, 4, 4)) == Band(0, 0)
    stored, groups = BAND.stored(full), BAND.groups(SIZE, w)
    close = torch.testing.assert_close
    close(BAND.product(stored, w), torch.einsum("sij,sj->si", full, w))
    close(BAND.transposed_product(stored, w), torch.einsum("sij,si->sj", full, w))
    close(BAND.from_products(torch.einsum("sij,gi->gsj", full, groups)), stored)
    moves = torch.rand(3, SIZE, dtype=D)
    changes = torch.einsum("sij,gj,sj->gsi", full, groups, moves)
    close(BAND.from_differences(changes, moves), stored)


def test_systems_with_a_band():
    full, right = matrices(3), torch.randn(3, SIZE, dtype=D)
    factors, shifts, h = BandFactors(BAND), (2.0, 1 + 2j), 0.3
    factors.renew(-h * BAND.stored(full), shifts, None)
    factors.renew(-2 * h * BAND.stored(full)[1:2], shifts, torch.tensor([1]))
    sizes = torch.tensor([h, 2 * h, h], dtype=D).view(3, 1, 1)
    for number, shift in enumerate(shifts):
        asked = right if number == 0 else torch.complex(right, right.flip(1))
        complete = shift * torch.eye(SIZE, dtype=D) - sizes * full
        expected = torch.linalg.solve(complete.to(asked.dtype), asked)
        torch.testing.assert_close(factors.solve(number, asked), expected)


def test_stages_with_a_band():
    parts, weights, h = [matrices(2, 1), matrices(2, 2)], ((0.2, -0.1), (0.7, 0.3)), 0.4
    right = torch.randn(2, 2, SIZE, dtype=D)
    full = torch.eye(2 * SIZE, dtype=D).repeat(2, 1, 1).view(2, 2, SIZE, 2, SIZE)
    for i in (0, 1):
        for j in (0, 1):
            full[:, i, :, j] -= h * weights[i][j] * parts[j]
    flat = full.reshape(2, 2 * SIZE, 2 * SIZE)
    expected = torch.linalg.solve(flat.mT, right.transpose(0, 1).reshape(2, -1, 1))
    result = solve_stages([BAND.stored(part) for part in parts], h, weights, BAND, right)
    torch.testing.assert_close(result, expected.view(2, 2, SIZE).transpose(0, 1))


def diffusion(points, rate=1.0):
    """Heat on a rod that also cools, by neighbours; the middle is tied to both ends by `link`."""
    scale = float((points + 1) ** 2)

    def field(t, y, link=0.0):
        beyond = torch.nn.functional.pad(y, (1, 1))
        spread = scale * (beyond[..., 2:] - 2 * y + beyond[..., :-2])
        return rate * spread - y**3 + link * (y.flip(-1) - y)

    return field


def bump(points):
    return torch.sin(torch.linspace(0, 3.1, points, dtype=D))


def took(field, y, method):
    line = Linearization(field, y, method)
    time, everyone = torch.zeros((), dtype=D), line.fresh == line.fresh
    calls = []
    for _ in range(2):
        line.take(time, y, everyone)
        calls.append(line.band)
    return line, calls


@pytest.mark.parametrize("points", [30, 100])
def test_a_band_is_looked_for_where_it_pays(points):
    line, bands = took(diffusion(points), bump(points), Radau5())
    assert bands == [None if points == 30 else Band(1, 1)] * 2
    assert line.matrix.shape == ((1, 30, 30) if points == 30 else (1, 3, 100))


def test_a_band_that_no_longer_holds_is_given_up():
    now = {"link": 0.0}
    base = diffusion(100)
    line, bands = took(lambda t, y: base(t, y, now["link"]), bump(100), Radau5())
    assert bands[-1] == Band(1, 1)
    now["link"] = 0.5
    line.take(torch.zeros((), dtype=D), bump(100), line.fresh == line.fresh)
    assert line.band is None and line.matrix.shape == (1, 100, 100)


def test_a_band_that_was_given_wrongly_is_refused():
    field = diffusion(100)
    for method in (Radau5(band=(0, 1)), SDIRK4(band=(1, 0))):
        with pytest.raises(OptionError, match="entries outside band"):
            solve(field, bump(100), [0.0, 0.1], method=method, rtol=1e-4, atol=1e-6)
    for wrong in ((1,), (-1, 1), "11", (1.5, 1)):
        with pytest.raises(OptionError, match="band must be"):
            Radau5(band=wrong)


@pytest.mark.parametrize("how", ["found", "given", "differenced", "jacobian", "rows"])
def test_solutions_are_those_of_full_matrices(how):
    points = 100
    field, start = diffusion(points), bump(points)
    if how == "rows":  # a grid of rows that depend on each other, as one system
        start = start.view(10, 10)
        flat = field
        field = lambda t, y: flat(t, y.reshape(-1)).view(10, 10)  # noqa: E731
    tight = {"rtol": 1e-7, "atol": 1e-9}
    with torch.no_grad():  # by a method that knows no bands
        expected = solve(field, start, [0.0, 0.02], method="rodas5p", **tight).final
    matrix = torch.func.jacrev(lambda y: field(0.0, y))(start)
    methods = {
        "found": Radau5(),
        "given": Radau5(band=(1, 1), dense_size=8),
        "differenced": Radau5(band=(1, 1)),
        "jacobian": Radau5(jacobian=lambda t, y: matrix),
        "rows": Radau5(band=(1, 1)),
    }
    asked = field
    if how == "differenced":
        asked = lambda t, y: field(t, y.detach()).detach()  # noqa: E731
    with torch.no_grad():
        result = solve(asked, start, [0.0, 0.02], method=methods[how], **tight).final
    torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop"])
@pytest.mark.parametrize("steps", ["batch", "sample"])
@pytest.mark.parametrize("method", [Radau5, SDIRK4])
def test_gradients_are_those_of_full_matrices(method, steps, gradient):
    result = []
    starts = bump(70) * torch.tensor([[1.0], [0.5]], dtype=D)
    for solver in (method(band=(1, 1)), method()):
        rate = torch.tensor(1.0, dtype=D, requires_grad=True)
        start = starts.clone().requires_grad_()
        final = solve(
            diffusion(70, rate),
            start,
            [0.0, 0.005],
            method=solver,
            gradient=gradient,
            steps=steps,
            rtol=1e-5,
            atol=1e-7,
        ).final
        result.append(torch.autograd.grad(final.pow(2).sum(), (rate, start)))
    for one, two in zip(*result, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-7, atol=1e-9)
