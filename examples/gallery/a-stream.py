"""One sample at a time

A stream gives the outputs of the whole sequence, in constant memory.
"""

import matplotlib.pyplot as plt
import torch

import undamped

torch.manual_seed(0)
network = undamped.nn.GRU(1, 8)
signal = torch.sin(0.1 * torch.arange(200.0)).reshape(200, 1, 1)
whole, _ = network(signal)
state, outputs = None, []
for sample in signal:
    output, state = network.step(sample, state)
    outputs.append(output)
print("largest difference:", (torch.stack(outputs) - whole).abs().max().item())
figure, axes = plt.subplots(figsize=(6, 3.4))
axes.plot(torch.stack(outputs)[:, 0].detach())
axes.set(xlabel="sample", ylabel="outputs of 8 units")
