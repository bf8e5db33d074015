"""Every promise of every cell, measured."""

import pytest
import torch

import undamped
from undamped.analysis.promises import measure
from undamped.networks.recurrent import Recurrent
from undamped.registry import models

PROMISING = [
    name
    for name in models
    if isinstance(models[name], type)
    and issubclass(models[name], Recurrent)
    and models[name].cell_class.promises
]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", PROMISING)
def test_promises_are_kept(name, seed):
    torch.manual_seed(seed)
    net = undamped.build(name, input_size=3, hidden_size=6)
    for found in measure(net.cell(0), seed=seed):
        assert found.kept, found.to_dict()


def test_a_broken_promise_is_noticed():
    cell = undamped.RNNOrth(3, 6).cell(0)
    cell.weight_hh.data.mul_(1.1)
    kept = {m.promise.kind.value: m.kept for m in measure(cell)}
    assert kept == {"bounded-step-gradient": True, "starts-isometric": False}


def test_a_damped_oscillator_would_not_pass(monkeypatch):
    cell = undamped.UnICORNN(3, 6).cell(0)
    advance = type(cell).advance

    def damped(self, projected, state, constants):
        position, velocity = advance(self, projected, state, constants)
        return position, 0.99 * velocity

    monkeypatch.setattr(type(cell), "advance", damped)
    kept = {m.promise.kind.value: m.kept for m in measure(cell)}
    assert not kept["invertible"] and not kept["volume-preserving"] and not kept["symplectic"]
