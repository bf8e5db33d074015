"""`undamped.testing` accepts what is correct, and says what is wrong with what is broken."""

import pytest
import torch
from torch import nn

import undamped
from undamped._base.registry import models, solvers, tasks
from undamped.extend import Cell, Kind, Promise, RungeKutta
from undamped.lab.tasks import Adding
from undamped.testing import check_cell, check_model, check_solver, check_task


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


def test_correct_models_tasks_and_solvers_pass():
    check_model(models["node"], hidden_size=3)
    check_model(models["gru"])
    check_model(models["hnn"])
    check_task(tasks["copy"], delay=3)
    check_solver(solvers["leapfrog"])


class LeaksBetweenSamples(undamped.models.NODE):
    def forward(self, x):
        return super().forward(x) + x[:1].sum()


class HasNoGradient(undamped.models.NODE):
    def forward(self, x):
        return super().forward(x).detach().requires_grad_()


class BreaksItsFlow(undamped.models.NODE):
    promises = (*undamped.models.NODE.promises, Promise(Kind.VOLUME_RATE, "det = 1"))

    def field_now(self):
        return self.flow.field

    def volume_rate(self, size):
        return torch.tensor(1.0)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (LeaksBetweenSamples, "LeaksBetweenSamples, prediction: another batch order"),
        (HasNoGradient, "HasNoGradient, gradients: no gradients"),
        (BreaksItsFlow, "BreaksItsFlow, promises: volume-rate does not hold"),
    ],
)
def test_a_wrong_model_fails(model, message):
    with pytest.raises(AssertionError, match=message):
        check_model(model, hidden_size=3)


class ChangesItsBatches(Adding):
    calls = 0

    def batch(self, split, index, size):
        ChangesItsBatches.calls += 1
        return super().batch(split, index + ChangesItsBatches.calls, size)


class DeclaresOtherInputs(Adding):
    input_size = 3


class LosesItsLoss(Adding):
    def loss(self, prediction, batch):
        return super().loss(prediction, batch) * torch.nan


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (ChangesItsBatches, "ChangesItsBatches, batches: `inputs` of the same train batch differs"),
        (DeclaresOtherInputs, "DeclaresOtherInputs, shapes: inputs are"),
        (LosesItsLoss, "LosesItsLoss, scores: the train loss is"),
    ],
)
def test_a_wrong_task_fails(task, message):
    with pytest.raises(AssertionError, match=message):
        check_task(task, length=20)


class DeclaresAHighOrder(solvers["midpoint"]):
    order = 3


class DeclaresSymplecticity(solvers["rk4"]):
    symplectic = True


class BreaksItsStability(solvers["rk4"]):
    promises = (Promise(Kind.A_STABLE, "bounded for all steps"),)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (DeclaresAHighOrder, "DeclaresAHighOrder, order: declared 3, measured 1.99"),
        (DeclaresSymplecticity, "DeclaresSymplecticity, symplecticity: declared True"),
        (BreaksItsStability, "BreaksItsStability, promises: a-stable does not hold"),
    ],
)
def test_a_wrong_solver_fails(solver, message):
    assert issubclass(solver, RungeKutta)
    with pytest.raises(AssertionError, match=message):
        check_solver(solver)
