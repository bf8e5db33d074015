"""UnICORNN as physics: steps, energy, volume, the way back."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError
from undamped.analysis import effective_steps, energy_drift, inversion_error, phase_volume
from undamped.analysis.oscillators import hamiltonian


def oscillators(**options):
    torch.manual_seed(0)
    return undamped.nn.UnICORNN(3, 6, num_layers=2, **options).double()


def test_effective_steps():
    net = oscillators(dt=[0.1, 0.4])
    result = effective_steps(net)
    logits = net.cell(1).step_logit.detach().numpy()
    np.testing.assert_allclose(result.steps[1], 0.4 / (1 + np.exp(-logits)))
    np.testing.assert_allclose(result.largest, [0.1, 0.4])
    assert result.spread == pytest.approx((result.largest / result.steps.min(1)).max())
    assert len(result.plot().data) == 2


def test_hamiltonian_has_the_force_as_its_slope():
    cell = oscillators().cell(0)
    with torch.no_grad():
        cell.weight[0] = 0.0
    y, z, p = (torch.randn(4, 6, dtype=torch.float64) for _ in range(3))
    y.requires_grad_()
    z.requires_grad_()
    energy = hamiltonian(cell, p, y, z).sum()
    by_y, by_z = torch.autograd.grad(energy, (y, z))
    torch.testing.assert_close(by_y, cell.force(p, y).detach())
    torch.testing.assert_close(by_z, z)


def test_energy_swings_less_with_a_smaller_step_and_does_not_run_away():
    x = torch.randn(1, 2, 3, dtype=torch.float64)
    coarse = energy_drift(oscillators(dt=0.2), x, steps=800)
    fine = energy_drift(oscillators(dt=0.02), x, steps=800)
    assert coarse.energy.shape == (801, 2)
    # Symplectic Euler is of first order: a tenth of the step, about a tenth of the swing.
    assert (fine.drift < 0.2 * coarse.drift).all()
    early = np.abs(coarse.energy[:400] - coarse.energy[0]).max(0)
    late = np.abs(coarse.energy[400:] - coarse.energy[0]).max(0)
    assert (late < 1.5 * early).all()
    assert coarse.plot().data


def test_the_way_back_is_exact_up_to_rounding():
    x = torch.randn(500, 2, 3, dtype=torch.float64)
    result = inversion_error(oscillators(dt=0.3), x, lengths=(10, 500))
    assert (result.errors < 1e-11).all()
    single = inversion_error(oscillators(dt=0.3).float(), x.float(), lengths=(10, 500))
    assert (single.errors < 1e-2).all()
    assert (single.errors > result.errors).all()
    assert result.plot().data
    json.dumps(result.to_dict(), allow_nan=False)
    with pytest.raises(OptionError, match="length of the inputs"):
        inversion_error(oscillators(), x, lengths=(501,))


def test_phase_volume_is_kept():
    result = phase_volume(oscillators(dt=0.5), torch.randn(50, 2, 3, dtype=torch.float64))
    np.testing.assert_allclose(result.log_volume, 0, atol=1e-12)
    assert result.plot().data


def test_other_networks_are_refused():
    with pytest.raises(OptionError, match="oscillators"):
        effective_steps(nn.LSTM(3, 4))
