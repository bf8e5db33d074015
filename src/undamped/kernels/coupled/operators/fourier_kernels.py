"""The compiled part of `fourier`."""

from __future__ import annotations

from typing import Any

from undamped.kernels.shared.jit import njit


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"reassoc", "contract"})
def along(vector: Any, row: Any) -> Any:
    """vᴴ z. The order of the sum is the compiler's, so that it can take several at once."""
    re, im = vector[0].real * 0, vector[0].real * 0
    for j in range(row.shape[0]):
        v, z = vector[j], row[j]
        re += v.real * z.real + v.imag * z.imag
        im += v.real * z.imag - v.imag * z.real
    return complex(re, im)


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def turn_in(rows: Any, phases: Any, out: Any) -> None:
    """out = D h."""
    size = phases.shape[0]
    for b in range(rows.shape[0]):
        re, im, result = rows[b, :size], rows[b, size:], out[b]
        for j in range(size):
            d = phases[j]
            result[j] = complex(d.real * re[j] - d.imag * im[j], d.real * im[j] + d.imag * re[j])


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def reflect(rows: Any, vector: Any, scaled: Any) -> None:
    """rows = R rows, in place; `scaled` is 2v/‖v‖²."""
    for b in range(rows.shape[0]):
        row = rows[b]
        a = along(vector, row)
        for j in range(row.shape[0]):
            s, z = scaled[j], row[j]
            row[j] = complex(
                z.real - s.real * a.real + s.imag * a.imag,
                z.imag - s.real * a.imag - s.imag * a.real,
            )


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def gather_turn(rows: Any, index: Any, phases: Any, out: Any) -> None:
    """out = D Π rows."""
    for b in range(rows.shape[0]):
        row, result = rows[b], out[b]
        for j in range(row.shape[0]):
            d, z = phases[j], row[index[j]]
            result[j] = complex(
                d.real * z.real - d.imag * z.imag, d.real * z.imag + d.imag * z.real
            )


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def turn_out(rows: Any, phases: Any, out: Any, adds: bool) -> None:
    """out = D rows, plus what is there."""
    size = phases.shape[0]
    for b in range(rows.shape[0]):
        row, re, im = rows[b], out[b, :size], out[b, size:]
        if not adds:
            out[b] = 0
        for j in range(size):
            re[j] += phases[j].real * row[j].real - phases[j].imag * row[j].imag
        for j in range(size):
            im[j] += phases[j].real * row[j].imag + phases[j].imag * row[j].real


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def reflection_gradient(
    rows: Any, grad_rows: Any, vector: Any, scaled: Any, phase: Any, total: Any, both: Any
) -> None:
    """Add up the gradients of a reflection and of the phase behind it."""
    # R z = z − c v (vᴴz), c = 2/‖v‖², and g the gradient of it. With α = vᴴz and β = gᴴv the
    # gradient of v is −c Σ(ᾱ g + β z) + c² Re(Σ β α) v: `total` and `both` collect the sums.
    # A phase behind R has −Im Σ ḡ (R z).
    for b in range(rows.shape[0]):
        z, g = rows[b], grad_rows[b]
        a, beta = along(vector, z), along(g, vector)
        both[0] += beta.real * a.real - beta.imag * a.imag
        for j in range(z.shape[0]):
            total[j] += a.conjugate() * g[j] + beta * z[j]
        for j in range(z.shape[0]):
            re = z[j].real - scaled[j].real * a.real + scaled[j].imag * a.imag
            im = z[j].imag - scaled[j].real * a.imag - scaled[j].imag * a.real
            phase[j] += g[j].imag * re - g[j].real * im


@njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract"})
def phase_gradient(rows: Any, grad_rows: Any, phase: Any) -> None:
    """−Im Σ ḡ z."""
    for b in range(rows.shape[0]):
        z, g = rows[b], grad_rows[b]
        for j in range(z.shape[0]):
            phase[j] += g[j].imag * z[j].real - g[j].real * z[j].imag
