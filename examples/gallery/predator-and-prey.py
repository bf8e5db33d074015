"""Predators and prey

`undamped.odeint` is called as torchdiffeq's function of this name.
"""

import matplotlib.pyplot as plt
import torch

import undamped


def lotka_volterra(t, y):
    prey, predators = y
    return torch.stack((prey - prey * predators, prey * predators - predators))


t = torch.linspace(0, 15, 200)
populations = undamped.odeint(lotka_volterra, torch.tensor([2.0, 0.5]), t)
figure, axes = plt.subplots(figsize=(6, 3.4))
axes.plot(t, populations, label=["prey", "predators"])
axes.set(xlabel="time", ylabel="population")
axes.legend()
