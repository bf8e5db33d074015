"""Time scales of the oscillators of UnICORNN

Each neuron has a time step of its own, which training can change.
"""

import torch

import undamped

torch.manual_seed(0)
result = undamped.analysis.effective_steps(undamped.nn.UnICORNN(2, 64, num_layers=2))
print(result.sentence)
