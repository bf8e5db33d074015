"""Products inside compiled loops: against NumPy, by either library, for arrays with strides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numba import njit
from numba.extending import get_cython_function_address

import undamped
from undamped.kernels.coupled import compiled_pass
from undamped.kernels.shared.gemm import NAMES, multiply, product_address
from undamped.kernels.shared.pointers import at_step, contiguous_rows, strided

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-13}


def scipy_address(dtype: torch.dtype) -> int:
    return get_cython_function_address("scipy.linalg.cython_blas", NAMES[dtype])


@njit
def written(blas: int, rows: object, matrix: object, out: object, keep: bool) -> None:
    multiply(blas, rows, matrix, out, keep)


@pytest.mark.parametrize("address", [product_address, scipy_address])
@pytest.mark.parametrize("dtype", NAMES)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (5, 7, 3), (64, 40, 129)])
def test_a_product_is_what_numpy_says(
    address: object, dtype: torch.dtype, sizes: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    generator = torch.Generator().manual_seed(0)
    shapes = (m, k), (k, n), (m, n)
    rows, matrix, out = (
        torch.randn(shape, generator=generator, dtype=dtype).numpy() for shape in shapes
    )
    expected = rows.astype(float) @ matrix.astype(float)
    for keep in (True, False):
        result = out.copy() if keep else np.full_like(out, np.nan)
        written(address(dtype), rows, matrix, result, keep)
        total = expected + out if keep else expected
        np.testing.assert_allclose(result, total, rtol=TOLERANCE[dtype], atol=10 * TOLERANCE[dtype])


@pytest.mark.slow
def test_networks_give_the_same_by_scipys_product(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    x = torch.randn(20, 5, 3, dtype=torch.float64)
    for kind in (undamped.nn.LSTM, undamped.nn.FastRNN, undamped.nn.IncrementalRNN):
        net = kind(3, 8).double()
        result = []
        for address in (product_address, scipy_address):
            monkeypatch.setattr(compiled_pass, "product_address", address)
            net.zero_grad()
            output, _ = net(x)
            output.pow(2).sum().backward()
            result.append((output, [part.grad for part in net.parameters()]))
        torch.testing.assert_close(result[0], result[1], rtol=1e-11, atol=1e-12)


def test_pages_of_a_share_of_the_batch() -> None:
    full = torch.arange(2 * 6 * 3, dtype=torch.float64).reshape(2, 6, 3)
    share = full[:, 2:4]
    like = np.empty(0)

    @njit
    def second(array: object, like: object) -> object:
        return at_step(array, 1, like).copy()

    np.testing.assert_array_equal(second(strided(share), like), share[1].numpy())
    assert contiguous_rows(share) is share
    for gaps in (full[:, :, :2], full[:, :, :1].expand(2, 6, 3), full.transpose(1, 2)):
        copied = contiguous_rows(gaps)
        assert copied.is_contiguous() and torch.equal(copied, gaps)


def test_python_cannot_call_what_is_part_of_a_loop() -> None:
    rows = np.ones((2, 2))
    for _ in range(2):  # whether it was compiled before or not
        with pytest.raises(NotImplementedError):
            multiply(product_address(torch.float64), rows, rows, rows.copy(), False)
    written(product_address(torch.float64), rows, rows, result := rows.copy(), False)
    np.testing.assert_array_equal(result, [[2, 2], [2, 2]])
