"""Gradients of three networks over 500 steps

Before training, the gradients of an Elman network and of an LSTM vanish on their way back in time;
that of UnICORNN does not.
"""

import matplotlib.pyplot as plt
import torch

import undamped

torch.manual_seed(0)
x = torch.randn(500, 4, 1)  # (time, batch, features)
figure, axes = plt.subplots(figsize=(6, 3.4))
for name in ("rnn", "lstm", "unicornn"):
    network = undamped.build(name, input_size=1, hidden_size=32)
    flow = undamped.analysis.gradient_flow(network, x)
    axes.semilogy(flow.steps, flow.norms, label=name)
    print(f"{name}: reaches {flow.horizon} of {flow.length} steps")
axes.set(xlabel="step", ylabel="size of the gradient")
axes.legend()
