"""The sums of a Runge–Kutta step by the compiled kernel, against NumPy and against torch."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
import torch

import undamped
from undamped.kernels.runge_kutta_sums import ONE_THREAD, WeightedSums
from undamped.ode import solve
from undamped.ode.loop.norm import ErrorNorm

TYPES = {torch.float32: 2e-6, torch.float64: 1e-14}


def stages(shape: tuple[int, ...], dtype: torch.dtype, count: int = 5) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(count)]


def sums_of(y: torch.Tensor, taken: list[torch.Tensor]) -> WeightedSums:
    sums = WeightedSums(y)
    assert sums.begin(y) and [sums.take(part) for part in taken] == [True] * len(taken)
    return sums


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (7,), (1024,), (3, 5, 401), (70, 1024)])
def test_a_sum_is_what_numpy_says(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    y, *taken = stages(shape, dtype)
    weights = np.array([0.3, 0.0, -1.5, 0.25])
    result = sums_of(y, taken).add(0.1, weights)
    expected = y.double().numpy() + 0.1 * sum(
        w * k.double().numpy() for w, k in zip(weights, taken, strict=True)
    )
    assert result.shape == y.shape and result.dtype == dtype
    np.testing.assert_allclose(result.numpy(), expected, rtol=TYPES[dtype], atol=TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("shape", "size"), [((5,), None), ((9, 300), None), ((9, 300), 1500)])
def test_an_error_norm_is_what_numpy_says(
    dtype: torch.dtype, shape: tuple[int, ...], size: int | None
) -> None:
    y, y1, *taken = stages(shape, dtype)
    weights, rtol, atol = np.array([0.3, 0.0, -1.5]), 1e-2, 1e-3
    result = sums_of(y, taken).error(y1, 0.1, weights, rtol, atol, size)
    before, after, *ks = (part.double().numpy().reshape(-1)[:size] for part in (y, y1, *taken))
    error = 0.1 * sum(w * k for w, k in zip(weights, ks, strict=True))
    ratio = error / (atol + rtol * np.maximum(abs(before), abs(after)))
    assert result == pytest.approx(np.sqrt(np.mean(ratio**2)), rel=10 * TYPES[dtype])
    norm = ErrorNorm(rtol, atol, leading=size)
    plain = norm(0.1 * (0.3 * taken[0] - 1.5 * taken[2]), y, y1)
    assert result == pytest.approx(plain, rel=10 * TYPES[dtype])


def test_threads_change_nothing() -> None:
    y, y1, *taken = stages((700, 1024), torch.float32)
    weights, before = np.array([0.3, 2.0, -1.5]), torch.get_num_threads()
    assert len(weights) * y.numel() > ONE_THREAD
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            sums = sums_of(y, taken)
            results.append((sums.add(0.1, weights), sums.error(y1, 0.1, weights, 1e-3, 1e-3)))
    finally:
        torch.set_num_threads(before)
    (one, error), (two, same_error) = results
    assert torch.equal(one, two) and error == same_error


def test_what_is_not_alike_is_refused() -> None:
    y = torch.randn(4, 6)
    sums = WeightedSums(y)
    assert sums.begin(y)
    for other in (
        torch.randn(4, 5),
        torch.randn(6, 4).t(),
        torch.randn(4, 6, dtype=torch.float64),
        torch.nn.Parameter(y),
        torch.empty(4, 6, device="meta"),
    ):
        assert not sums.take(other)
    assert sums.error(torch.randn(6, 4).t(), 0.1, np.ones(1), 1e-3, 1e-3) is None


@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_into_infinity_is_never_accepted(compiled: bool) -> None:
    def leaps(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.where(t > 0.5, torch.full_like(y, 3e38), torch.zeros_like(y))

    context = torch.no_grad() if compiled else undamped.plain_loops()
    with context, pytest.raises(undamped._base.errors.SolveError, match="sample 0"):
        solve(leaps, torch.ones(2, 3), [0.0, 9.0], rtol=1e-3, atol=1e-3)


def with_gaps(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (-y).t().contiguous().t()


def sometimes_with_gaps(t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return with_gaps(t, y) if 0.2 < t < 0.4 else -y


@pytest.mark.parametrize("field", [lambda t, y: -y, with_gaps, sometimes_with_gaps])
@pytest.mark.parametrize("gradient", ["checkpoint", "backprop", "adjoint"])
def test_compiled_and_plain_sums_solve_alike(field: object, gradient: str) -> None:
    torch.manual_seed(0)
    y0 = torch.randn(5, 3, dtype=torch.float64)
    result = []
    for plain in (False, True):
        leaf = y0.clone().requires_grad_()
        settings = {"rtol": 1e-6, "atol": 1e-8, "gradient": gradient}
        if plain:
            with undamped.plain_loops():
                solution = solve(field, leaf, [0.0, 0.3, 1.0], **settings)
                solution.final.sum().backward()
        else:
            solution = solve(field, leaf, [0.0, 0.3, 1.0], **settings)
            solution.final.sum().backward()
        result.append((solution, leaf.grad))
    (one, gradient_one), (other, gradient_other) = result
    assert one.evaluations == other.evaluations
    assert one.statistics.stiffness == pytest.approx(other.statistics.stiffness, rel=1e-9)
    torch.testing.assert_close(one.values, other.values, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(gradient_one, gradient_other, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(one.final, y0 * np.exp(-1.0), rtol=1e-5, atol=1e-7)


def test_start_values_that_are_parameters_or_have_gaps() -> None:
    for y0 in (torch.nn.Parameter(torch.randn(4, 3)), torch.randn(3, 4).t()):
        with torch.no_grad():
            values = solve(lambda t, y: -y, y0, [0.0, 1.0], rtol=1e-6, atol=1e-8).final
        torch.testing.assert_close(values, y0 * np.exp(-1.0), rtol=1e-5, atol=1e-6)


@torch.no_grad()
def test_a_solve_makes_few_python_calls_for_an_evaluation() -> None:
    source, calls = str(Path(undamped.__file__).parent), [0]

    def count(frame: FrameType, event: str, _: object) -> None:
        calls[0] += event == "call" and frame.f_code.co_filename.startswith(source)

    def work() -> int:
        y0, times = torch.ones(4), [0.0, 40.0]
        return solve(lambda t, y: -y * torch.sin(7 * t), y0, times, rtol=1e-7).evaluations

    work()
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        evaluations = work()
    finally:
        sys.setprofile(before)
    assert evaluations > 1000 and calls[0] < 9 * evaluations
