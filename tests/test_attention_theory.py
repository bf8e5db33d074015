"""Gradients under uniform attention: autograd, the recursion, and the power of the length."""

import math

import numpy as np
import pytest
import torch

import undamped
from undamped.analysis import (
    attention_exponent,
    attention_of,
    kept_steps,
    uniform_attention_gradient,
)
from undamped.cells.bases.cell import Cell
from undamped.errors import OptionError


class Linear(Cell):
    """h' = V h, without an input."""

    def __init__(self, matrix):
        super().__init__(1, len(matrix))
        self.matrix = matrix

    def project(self, x):
        return x * torch.zeros_like(self.matrix[0])

    def advance(self, projected, state, constants):
        return (state[0] @ self.matrix.T + projected,)


def uniform(matrix, mix):
    """A network whose attention prefers nothing and whose recurrence is linear."""
    net = undamped.MemRNN(1, len(matrix), mix=mix).double()
    cell = net.cell(0)
    cell.recurrence = Linear(matrix)
    torch.nn.init.zeros_(cell.attention.score)
    return cell


@pytest.mark.parametrize("mix", ["sum", "half"])
@pytest.mark.parametrize("begin", [1, 4])
def test_autograd_gives_the_recursion(mix, begin):
    """Real eigenvalues on the diagonal, a complex pair as a rotation that shrinks."""
    real, turning = (0.9, 0.5, -0.5), 0.8 * np.exp(0.7j)
    matrix = torch.zeros(5, 5, dtype=torch.float64)
    matrix[range(3), range(3)] = torch.tensor(real, dtype=torch.float64)
    matrix[3:, 3:] = torch.tensor(
        [[turning.real, -turning.imag], [turning.imag, turning.real]], dtype=torch.float64
    )
    cell, steps = uniform(matrix, mix), 30

    def end(hidden):
        state = cell.initial_state(1, hidden)
        for n in range(1, steps + 1):
            state = cell.advance(cell.project(torch.zeros(1, 1).double()), state, ())
            if n == begin:  # this h is the one that is varied
                past = state[2].view(1, -1, 5)
                past = torch.cat((past[:, :-1], hidden.view(1, 1, 5)), dim=1)
                context = past.mean(1)
                mixed = cell.attention.combine(hidden.view(1, 5), context)
                state = (hidden.view(1, 5), mixed, past.flatten(1), state[3])
        return state[1][0]

    found = torch.autograd.functional.jacobian(end, torch.zeros(5).double())
    expected = [uniform_attention_gradient(v, steps, begin=begin, mix=mix)[-1] for v in real]
    np.testing.assert_allclose(found.diagonal()[:3], np.real(expected), atol=1e-10)
    pair = uniform_attention_gradient(turning, steps, begin=begin, mix=mix)[-1]
    np.testing.assert_allclose(found[3, 3], pair.real, atol=1e-10)
    np.testing.assert_allclose(found[4, 3], pair.imag, atol=1e-10)


@pytest.mark.parametrize("mix", ["sum", "half"])
@pytest.mark.parametrize("eigenvalue", [0.9, 0.6, 0.5, 0.2, -0.5, 0.9j, 0.5 + 0.5j])
def test_the_recursion_is_a_power_of_the_length(mix, eigenvalue):
    # The larger the exponent, the later the power shows itself.
    first = 14 if attention_exponent(eigenvalue, mix=mix) > 1 else 8
    sizes = np.abs(uniform_attention_gradient(eigenvalue, 2 ** (first + 4), mix=mix))
    at = 2 ** np.arange(first, first + 5)
    slope = np.polyfit(np.log(at), np.log(sizes[at - 1]), 1)[0]
    assert abs(slope - attention_exponent(eigenvalue, mix=mix)) < 0.02


def test_the_half_never_grows_where_the_sum_does():
    assert attention_exponent(0.9, mix="sum") == pytest.approx(8)
    for angle in np.linspace(0, math.pi, 50):
        for size in (0.3, 0.9, 1.0):
            assert attention_exponent(size * np.exp(1j * angle), mix="half") <= 1e-12
    with pytest.raises(OptionError, match="infinite"):
        attention_exponent(1.0, mix="sum")


def test_attention_is_read_from_networks_with_memory():
    torch.manual_seed(0)
    net = undamped.RelLSTM(2, 6, num_layers=2, recent=3, kept=2)
    x = torch.randn(20, 4, 2)
    found = attention_of(net, x)
    assert len(found) == 2
    for one in found:
        assert one.weights.shape == (20, 20)
        np.testing.assert_allclose(one.weights.sum(1), 1, rtol=1e-5)
        assert not np.triu(one.weights, 1).any()
        assert one.weights[19, 17:].all()  # the recent ones
    whole = attention_of(undamped.MemRNN(2, 6), x)[0]
    np.testing.assert_allclose(whole.weights.sum(1), 1, rtol=1e-5)
    assert (whole.weights[-1] > 0).all()
    assert net(x)[0].shape == (20, 4, 6)  # nothing is left behind
    sparse = attention_of(undamped.SAB(2, 6, keep_every=4, top=2), x)[0]
    assert not sparse.weights[:4].any()  # nothing is remembered yet
    np.testing.assert_allclose(sparse.weights[4:].sum(1), 1, rtol=1e-5)
    assert set(np.flatnonzero(sparse.weights[-1])) <= {3, 7, 11, 15}


def test_kept_steps_are_those_of_the_state():
    torch.manual_seed(0)
    net = undamped.SequenceModel("relrnn", 2, 1, hidden_size=6, recent=3, kept=2)
    x = torch.randn(30, 4, 2)
    kept = kept_steps(net, x)
    with torch.no_grad():
        output, state = net.network(x)
    there = state[-3][0, 0].view(2, 6)
    torch.testing.assert_close(there, output[kept.kept[-1], 0])
    assert len(kept.last) == 2 and "2 steps are kept" in kept.sentence
    assert kept_steps(net, x[:2]).sentence.startswith("Nothing has left")
    with pytest.raises(OptionError, match="relrnn"):
        kept_steps(undamped.LSTM(2, 3), x)
