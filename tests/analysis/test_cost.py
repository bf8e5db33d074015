"""Parameters and flops that can be counted by hand."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError
from undamped.analysis import cost, count_flops, count_parameters


def test_flops_and_parameters_of_an_elman_network():
    net = nn.RNN(3, 5)
    assert count_parameters(net) == 5 * 3 + 5 * 5 + 10
    # Two flops for each product with its addition: per step and sequence 2 (3·5 + 5·5).
    assert count_flops(net, torch.zeros(7, 4, 3)) == 7 * 4 * 2 * 40
    assert count_flops(nn.LSTM(3, 5), torch.zeros(7, 4, 3)) == 7 * 4 * 2 * 160
    # An oscillator has no recurrent matrix, so only its input costs a product.
    assert count_flops(undamped.nn.UnICORNN(3, 5), torch.zeros(7, 4, 3)) == 7 * 4 * 2 * 15


@pytest.mark.slow
def test_cost_grows_with_length():
    found = cost(undamped.nn.LSTM(3, 8), (10, 20, 40), batch=2, repeats=1)
    assert found.flops.tolist() == [found.flops[0] * n for n in (1, 2, 4)]
    assert (found.seconds > 0).all()
    assert found.memory.size == 0
    assert found.plot().data
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_busy_moment_does_not_count(monkeypatch):
    now, ran, order = [0.0], [0.0], []

    def one_pass(module, x):
        order.append(len(x))
        # Whatever runs during the first three timed passes is four times as slow, and the wall
        # clock of the fourth stands still while another process runs.
        busy = 4.0 if 2 < len(order) <= 5 else 1.0
        now[0] += len(x) * busy + 100.0 * (len(order) == 6)
        ran[0] += len(x) * busy

    class Clock:
        perf_counter = staticmethod(lambda: now[0])
        process_time = staticmethod(lambda: ran[0])

    cost_module = sys.modules["undamped.analysis.cost"]  # the package has a function of its name
    monkeypatch.setattr(cost_module, "_pass", one_pass)
    monkeypatch.setattr(cost_module, "time", Clock)
    found = cost(nn.LSTM(1, 2), (10, 20), batch=2, repeats=3)
    assert order == [10, 20] * 4  # once to warm up, and then in turn
    assert found.seconds.tolist() == [10.0, 20.0]


def test_batch_first_and_input_size():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    net = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    found = cost(net, (8, 16), batch=3, input_size=4, repeats=1)
    assert found.flops[1] > 2 * found.flops[0]
    with pytest.raises(OptionError, match="input_size"):
        cost(net, (8,))


@pytest.mark.process
def test_peak_memory_is_measured_in_a_process_of_its_own():
    found = cost(nn.LSTM(8, 64), (4000,), batch=16, repeats=1, memory=True)
    # At the very least the outputs, 4000 · 16 · 64 numbers of 4 bytes, have to be there.
    assert np.all(found.memory > 4000 * 16 * 64 * 4)
