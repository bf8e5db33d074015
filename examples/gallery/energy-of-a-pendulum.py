"""The energy of a pendulum, with two methods

A symplectic method of order two keeps the energy within bounds; a method of order four with the
same step loses it slowly.
"""

import matplotlib.pyplot as plt
import torch

from undamped.ode import solve


def pendulum(t, state):
    angle, speed = state
    return speed, -torch.sin(angle)


t = torch.linspace(0, 300, 601, dtype=torch.float64)
start = (torch.tensor([2.0], dtype=torch.float64), torch.tensor([0.0], dtype=torch.float64))
figure, axes = plt.subplots(figsize=(6, 3.4))
for method in ("leapfrog", "rk4"):
    angle, speed = solve(pendulum, start, t, method=method, options={"step_size": 0.5}).values
    energy = speed**2 / 2 - torch.cos(angle)
    axes.plot(t, energy - energy[0], label=method)
axes.set(xlabel="time", ylabel="error of the energy")
axes.legend()
