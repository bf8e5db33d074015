"""Adjoints of first- and second-order neural ODEs

The gradient of a contracting flow of first order vanishes over depth; with a velocity it does not.
"""

import torch

from undamped.analysis import adjoint_decay


class Contracting(torch.nn.Module):
    def forward(self, t, h):
        return -torch.tanh(h)


start = torch.full((4, 3), 0.1, dtype=torch.float64)
result = adjoint_decay(Contracting(), start, [0.5 * k for k in range(1, 41)])
