"""A stiff oscillator

Van der Pol's oscillator creeps and jumps. An implicit method takes few steps where an explicit one
takes many.
"""

import matplotlib.pyplot as plt
import torch

from undamped.ode import solve


def van_der_pol(t, y):
    return torch.stack((y[1], 30 * (1 - y[0] ** 2) * y[1] - y[0]))


t = torch.linspace(0, 60, 300, dtype=torch.float64)
start = torch.tensor([2.0, 0.0], dtype=torch.float64)
for method in ("dopri5", "radau5"):
    solution = solve(van_der_pol, start, t, method=method, rtol=1e-5, atol=1e-6)
    print(f"{method}: {solution.evaluations} evaluations of the field")
figure, axes = plt.subplots(figsize=(6, 3.4))
axes.plot(t, solution.values[:, 0])
axes.set(xlabel="time", ylabel="position")
