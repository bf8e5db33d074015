"""A stack of LinOSS blocks in JAX, for the benchmark only.

The recurrence is an associative scan over a 2×2 matrix for every step and complex inputs; blocks,
loss and gradients are one compiled function. The weights are those of our network.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from undamped._base.errors import OptionError
from undamped.nn.recurrent import Recurrent


def require_jax() -> None:
    """Raise an error if JAX is not installed."""
    try:
        import jax  # noqa: F401
    except ModuleNotFoundError:
        raise OptionError(
            "bench linear needs the package jax. Install it with pip install jax, or leave this "
            "part out with jax=no."
        ) from None


def jax_step(network: Recurrent, x: Tensor) -> Callable[[], tuple[float, Any]]:
    """Return a training step without its update: the mean square of all outputs, and gradients.

    Args:
        network: LinOSS (im) with layer-norm blocks.
        x: (time, batch, input).
    """
    import jax
    import jax.numpy as jnp

    weights = jax.tree.map(lambda t: jnp.asarray(t.detach().numpy()), _weights(network))
    sequences = jnp.asarray(x.transpose(0, 1).contiguous().numpy())  # (batch, time, input)

    def combine(i: Any, j: Any) -> Any:
        (a, b, c, d), (f, g) = i
        (p, q, r, s), (u, v) = j
        product = (p * a + q * c, p * b + q * d, r * a + s * c, r * b + s * d)
        return product, (p * f + q * g + u, r * f + s * g + v)

    def layer(w: dict[str, Any], v: Any) -> Any:
        P = w["frequency"].shape[0]
        A, step = jax.nn.relu(w["frequency"]), jax.nn.sigmoid(w["step_logit"])
        S = 1 / (1 + step**2 * A)
        B = w["input_weight"][:P] + 1j * w["input_weight"][P:]
        C = w["output_weight"][:, :P] - 1j * w["output_weight"][:, P:]
        force = v @ B.T  # (time, P), complex
        ones = jnp.ones((v.shape[0], P))
        matrix = (S * ones, -step * A * S * ones, step * S * ones, (1 - step**2 * A * S) * ones)
        inputs = (step * S * force, step**2 * S * force)
        _, (_, position) = jax.lax.associative_scan(combine, (matrix, inputs))
        return (position @ C.T).real + w["pass_weight"] * v

    def block(w: dict[str, Any], e: Any) -> Any:
        mean, variance = e.mean(-1, keepdims=True), e.var(-1, keepdims=True)
        r = layer(w, (e - mean) / jnp.sqrt(variance + 1e-5))
        both = jax.nn.gelu(r) @ w["gate_weight"].T + w["gate_bias"]
        value, gate = jnp.split(both, 2, -1)
        return e + value * jax.nn.sigmoid(gate)

    def answer(w: dict[str, Any], sequence: Any) -> Any:
        e = sequence @ w["encoder_weight"].T + w["encoder_bias"]
        for number in range(network.num_layers):
            e = block(w[f"block{number}"], e)
        return e

    def loss(w: dict[str, Any]) -> Any:
        return (jax.vmap(answer, (None, 0))(w, sequences) ** 2).mean()

    compiled = jax.jit(jax.value_and_grad(loss))

    def step() -> tuple[float, Any]:
        value, gradients = jax.block_until_ready(compiled(weights))
        return float(value), gradients

    return step


def _weights(network: Recurrent) -> dict[str, Any]:
    weights: dict[str, Any] = {}
    for number, block in enumerate(network.cells):
        parameters = dict(block.cell.named_parameters())  # type: ignore[union-attr] (a module)
        parameters |= {f"gate_{key}": value for key, value in block.gate.named_parameters()}  # type: ignore[union-attr]
        weights[f"block{number}"] = parameters
    encoder = network.cells[0].encoder
    assert isinstance(encoder, torch.nn.Linear)
    return weights | {f"encoder_{key}": value for key, value in encoder.named_parameters()}
