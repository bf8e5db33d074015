"""Long-range promises of the recurrent family, before and after training."""

import pytest
import torch

import undamped
from undamped.analysis import measure

ISOMETRIC = ["exprnn", "scornn", "ornn", "urnn", "full-capacity-urnn", "eurnn", "goru"]


def train_a_little(net, steps=30):
    optimiser = torch.optim.RMSprop(net.parameters(), lr=1e-3)
    x = torch.randn(8, 4, 3)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = (net(x)[0][-1] - 0.5).square().mean()
        (loss + undamped.nn.penalty(net)).backward()
        optimiser.step()


@pytest.mark.slow
@pytest.mark.parametrize("name", ISOMETRIC)
def test_ten_thousand_linear_steps_keep_the_norm(name):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=16)
    train_a_little(net)
    matrix = net.double().cell(0).recurrent_matrix().detach()
    state = torch.randn(16, dtype=torch.float64).to(matrix.dtype)
    start = state.abs().square().sum().sqrt()
    for _ in range(10_000):
        state = matrix @ state
    # The trained numbers are single precision: 1e-7 a step may add up.
    assert abs(state.abs().square().sum().sqrt() / start - 1) < 5e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*ISOMETRIC, "spectral", "nnrnn", "antisymmetric", "cornn", "indrnn"]
)
def test_promises_hold_after_training(name):
    torch.manual_seed(0)
    net = undamped.build(name, input_size=3, hidden_size=8)
    train_a_little(net)
    for result in measure(net.cell(0)):
        if result.promise.kind.value != "starts-isometric":
            assert result.holds, result.to_dict()


def test_eigenvalues_off_the_circle_are_noticed():
    """A γ above one makes powers grow exponentially, which is no power of t."""
    net = undamped.nn.nnRNN(3, 8).double()
    cell = net.cell(0)
    with torch.no_grad():
        cell.free_parameters()[1].mul_(1.2)
    matrix = cell.recurrent_matrix().detach()
    grown = torch.linalg.matrix_norm(torch.linalg.matrix_power(matrix, 64), 2)
    assert grown > 1.19**64


def test_transients_swell_although_the_spectrum_is_on_the_circle():
    torch.manual_seed(0)
    cell = undamped.nn.nnRNN(3, 8).double().cell(0)
    with torch.no_grad():
        cell.free_parameters()[3].normal_(std=0.5)
    matrix = cell.recurrent_matrix().detach()
    assert torch.linalg.eigvals(matrix).abs().sub(1).abs().max() < 1e-5
    assert torch.linalg.matrix_norm(matrix, 2) > 1.2


def test_an_antisymmetric_cell_with_a_free_matrix_would_not_pass(monkeypatch):
    cell = undamped.nn.AntisymmetricRNN(3, 8).cell(0)
    free = torch.randn(8, 8, dtype=torch.float64)
    monkeypatch.setattr(type(cell), "constants", lambda self: (free,))
    kept = {m.promise.kind.value: m.holds for m in measure(cell)}
    assert not kept["stable-flow"]


@pytest.mark.parametrize("reflections", [4, 16])
def test_inputs_of_an_ornn_reach_as_many_directions_as_it_says(reflections):
    torch.manual_seed(0)
    cell = undamped.nn.oRNN(3, 32, reflections=reflections).double().cell(0)
    matrix, reached = cell.recurrent_matrix().detach(), [cell.input_weight.detach()]
    for _ in range(31):
        reached.append(matrix @ reached[-1])
    assert torch.linalg.matrix_rank(torch.cat(reached, dim=1), rtol=1e-9) == 3 + reflections
