"""Promises about systems that move: energies, power, phase space, masses, constraints."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from undamped._base.promises import HasConstraints, HasMass, HasMotion, HasPhaseStep
from undamped.analysis.promises.result import Result

SAMPLES = 64
STEPS = 4
EXACT = 1e-12
"""How far from zero, relative to what was added up, rounding may lead."""


def _slopes(function: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """Return the gradient of a function (batch,) of states (batch, size), by autograd."""
    with torch.enable_grad():
        leaf = states.detach().requires_grad_()
        (found,) = torch.autograd.grad(function(leaf).sum(), leaf)
    return found


def _gained(
    model: HasMotion, generator: torch.Generator, *, driven: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return how fast the energy of random states grows, the power supplied, and the scale."""
    states, u = model.example_states(SAMPLES, generator)
    given = u if driven and u.shape[-1] else None
    with torch.no_grad():
        rates = model.derivative(states, given)
        supplied = model.supplied(states, given)
    slope = _slopes(model.energy, states)
    scale = slope.norm(dim=-1) * rates.norm(dim=-1) + supplied.abs()
    return (slope * rates).sum(-1), supplied, scale.clamp_min(torch.finfo(scale.dtype).tiny)


def measure_kept_energy(model: HasMotion, generator: torch.Generator) -> Result:
    """Compare ∇E · f with zero, at random states without inputs."""
    gained, _, scale = _gained(model, generator, driven=False)
    return (gained.abs() / scale).max().item(), EXACT, "largest |∇E·f| / (|∇E| |f|)"


def measure_power_balance(model: HasMotion, generator: torch.Generator) -> Result:
    """Compare ∇E · f with the power that random inputs supply."""
    gained, supplied, scale = _gained(model, generator, driven=True)
    worst = ((gained - supplied).abs() / scale).max().item()
    return worst, EXACT, "largest |dE/dt − yᵀu| / (|∇E| |f|)"


def measure_passive(model: HasMotion, generator: torch.Generator) -> Result:
    """See whether the energy ever grows by more than the power supplied."""
    gained, supplied, scale = _gained(model, generator, driven=True)
    worst = ((gained - supplied) / scale).max().item()
    return worst, EXACT, "largest (dE/dt − yᵀu) / (|∇E| |f|)"


def measure_divergence_free(model: HasMotion, generator: torch.Generator) -> Result:
    """Compare the trace of the field's Jacobian with zero."""
    states, _ = model.example_states(STEPS, generator)
    worst = 0.0
    for state in states:
        jacobian = torch.autograd.functional.jacobian(model.derivative, state.unsqueeze(0))
        assert isinstance(jacobian, Tensor)
        square = jacobian.reshape(len(state), len(state))
        worst = max(worst, (square.trace().abs() / square.norm()).nan_to_num().item())
    return worst, EXACT, "largest |tr ∂f/∂z| / |∂f/∂z|"


def measure_symplectic_step(model: HasPhaseStep, generator: torch.Generator) -> Result:
    """Compare DᵀJD with J for the Jacobian D of a step."""
    states = model.phase_states(STEPS, generator)
    size = states.shape[-1] // 2
    zero, one = torch.zeros(size, size).to(states), torch.eye(size).to(states)
    form = torch.cat([torch.cat([zero, one], 1), torch.cat([-one, zero], 1)])
    worst = 0.0
    for state in states:
        found = torch.autograd.functional.jacobian(model.phase_step, state.unsqueeze(0))
        assert isinstance(found, Tensor)
        jacobian = found.reshape(2 * size, 2 * size)
        worst = max(worst, (jacobian.T @ form @ jacobian - form).abs().max().item())
    return worst, 1e-10, "largest entry of |DᵀJD − J| of a step"


@torch.no_grad()
def measure_positive_mass(model: HasMass, generator: torch.Generator) -> Result:
    """Look at the smallest eigenvalue of the matrix at random states."""
    states, _ = model.example_states(SAMPLES, generator)
    matrices = model.mass_matrix(states)
    uneven = (matrices - matrices.mT).abs().max().item()
    if uneven > EXACT * matrices.abs().max().item():
        return uneven, 0.0, "largest entry of |M − Mᵀ|, which is to be zero"
    lowest = torch.linalg.eigvalsh(matrices).min().item()
    short = max(0.0, model.smallest_mass - lowest)
    return short, 1e-9 * model.smallest_mass, "how far an eigenvalue lies below its bound"


def measure_kept_constraints(model: HasConstraints, generator: torch.Generator) -> Result:
    """Compare the rates of change of constraints with zero, at random states and inputs."""
    states, u = model.example_states(SAMPLES, generator)
    with torch.no_grad():
        rates = model.derivative(states, u if u.shape[-1] else None)
    worst = 0.0
    for number in range(model.constraints(states).shape[-1]):
        slope = _slopes(lambda z, k=number: model.constraints(z)[..., k], states)
        scale = (slope.abs() * rates.abs()).sum(-1).clamp_min(torch.finfo(rates.dtype).tiny)
        worst = max(worst, ((slope * rates).sum(-1).abs() / scale).max().item())
    return worst, 1e-10, "largest rate of a constraint over the size of its terms"
