"""Two weather systems that begin almost equally

The distance of two solutions of Lorenz's equations grows exponentially, and gradients with it.
"""

import matplotlib.pyplot as plt
import torch

import undamped


def lorenz(t, state):
    x, y, z = state.unbind(-1)
    return torch.stack((10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z), dim=-1)


start = torch.tensor([[1.0, 1.0, 20.0], [1.0 + 1e-6, 1.0, 20.0]], dtype=torch.float64)
t = torch.linspace(0, 30, 600, dtype=torch.float64)
paths = undamped.odeint(lorenz, start, t, rtol=1e-9, atol=1e-9)
figure, axes = plt.subplots(figsize=(6, 3.4))
axes.semilogy(t, (paths[:, 0] - paths[:, 1]).norm(dim=-1))
axes.set(xlabel="time", ylabel="distance of the solutions")
