"""The activations φ of dense cells, each with its kernel.

modReLU changes the modulus of a number and not its sign or phase: φ(z) = z/|z| · relu(|z| + b).
With b = 0 it is the identity, so that networks with a long memory start near it.

Reference: M. Arjovsky, A. Shah, Y. Bengio. Unitary evolution recurrent neural networks.
ICML, 2016.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from undamped.kernels.coupled import Step, steps

Activation = Literal["modrelu", "tanh", "relu", "leaky-relu", "identity"]
LEAK = {"relu": 0.0, "leaky-relu": 0.1, "identity": 1.0}


def modrelu(values: Tensor, bias: Tensor) -> Tensor:
    """Return sign(z) relu(|z| + b)."""
    return torch.sign(values) * torch.relu(values.abs() + bias)


def activate(kind: Activation, values: Tensor, bias: Tensor) -> Tensor:
    """Return φ of values; the bias is a threshold for modReLU, and is added for all others."""
    if kind == "modrelu":
        return modrelu(values, bias)
    total = values + bias
    if kind == "relu":
        return torch.relu(total)  # a leak of zero would make NaN of −∞
    return torch.tanh(total) if kind == "tanh" else F.leaky_relu(total, LEAK[kind])


def activation_kernel(kind: Activation) -> Step:
    """Return the kernel of φ, for values that contain the bias."""
    if kind == "modrelu":
        return steps.ModRelu()
    return steps.Tanh() if kind == "tanh" else steps.LeakyRelu(LEAK[kind])
