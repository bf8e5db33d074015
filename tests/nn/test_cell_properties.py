"""Properties that one cell alone has, measured: what its docstring states under `Promise:`."""

import pytest
import torch
from torch.autograd.functional import jacobian

import undamped

SEEDS = pytest.mark.parametrize("seed", [0, 1])


def cell_of(name, seed=0, **options):
    torch.manual_seed(seed)
    return undamped.build(name, input_size=3, hidden_size=6, **options).double().cell(0)


def band_error(cell):
    """Return the largest |σ − 1| after a change of all free parameters, as training makes it."""
    with torch.no_grad():
        for parameter in cell.free_parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
        return (torch.linalg.svdvals(cell.recurrent_matrix()) - 1).abs().max().item()


@SEEDS
def test_singular_values_of_spectral_stay_in_their_band(seed):
    assert band_error(cell_of("spectral", seed)) <= 0.01 + 1e-5
    wider = cell_of("spectral", seed, margin=0.05)
    wider.matrix_set.margin = 0.2
    assert band_error(wider) > 0.06


@SEEDS
def test_powers_of_nnrnn_grow_polynomially(seed):
    """With γ = 1 and a random T, ‖Wᵗ‖ grows as a power of t below the number of blocks."""
    cell = cell_of("nnrnn", seed)
    with torch.no_grad():
        _, scales, _, lower = cell.free_parameters()
        scales.fill_(1.0)
        lower.add_(0.2 * torch.randn_like(lower))
        matrix, norms = cell.recurrent_matrix(), []
    for _ in range(12):
        matrix = matrix @ matrix
        norms.append(torch.linalg.matrix_norm(matrix, 2).log2().item())
    assert (norms[-1] - norms[-3]) / 2 <= len(scales) - 1 + 0.1  # between t = 1024 and 4096


@SEEDS
def test_gradients_of_momentum_rnn_vanish_more_slowly_than_without_momentum(seed):
    cell = cell_of("momentum-rnn", seed)
    with torch.no_grad():
        matrix, drive = cell.weight_hh, cell.input_filter
        plain = h = velocity = torch.zeros(6, dtype=torch.float64)
        without = product = torch.eye(6, dtype=torch.float64)
        for push in cell.project(0.1 * torch.randn(50, 3, dtype=torch.float64)):
            plain = torch.tanh(matrix @ plain + drive.step * push)
            without = (1 - plain**2).unsqueeze(1) * matrix @ without
            slope = torch.diag(drive.momentum / (1 - h**2))
            velocity = drive.momentum * velocity + drive.step * push
            h = torch.tanh(matrix @ h + velocity)
            product = (1 - h**2).unsqueeze(1) * (matrix + slope) @ product
    assert torch.linalg.matrix_norm(without, 2) <= torch.linalg.matrix_norm(product, 2)


@SEEDS
def test_the_gradient_of_incremental_at_equilibrium_is_minus_the_identity(seed):
    cell = cell_of("incremental", seed)
    cell.steps = torch.nn.Parameter(torch.full((600,), 0.1, dtype=torch.float64))
    projected = cell.project(torch.randn(1, 3, dtype=torch.float64)).detach()
    state = torch.randn(1, 6, dtype=torch.float64)
    rows = jacobian(lambda h: cell.advance(projected, (h,), cell.constants())[0][0], state)
    assert (rows.squeeze(1) + torch.eye(6)).abs().max() <= 1e-6


def slope_of_score(cell, query, states, valid, index):
    """Return ∂e/∂m of the score e of a stored state m.

    The difference of two log weights is that of two scores, one of which does not depend on m.
    """
    fixed = next(i for i in range(len(states[0])) if valid[0, i] and i != index)

    def difference(m):
        varied = states.index_copy(1, torch.tensor([index]), m.view(1, 1, -1))
        weights = cell.weights(query, varied, valid)[0]
        return weights[index].log() - weights[fixed].log()

    return jacobian(difference, states[0, index])


@SEEDS
@pytest.mark.parametrize("name", ["relrnn", "rellstm"])
@pytest.mark.parametrize("mix", ["half", "sum", "learned"])
def test_stored_states_reach_the_next_step_by_their_attention_weight(name, mix, seed):
    """∂s/∂m = f a (I + (m − c) ∂e/∂mᵀ) for every state m that is still stored after the step."""
    cell = cell_of(name, seed, mix=mix)
    inputs = torch.randn(51, 1, 3, dtype=torch.float64)
    projected, constants = cell.project(inputs), cell.constants()
    state = cell.initial_state(1, inputs)
    with torch.no_grad():
        for projected_t in projected[:-1]:
            state = cell.advance(projected_t, state, constants)
    query, _, memory = cell.split(state)
    slots, scores, occupied = cell.as_slots(memory, 1)
    hidden = state[: len(state) - len(memory)]

    def advanced(slots):
        stored = cell.from_slots(slots, scores, occupied)
        return cell.advance(projected[-1], (*hidden, *stored), constants)

    after = cell.as_slots(cell.split(advanced(slots))[2], 1)
    states, _, valid = (part.detach() for part in after)
    weights = cell.weights(query, states, valid)
    context = (weights.unsqueeze(-1) * states).sum(1)[0]
    gradient = jacobian(lambda slots: advanced(slots)[1][0], slots)
    compared = 0
    for before in range(1, slots.shape[1]):  # the step discards the first slot
        matches = (states[0] == slots[0, before]).all(-1) & (valid[0] != 0)
        if not occupied[0, before] or not matches.any():
            continue
        index = int(matches.nonzero()[0])
        slope = slope_of_score(cell, query, states, valid, index)
        direct = torch.eye(6) + torch.outer(states[0, index] - context, slope)
        reads = weights[0, index] * direct
        factors = {"half": 0.5 * reads, "sum": reads}
        expected = factors[mix] if mix in factors else cell.attention.mixing[:, 6:] @ reads
        assert (gradient[:, 0, before] - expected).abs().max() <= 1e-9
        compared += 1
    assert compared > 2
