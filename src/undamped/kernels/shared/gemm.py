"""Matrix products inside compiled code, by the BLAS of PyTorch.

A loop over time that returns to Python for every product spends a quarter of its time there, and
two threads of it block each other. So the product is called by its address: that of PyTorch's
library, which respects torch's number of threads, or that of SciPy's if PyTorch exports none.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import get_cython_function_address, intrinsic, register_jitable

from undamped.kernels.shared.jit import PART

NAMES = {torch.float32: "sgemm", torch.float64: "dgemm"}


@cache
def product_address(dtype: torch.dtype) -> int:
    """Return the address of the matrix product of a dtype."""
    name = NAMES[dtype]
    for library in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu.*")):
        function = getattr(_load_library(library), f"{name}_", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return get_cython_function_address("scipy.linalg.cython_blas", name)


def _load_library(library: Path) -> Any:
    try:
        return ctypes.CDLL(str(library))
    except OSError:  # a library of another system
        return None


def _product(
    context: Any,
    address: Any,
    rows: Any,
    matrix: Any,
    out: Any,
    sizes: Any,
    add: Any,
    transposed: Any,
) -> Any:
    """Call gemm: out (m, n) = rows (m, k) matrix (k, n) + add·out, all contiguous.

    Fortran stores columns first, so for BLAS this is outᵀ = matrixᵀ rowsᵀ without a transposition;
    with `transposed` the rows, (k, m), are transposed.
    """
    number = types.CPointer(out.dtype)
    signature = types.void(address, number, number, number, sizes, add, transposed)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address, rows, matrix, out, sizes, add, transposed = values
        integer, character = ir.IntType(32), ir.IntType(8)
        kind = context.get_value_type(signature.args[1].dtype)

        def stored(value: Any) -> Any:
            pointer = cgutils.alloca_once(builder, value.type)
            builder.store(value, pointer)
            return pointer

        m, n, k = (
            stored(builder.trunc(size, integer)) for size in cgutils.unpack_tuple(builder, sizes, 3)
        )
        plain, unit = stored(ir.Constant(character, ord("N"))), stored(ir.Constant(kind, 1.0))
        beta = stored(builder.uitofp(add, kind))
        transposes = builder.trunc(transposed, ir.IntType(1))
        letter = builder.select(transposes, *(ir.Constant(character, ord(c)) for c in "TN"))
        order, width = stored(letter), builder.select(transposes, m, k)
        arguments = [plain, order, n, m, k, unit, matrix, n, rows, width, beta, out, n]
        function = ir.FunctionType(ir.VoidType(), [value.type for value in arguments])
        builder.call(builder.inttoptr(address, function.as_pointer()), arguments)
        return context.get_dummy_value()

    return signature, generate


_call: Any = intrinsic(_product)


@register_jitable(**PART)
def multiply(blas: int, rows: Any, matrix: Any, out: Any, add: bool) -> None:
    """Write rows·matrix to `out`, or add it; only compiled code calls this.

    Args:
        blas: The result of `product_address`.
        rows: (m, k).
        matrix: (k, n).
        out: (m, n).
        add: Whether to add to `out`.
    """
    sizes = (out.shape[0], out.shape[1], rows.shape[1])
    _call(blas, rows.ctypes, matrix.ctypes, out.ctypes, sizes, add, False)


@register_jitable(**PART)
def add_transposed_product(blas: int, rows: Any, columns: Any, out: Any) -> None:
    """Add rowsᵀ·columns to `out`: the sum of outer products that the gradient of a matrix is.

    Args:
        blas: The result of `product_address`.
        rows: (k, m).
        columns: (k, n).
        out: (m, n).
    """
    sizes = (out.shape[0], out.shape[1], rows.shape[0])
    _call(blas, rows.ctypes, columns.ctypes, out.ctypes, sizes, True, True)
