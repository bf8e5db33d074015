"""A ball hits the ground

An event ends the solve when the height is zero; the time of the event is differentiable.
"""

import matplotlib.pyplot as plt
import torch

import undamped
from undamped.ode import odeint_event


def fall(t, state):
    return torch.stack((state[1], torch.tensor(-9.81)))


figure, axes = plt.subplots(figsize=(6, 3.4))
state, begin = torch.tensor([1.0, 0.0]), torch.tensor(0.0)
for _ in range(4):
    end, _ = odeint_event(fall, state, begin, event_fn=lambda t, y: y[0])
    t = torch.linspace(begin.item(), end.item(), 40)
    heights = undamped.odeint(fall, state, t)
    axes.plot(t, heights[:, 0], color="C0")
    state, begin = torch.tensor([1e-6, -0.8 * heights[-1, 1].item()]), end.detach()
axes.set(xlabel="time (s)", ylabel="height (m)")
