"""The functions φ of dense cells, among them modReLU, real and complex, each with its kernel.

modReLU changes the size of a number and keeps its sign or phase: φ(z) = z/|z| · relu(|z| + b).
With b = 0 it is the identity, which is why networks that must remember exactly start near it.

Reference: M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution recurrent neural networks.
ICML, 2016.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.coupled import Step, steps
from undamped.parametrizations.complex_pair import to_complex, to_pair

Activation = Literal["modrelu", "tanh", "relu", "leaky-relu", "identity"]
LEAK = {"relu": 0.0, "leaky-relu": 0.1, "identity": 1.0}


def modrelu(values: Tensor, bias: Tensor) -> Tensor:
    """sign(z) relu(|z| + b)."""
    return torch.sign(values) * torch.relu(values.abs() + bias)


def complex_modrelu(pair: Tensor, bias: Tensor, softening: float) -> Tensor:
    """z relu(|z| + b)/(|z| + ε) for complex z given and returned as (real | imaginary)."""
    values = to_complex(pair)
    modulus = values.abs()
    return to_pair(values * (torch.relu(modulus + bias) / (modulus + softening)))


def activate(kind: Activation, values: Tensor, bias: Tensor) -> Tensor:
    """Apply φ; the bias is modReLU's threshold and is added for all others."""
    if kind == "modrelu":
        return modrelu(values, bias)
    total = values + bias
    if kind == "relu":
        return torch.relu(total)  # a leak of zero would make NaN of −∞
    return torch.tanh(total) if kind == "tanh" else F.leaky_relu(total, LEAK[kind])


def activation_kernel(kind: Activation) -> Step:
    """Return the kernel of φ, for values to which the bias has been added already."""
    if kind == "modrelu":
        return steps.ModRelu()
    return steps.Tanh() if kind == "tanh" else steps.LeakyRelu(LEAK[kind])
