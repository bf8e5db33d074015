"""How many past inputs can be read from a state

White noise goes in; a linear readout tries to recover the input of k steps ago.
"""

import torch

import undamped

torch.manual_seed(0)
result = undamped.analysis.recall(undamped.nn.LSTM(1, 32), delays=60)
print(result.sentence)
