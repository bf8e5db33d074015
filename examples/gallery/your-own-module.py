"""The gradient flow of a module of your own

Any `torch.nn.Module` can be measured, also one whose batch comes first.
"""

import torch
from torch import nn

import undamped


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0])


torch.manual_seed(0)
result = undamped.analysis.gradient_flow(Tagger(), torch.randn(8, 200, 4), batch_first=True)
print(result.sentence)
