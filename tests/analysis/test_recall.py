"""The recall probe on networks whose memory is known."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped.analysis import recall


class DelayLine(nn.Module):
    """Remembers the last `units` inputs exactly and nothing else."""

    input_size = 1

    def __init__(self, units):
        super().__init__()
        self.units = nn.Parameter(torch.tensor(float(units)))

    def forward(self, x):
        count = int(self.units)
        padded = torch.cat([x.new_zeros(count - 1, *x.shape[1:]), x])
        steps = len(x)
        return torch.cat([padded[count - 1 - k : count - 1 - k + steps] for k in range(count)], 2)


def test_a_delay_line_recalls_its_length():
    result = recall(DelayLine(20), delays=40)
    np.testing.assert_allclose(result.scores[:20], 1.0, atol=1e-3)
    np.testing.assert_allclose(result.scores[20:], 0.0, atol=0.02)
    assert result.reach == 20
    assert result.capacity == pytest.approx(20, abs=0.5)
    assert result.plot().data
    json.dumps(result.to_dict(), allow_nan=False)


def test_a_leaky_unit_recalls_as_its_closed_form_says():
    # h = Σ aᵏ x_{t−k} explains a^{2k}(1 − a²) of x_{t−k}.
    net = nn.RNN(1, 1, nonlinearity="relu", bias=False).double()
    with torch.no_grad():
        net.weight_ih_l0.fill_(1.0)
        net.weight_hh_l0.fill_(0.8)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3000, 40, 1, generator=generator, dtype=torch.float64)  # positive: linear
    result = recall(net, x, delays=10)
    expected = 0.8 ** (2 * np.arange(11)) * (1 - 0.64)
    np.testing.assert_allclose(result.scores, expected, atol=0.01)


@pytest.mark.slow
def test_batch_first_and_networks_of_ours():
    torch.manual_seed(0)
    net = undamped.build("unicornn", input_size=1, hidden_size=16, dt=0.5, batch_first=True)
    result = recall(net, delays=30, steps=120, batch=8)
    assert result.scores.shape == (31,)
    assert 0 < result.capacity <= 16.5


def test_errors_say_what_to_do():
    with pytest.raises(OptionError, match="input_size"):
        recall(nn.Linear(2, 2))
    with pytest.raises(ShapeError, match="longer inputs"):
        recall(DelayLine(3), torch.randn(10, 4, 1), delays=40)
