"""A state whose size never changes

An orthogonal recurrent matrix keeps the norm of a state; a random one of the same scale does not.
"""

import matplotlib.pyplot as plt
import torch

torch.manual_seed(0)
random = torch.randn(32, 32) / 32**0.5
layer = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(32, 32, bias=False))
figure, axes = plt.subplots(figsize=(6, 3.4))
for name, matrix in (("random", random), ("orthogonal", layer.weight.detach())):
    state, norms = torch.ones(32), []
    for _ in range(200):
        state = matrix @ state
        norms.append(state.norm().item())
    axes.semilogy(norms, label=name)
axes.set(xlabel="step", ylabel="norm of the state")
axes.legend()
