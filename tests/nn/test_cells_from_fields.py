"""Cells that come from an equation: one step of a solver on its field is one step of the cell."""

import pytest
import torch
from recurrent_fields import AntisymmetricField, CoRNNField, UnICORNNField, step_of

from undamped.nn.cornn import CoRNNCell
from undamped.nn.euler import AntisymmetricRNNCell
from undamped.nn.unicornn import UnICORNNCell

INPUTS, HIDDEN, BATCH, LENGTH = 3, 5, 4, 12


def antisymmetric():
    cell = AntisymmetricRNNCell(INPUTS, HIDDEN, step=0.1, diffusion=0.03)

    def field(drive):
        # The cell keeps A = W − Wᵀ itself; half of it is one of the W that give it.
        return AntisymmetricField(cell.weight / 2, cell.diffusion, drive)

    return cell, field, cell.step, "euler"


def cornn():
    cell = CoRNNCell(INPUTS, HIDDEN, dt=0.1)

    def field(drive):
        return CoRNNField(*cell.recurrent_matrices(), cell.gamma, cell.epsilon, drive)

    return cell, field, cell.dt, "symplectic-euler"


def unicornn():
    cell = UnICORNNCell(INPUTS, HIDDEN, dt=0.2, alpha=1.3)

    def field(drive):
        return UnICORNNField(cell.weight, cell.alpha, torch.sigmoid(cell.step_logit), drive)

    return cell, field, cell.dt, "symplectic-euler"


@pytest.mark.parametrize("make", [antisymmetric, cornn, unicornn])
def test_a_cell_is_its_field_and_a_solver(make):
    torch.manual_seed(0)
    cell, field, step, method = make()
    cell.double()
    x = torch.randn(LENGTH, BATCH, INPUTS, dtype=torch.float64)
    parts = 1 if method == "euler" else 2
    begin = torch.randn(BATCH, parts * HIDDEN, dtype=torch.float64)
    drives, constants = cell.project(x), cell.constants()
    state, flowed, apart = begin.chunk(parts, dim=-1), begin, []
    for drive in drives:
        state = cell.advance(drive, state, constants)
        flowed = step_of(field(drive), flowed, step, method)
        apart.append(float((torch.cat(state, dim=-1) - flowed).detach().abs().max()))
    assert max(apart) < 1e-13
    # The same function has the same gradient, with respect to all parameters of the cell.
    parameters = [p for p in cell.parameters() if p.requires_grad]
    expected = torch.autograd.grad(torch.cat(state, -1).sin().sum(), parameters, retain_graph=True)
    result = torch.autograd.grad(flowed.sin().sum(), parameters)
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("make", [antisymmetric, cornn, unicornn])
def test_the_fused_scan_of_the_cell_agrees_too(make):
    torch.manual_seed(1)
    cell, field, step, method = make()
    cell.double()
    x = torch.randn(LENGTH, BATCH, INPUTS, dtype=torch.float64)
    parts = 1 if method == "euler" else 2
    begin = torch.randn(BATCH, parts * HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        output, _ = cell.scan(x, begin.chunk(parts, dim=-1))
        flowed, expected = begin, []
        for drive in cell.project(x):
            flowed = step_of(field(drive), flowed, step, method)
            expected.append(flowed[:, :HIDDEN])
    torch.testing.assert_close(output, torch.stack(expected), rtol=1e-10, atol=1e-11)
