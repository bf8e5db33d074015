"""Which axis of a module's inputs is time: said, found by a trial, or stated as a guess."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped.analysis import cost, gradient_flow, recall, step_jacobians
from undamped.analysis.core.time_axis import layout_of
from undamped.lab.report import diagnose
from undamped.models import SequenceModel

STEPS, BATCH, SIZE = 60, 8, 4


class Wrapper(nn.Module):
    """A recurrent network and a readout of its last output, as most programs have it."""

    def __init__(self, kind, batch_first, transposes=False, every=False):
        super().__init__()
        self.inner = kind(SIZE, 6, batch_first=batch_first)
        self.head = nn.Linear(6, 2)
        self.transposes, self.every = transposes, every
        self.axis = 1 if batch_first else 0

    def forward(self, x):
        y, _ = self.inner(x.transpose(0, 1) if self.transposes else x)
        if self.every:
            y = self.head(y)
            return y.transpose(0, 1) if self.transposes else y
        return self.head(y.select(self.axis, -1))


class Encoder(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(SIZE, 2, 8, batch_first=batch_first)
        self.head = nn.Linear(SIZE, 2)

    def forward(self, x):
        return self.head(self.layer(x))


class Average(nn.Module):
    """A mean over the second axis: no part of it says which axis is time."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(SIZE, 2)

    def forward(self, x):
        return self.head(torch.tanh(x).mean(1))


class Pointwise(nn.Module):
    """Neither axis matters to it."""

    def __init__(self, inner=None):
        super().__init__()
        self.inner, self.head = inner, nn.Linear(SIZE, 2)

    def forward(self, x):
        return self.head(x)


MODULES = {
    "lstm": (lambda: Wrapper(nn.LSTM, True), True),
    "gru": (lambda: Wrapper(nn.GRU, True), True),
    "every step": (lambda: Wrapper(nn.LSTM, True, every=True), True),
    "time first": (lambda: Wrapper(nn.LSTM, False), False),
    "transposed inside": (lambda: Wrapper(nn.LSTM, False, transposes=True), True),
    "transposed, every step": (lambda: Wrapper(nn.GRU, False, True, every=True), True),
    "encoder": (lambda: Encoder(True), True),
    "encoder, time first": (lambda: Encoder(False), False),
    "no hint": (Average, True),
    "ours": (lambda: undamped.nn.UnICORNN(SIZE, 6, batch_first=True), True),
    "ours, time first": (lambda: undamped.nn.LSTM(SIZE, 6), False),
    "our model": (lambda: SequenceModel("lstm", SIZE, 2, hidden_size=6), False),
    "torch": (lambda: nn.GRU(SIZE, 6, batch_first=True), True),
}


def inputs_for(batch_first, steps=STEPS, batch=BATCH):
    random = torch.Generator().manual_seed(0)
    x = torch.randn(steps, batch, SIZE, generator=random)
    return x.transpose(0, 1) if batch_first else x


@pytest.mark.parametrize("batch", [BATCH, STEPS, 1])
@pytest.mark.parametrize("name", MODULES)
def test_time_is_found(name, batch):
    torch.manual_seed(0)
    make, batch_first = MODULES[name]
    assert layout_of(make(), inputs_for(batch_first, batch=batch)).batch_first is batch_first


@pytest.mark.parametrize("name", MODULES)
def test_gradient_flow_says_what_it_took_for_time(name):
    torch.manual_seed(0)
    make, batch_first = MODULES[name]
    module = make()
    result = gradient_flow(module, inputs_for(batch_first))
    assert result.length == STEPS and result.sequences == BATCH
    assert f"read as {STEPS} steps of {BATCH} sequences" in result.sentence
    plain = json.loads(json.dumps(result.to_dict()))
    assert plain["batch_first"] is batch_first and plain["sequences"] == BATCH
    output = gradient_flow(module, inputs_for(batch_first), batch_first=batch_first)
    np.testing.assert_array_equal(output.norms, result.norms)


def test_a_wrapped_lstm_forgets_as_the_lstm_in_it_does():
    torch.manual_seed(0)
    module, x = Wrapper(nn.LSTM, True), inputs_for(True)
    result, inner = gradient_flow(module, x), gradient_flow(module.inner, x)
    assert result.verdict == inner.verdict == "vanish"
    report = diagnose(module, x, measured=["gradient_flow"], compare=False)
    assert report.tone == "bad"
    assert f"of {STEPS} steps (read as {STEPS} steps of {BATCH} sequences)" in report.verdict
    # Told otherwise, it does as it is told, and says so.
    told = gradient_flow(module, x, batch_first=False)
    assert told.length == BATCH and f"read as {BATCH} steps of {STEPS} sequences" in told.sentence


def test_what_no_trial_tells_is_stated_as_a_guess():
    x = inputs_for(False)
    assert layout_of(Pointwise(), x) == (False, "default")
    sentence = gradient_flow(Pointwise(), x).sentence
    assert "if that is wrong, give batch_first=True" in sentence
    hinted = Pointwise(nn.LSTM(SIZE, 2, batch_first=True))
    assert layout_of(hinted, x) == (True, "submodule")


def test_other_instruments_take_the_same_axis():
    torch.manual_seed(0)
    module = Wrapper(nn.GRU, True, every=True)
    x = inputs_for(True, steps=100, batch=20)
    result = recall(module, x, delays=5)
    assert "read as 100 steps of 20 sequences" in result.sentence and result.reach > 0
    assert cost(module, (4, 8), batch=3, input_size=SIZE, repeats=1).batch == 3

    class Stateful(nn.Module):  # without a word about its axes
        def __init__(self):
            super().__init__()
            self.inner = nn.RNN(SIZE, 5, batch_first=True)

        def forward(self, x, state=None):
            return self.inner(x, state)

    net = Stateful()
    jacobians = step_jacobians(net, inputs_for(True))
    assert jacobians.shape == (STEPS, 5, 5)
    np.testing.assert_allclose(jacobians, step_jacobians(net.inner, inputs_for(True)), atol=1e-6)
