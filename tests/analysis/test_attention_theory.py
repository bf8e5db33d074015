"""Gradients under uniform attention: autograd, the recursion, and the power of the length."""

import math

import numpy as np
import pytest
import torch

import undamped
from undamped._base.errors import OptionError
from undamped.analysis import (
    attention_exponent,
    attention_of,
    sparse_attention_bound,
    sparse_attention_gradient,
    step_drift,
    uniform_attention_gradient,
)
from undamped.nn import Cell


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
    net = undamped.nn.MemRNN(1, len(matrix), mix=mix).double()
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

    result = torch.autograd.functional.jacobian(end, torch.zeros(5).double())
    expected = [uniform_attention_gradient(v, steps, begin=begin, mix=mix)[-1] for v in real]
    np.testing.assert_allclose(result.diagonal()[:3], np.real(expected), atol=1e-10)
    pair = uniform_attention_gradient(turning, steps, begin=begin, mix=mix)[-1]
    np.testing.assert_allclose(result[3, 3], pair.real, atol=1e-10)
    np.testing.assert_allclose(result[4, 3], pair.imag, atol=1e-10)


@pytest.mark.parametrize("mix", ["sum", "half"])
@pytest.mark.parametrize("eigenvalue", [0.9, 0.6, 0.5, 0.2, -0.5, 0.9j, 0.5 + 0.5j])
def test_the_recursion_is_a_power_of_the_length(mix, eigenvalue):
    # The larger the exponent, the later the power shows itself.
    first = 14 if attention_exponent(eigenvalue, mix=mix) > 1 else 8
    sizes = np.abs(uniform_attention_gradient(eigenvalue, 2 ** (first + 4), mix=mix))
    at = 2 ** np.arange(first, first + 5)
    slope = np.polyfit(np.log(at), np.log(sizes[at - 1]), 1)[0]
    assert abs(slope - attention_exponent(eigenvalue, mix=mix)) < 0.02


@pytest.mark.parametrize("mix", ["sum", "half"])
def test_autograd_gives_the_recursion_of_a_few_states(mix):
    """RelRNN with weights that prefer nothing and a linear recurrence."""
    eigenvalues, steps, begin = (0.9, 0.3, -0.7), 16, 2
    net = undamped.nn.RelRNN(1, 3, mix=mix, recent=3, relevant=2).double()
    cell = net.cell(0)
    cell.recurrence = Linear(torch.diag(torch.tensor(eigenvalues, dtype=torch.float64)))
    torch.nn.init.zeros_(cell.attention.score)
    moved = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    state, attended = cell.initial_state(1, moved), []
    held = []  # which steps the slots of the state hold, as the state itself cannot say
    for n in range(1, steps + 1):
        if n == begin:
            drive = moved + torch.ones(1, 3).double()
        else:
            drive = torch.full((1, 3), float(n)).double()
        state = cell.advance(drive, state, ())
        held = [*held, (n, state[0].detach())]
        slots, _, seen = cell.as_slots(state[2:], 1)
        rows = [row for row, there in zip(slots[0], seen[0], strict=True) if there]
        attended.append(
            [next(at for at, h in held if torch.equal(h[0], row.detach())) for row in rows]
        )
    gradient = torch.autograd.grad(state[1].sum(), moved)[0][0]
    expected = [sparse_attention_gradient(v, attended, begin=begin, mix=mix) for v in eigenvalues]
    np.testing.assert_allclose(gradient, [np.real(e[-1]) for e in expected], atol=1e-10)
    # Step 2 is kept (the first ones are, under uniform attention): the chain has no state between.
    assert begin in attended[-1] and max(map(len, attended)) == 5
    assert expected[0][-1].real >= sparse_attention_bound(0.9, 5, 0, mix=mix)


def test_chains_of_attention_bound_the_gradient_where_nothing_cancels():
    for depth in range(1, 6):
        # s_n reads h_{n−4}, which is made from s_{n−5}: the chain ends at step 1.
        steps = range(1, 5 + 5 * depth + 1)
        attended = [[n, n - 4] if n > 4 else [n] for n in steps]
        for mix in ("sum", "half"):
            result = abs(sparse_attention_gradient(0.8, attended, mix=mix)[-1])
            assert result >= sparse_attention_bound(0.8, 2, depth, mix=mix) > 0
    # S₃ = 4λ² + (1 + 4λ²)/2, although s₃ reads h₁ directly.
    cancelling = 1j / math.sqrt(12)
    assert abs(sparse_attention_gradient(cancelling, [[1], [2], [1, 3]], mix="sum")[-1]) < 1e-12
    with pytest.raises(OptionError, match="cancel"):
        sparse_attention_bound(-0.5, 2, 1)


def test_the_half_never_grows_where_the_sum_does():
    assert attention_exponent(0.9, mix="sum") == pytest.approx(8)
    for angle in np.linspace(0, math.pi, 50):
        for size in (0.3, 0.9, 1.0):
            assert attention_exponent(size * np.exp(1j * angle), mix="half") <= 1e-12
    with pytest.raises(OptionError, match="infinite"):
        attention_exponent(1.0, mix="sum")


@pytest.mark.slow
def test_attention_is_read_from_networks_with_memory():
    torch.manual_seed(0)
    net = undamped.nn.RelLSTM(2, 6, num_layers=2, recent=3, relevant=2)
    x = torch.randn(20, 4, 2)
    result = attention_of(net, x)
    assert len(result) == 2
    for one in result:
        assert one.weights.shape == (20, 20)
        np.testing.assert_allclose(one.weights.sum(1), 1, rtol=1e-5)
        assert not np.triu(one.weights, 1).any()
        assert one.weights[19, 17:].all()  # the recent ones
    full = attention_of(undamped.nn.MemRNN(2, 6), x)[0]
    np.testing.assert_allclose(full.weights.sum(1), 1, rtol=1e-5)
    assert (full.weights[-1] > 0).all()
    assert net(x)[0].shape == (20, 4, 6)  # nothing is left behind
    sparse = attention_of(undamped.nn.SAB(2, 6, keep_every=4, top=2), x)[0]
    assert not sparse.weights[:4].any()  # nothing is remembered yet
    np.testing.assert_allclose(sparse.weights[4:].sum(1), 1, rtol=1e-5)
    assert set(np.flatnonzero(sparse.weights[-1])) <= {3, 7, 11, 15}


@pytest.mark.slow
def test_stored_steps_are_those_of_the_state():
    torch.manual_seed(0)
    net = undamped.models.SequenceModel("relrnn", 2, 1, hidden_size=6, recent=3, relevant=2)
    x = torch.randn(30, 4, 2)
    drift = step_drift(net, x)
    with torch.no_grad():
        output, state = net.network(x)
    there = state[-3][0, 0].view(2, 6)
    torch.testing.assert_close(there, output[drift.steps[-1], 0])
    assert len(drift.last) == 2 and "2 steps are stored" in drift.sentence
    assert step_drift(net, x[:2]).sentence.startswith("All steps are still")
    with pytest.raises(OptionError, match="relrnn"):
        step_drift(undamped.nn.LSTM(2, 3), x)
