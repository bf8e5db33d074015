"""`undamped.testing` accepts a correct cell, and says what is wrong with a broken one."""

import pytest
import torch
from torch import nn

from undamped.extend import Cell, Kind, Promise
from undamped.testing import check_cell


class LeakyCell(Cell):
    """h' = h + rate (tanh(W h + V x) − h)."""

    def __init__(self, input_size, hidden_size, *, rate=0.5):
        super().__init__(input_size, hidden_size)
        self.rate = rate
        self.input_weight = nn.Parameter(torch.randn(hidden_size, input_size))
        self.weight_hh = nn.Parameter(torch.randn(hidden_size, hidden_size) / hidden_size)

    def project(self, x):
        return x @ self.input_weight.T

    def advance(self, projected, state, constants):
        h = state[0]
        return (h + self.rate * (torch.tanh(h @ self.weight_hh.T + projected) - h),)


class MixesSamples(LeakyCell):
    def advance(self, projected, state, constants):
        (h,) = super().advance(projected, state, constants)
        return (h - 0.1 * h.mean(0),)


class ScansDifferently(LeakyCell):
    def scan(self, x, state, lengths=None):
        return super().scan(1.001 * x, state, lengths)


class IgnoresLengths(LeakyCell):
    def scan(self, x, state, lengths=None):
        return super().scan(x, state, None)


class LosesGradients(LeakyCell):
    def advance(self, projected, state, constants):
        return super().advance(projected, (state[0].detach(),), constants)


class BreaksItsPromise(LeakyCell):
    promises = (Promise(Kind.VOLUME_PRESERVING, "det ∂h'/∂h = 1"),)


def test_a_correct_cell_passes():
    check_cell(LeakyCell)
    check_cell(LeakyCell, rate=0.1)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (MixesSamples, "MixesSamples, padding: "),
        (ScansDifferently, "ScansDifferently, streaming: outputs of `step`"),
        (IgnoresLengths, "IgnoresLengths, padding: outputs after the end"),
        (LosesGradients, "LosesGradients, .*gradients: .* finite differences"),
        (BreaksItsPromise, "BreaksItsPromise, promises: volume-preserving does not hold"),
    ],
)
def test_a_wrong_cell_fails(cell, message):
    with pytest.raises(AssertionError, match=message):
        check_cell(cell)
