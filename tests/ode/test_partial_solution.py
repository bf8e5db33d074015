"""odeint returns what was reached if it is asked to, and says why it stopped."""

import pytest
import torch

import undamped
from undamped._base.errors import OptionError, SolveError
from undamped.ode import PartialSolutionWarning


def explode(t, y):
    """Reach infinity at t = 1: y = 1/(1 − t)."""
    return y**2


def test_values_up_to_the_stop_are_returned_with_the_diagnosis():
    y0 = torch.ones(1, dtype=torch.float64, requires_grad=True)
    t = torch.tensor([0.0, 0.5, 0.9, 2.0], dtype=torch.float64)
    with pytest.raises(SolveError) as error:
        undamped.odeint(explode, y0, t)
    with pytest.warns(PartialSolutionWarning) as records:
        values = undamped.odeint(explode, y0, t, on_failure="partial")
    assert str(records[0].message) == str(error.value)
    expected = 1 / (1 - t[:3])
    assert torch.allclose(values[:3, 0], expected) and values[3].isnan().all()
    values[1].sum().backward()
    assert torch.allclose(y0.grad, torch.tensor([4.0], dtype=torch.float64))  # (1 − t)⁻²


def test_a_complete_solution_has_no_warning():
    t = torch.linspace(0, 0.5, 3)
    values = undamped.odeint(explode, torch.ones(2), t, on_failure="partial")
    assert values.isfinite().all()


def test_what_cannot_be_partial_is_refused():
    arguments = explode, torch.ones(1), torch.tensor([0.0, 1.0])
    with pytest.raises(OptionError, match="goes neither with event_fn"):
        undamped.odeint(*arguments, event_fn=lambda t, y: y - 2, on_failure="partial")
    with pytest.raises(OptionError, match="on_failure"):
        undamped.odeint(*arguments, on_failure="ignore")
