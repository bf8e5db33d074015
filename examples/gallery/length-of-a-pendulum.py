"""Find the length of a pendulum from its motion

Gradients flow through the solver to a parameter of the equation.
"""

import matplotlib.pyplot as plt
import torch

import undamped

t = torch.linspace(0, 4, 30)
start = torch.tensor([1.0, 0.0])


def motion(length):
    def field(t, y):
        return torch.stack((y[1], -9.81 / length * torch.sin(y[0])))

    return undamped.odeint(field, start, t, method="rk4", options={"step_size": 0.1})[:, 0]


observed = motion(torch.tensor(1.3))
length = torch.tensor(1.0, requires_grad=True)
optimiser, history = torch.optim.Adam([length], lr=0.03), []
for _ in range(40):
    optimiser.zero_grad()
    (motion(length) - observed).square().mean().backward()
    optimiser.step()
    history.append(length.item())
print(f"length: {length.item():.3f} m, true length: 1.3 m")
figure, axes = plt.subplots(figsize=(6, 3.4))
axes.plot(history)
axes.axhline(1.3, color="grey", linestyle=":")
axes.set(xlabel="update", ylabel="length (m)")
