"""The lecture's analysis, checked; and the comparison of gradients."""

import itertools
import re
from pathlib import Path

import pytest
import torch

import undamped
from undamped._base.errors import DataError, OptionError
from undamped.analysis import (
    adjoint_decay,
    compare_field_gradients,
    compare_gradients,
    compare_stiffness,
    eigenvalue_pairs,
    ode_gradients,
)
from undamped.analysis.stiffness import heavy_ball_matrix, stiffness
from undamped.ode.fields import PerceptronField

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "continuous.md").read_text(encoding="utf-8")


def spectrum(sign):
    generator = torch.Generator().manual_seed(0)
    rates = sign * torch.tensor([1.0, 3.0, 10.0, 50.0], dtype=torch.float64)
    q, _ = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))
    return q @ torch.diag(rates) @ q.T


@pytest.mark.parametrize("sign", [1, -1])
def test_without_damping_the_stiffness_is_the_root(sign):
    matrix = spectrum(sign)
    result = compare_stiffness(matrix, [0.0])
    assert abs(result.stiffness_first_order - 50) < 1e-9
    assert abs(result.stiffness_second_order[0] - result.root) < 1e-8


def test_light_damping_of_a_stable_field_changes_nothing():
    result = compare_stiffness(spectrum(-1), [0.0, 0.5, 1.0, 1.9])  # 2√1 = 2
    for value in result.stiffness_second_order:
        assert abs(value - result.root) < 1e-6


@pytest.mark.parametrize("sign", [1, -1])
def test_the_inequality_of_the_lecture_points_the_other_way_under_damping(sign):
    # |c₁ c₂| = |λ| for each pair, hence S(B) ≥ √S(A) whatever the damping.
    result = compare_stiffness(spectrum(sign), [0.0, 0.5, 1.0, 3.0, 8.0])
    assert all(value >= result.root * (1 - 1e-9) for value in result.stiffness_second_order)
    assert result.stiffness_second_order[-1] > 1.5 * result.root
    if sign == 1:
        assert all(b > a for a, b in itertools.pairwise(result.stiffness_second_order))


def test_eigenvalues_of_the_adjoint_come_in_pairs():
    torch.manual_seed(1)
    jacobian = torch.randn(5, 5, dtype=torch.float64)
    gamma, span = 0.3, 2.5
    pairs = eigenvalue_pairs(jacobian, gamma, span)
    t_minus_T = -span
    assert torch.allclose(pairs.sum(1), torch.full((5,), t_minus_T * gamma, dtype=pairs.dtype))
    # and they are the eigenvalues of −M, M = (t − T)[[0, I], [F, −γI]]
    direct = torch.linalg.eigvals(-t_minus_T * heavy_ball_matrix(jacobian, gamma))
    for value in pairs.reshape(-1):
        assert float((direct - value).abs().min()) < 1e-8
    # so in every pair one real part is at least −γ(T − t)/2
    assert bool((pairs.real.amax(1) >= -gamma * span / 2 - 1e-12).all())


def test_the_adjoint_of_a_node_vanishes_and_that_of_a_heavy_ball_does_not():
    torch.manual_seed(0)

    class Contracting(torch.nn.Module):
        def forward(self, t, h):
            return -torch.tanh(h)

    result = adjoint_decay(Contracting(), 0.1 * torch.randn(4, 3).double(), [1.0, 12.0])
    assert result.first_order[-1] < 1e-4
    assert result.second_order[-1] > 0.1
    assert set(result.to_dict()) == {"times", "first_order", "second_order"}
    assert len(result.plot().data) == 2
    assert len(compare_stiffness(spectrum(1), [0.0, 1.0]).plot().data) == 3


@pytest.mark.parametrize("gamma", [0.0, 1.0, 2.0])
def test_the_adjoint_of_a_heavy_ball_of_any_damping(gamma):
    """Of a linear force it is the transposed exponential of its matrix."""

    class Linear(torch.nn.Module):
        def forward(self, t, h):
            return -h

    result = adjoint_decay(Linear(), torch.ones(1, 1).double(), [2.0], gamma=gamma)
    matrix = heavy_ball_matrix(-torch.eye(1).double(), gamma)
    pull = torch.ones(2).double()
    left = torch.linalg.matrix_exp(2 * matrix).T @ pull
    assert result.second_order[0] == pytest.approx(float(left.norm() / pull.norm()), rel=1e-5)
    with pytest.raises(OptionError, match="gamma"):
        adjoint_decay(Linear(), torch.ones(1, 1), [2.0], gamma=-1.0)


def test_the_pictures_of_the_page_are_drawn():
    """The lines of docs/continuous.md, up to showing them."""
    (code,) = re.findall(
        r"^```python\n(import torch\nfrom undamped.analysis.*?)^```", PAGE, re.M | re.S
    )
    code = re.sub(r"range\(1, 21\)", "range(1, 3)", code)
    drawn = re.sub(r"^(\w.*\.plot\(\))\.show\(\)$", r"figures.append(\1)", code, flags=re.M)
    space = {"figures": [], "__name__": "page"}
    exec(compile(drawn, "continuous.md", "exec"), space)
    stiff, decay = space["figures"]
    assert [line.name for line in stiff.data] == [
        "S(B), second order",
        "S(A), first order",
        "√S(A)",
    ]
    assert min(stiff.data[0].y) == pytest.approx(stiff.data[2].y[0])
    assert [line.name for line in decay.data] == ["NODE", "HBNODE"]
    for name in ("stiffness-damping", "adjoint-decay"):
        assert f"images/{name}.svg" in PAGE and (DOCS / "images" / f"{name}.svg").is_file()


def test_a_singular_matrix_has_no_stiffness():
    with pytest.raises(DataError, match="singular"):
        stiffness(torch.zeros(2, 2))


def test_the_four_ways_are_compared():
    torch.manual_seed(0)
    field = PerceptronField(3, 16)
    result = compare_field_gradients(field, torch.randn(8, 3), [0.0, 1.0], repetitions=1)
    assert [way.name for way in result.ways.values()] == [
        "checkpoint",
        "backprop",
        "adjoint",
        "reversible",
    ]
    for way in result.ways.values():
        assert way.error < 1e-3 and way.seconds > 0 and way.evaluations > 0
    assert result["checkpoint"].saved_bytes < result["backprop"].saved_bytes
    assert result["checkpoint"].error == pytest.approx(result["backprop"].error, rel=0.2, abs=1e-6)
    assert len(result.plot().data[0].x) == 4 and "adjoint" in result.to_dict()["ways"]


def test_the_four_ways_with_fixed_steps():
    field, state = PerceptronField(3, 16), torch.randn(8, 3)
    for method in ("rk4", "dopri5"):
        result = compare_field_gradients(
            field, state, [0.0, 1.0], method=method, step_size=0.1, repetitions=1
        )
        assert not result.refused and all(way.error < 1e-3 for way in result.ways.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "inputs"),
    [
        (undamped.models.HBNODE(2, 3, tolerance=1e-5), (6, 2)),
        (undamped.models.DepthVariantNODE(2, 2, basis="stacked", terms=2, tolerance=1e-5), (6, 2)),
        (undamped.models.RKNet(2, 2, steps=12), (6, 2)),
        (undamped.models.ConvNODE(64, 10, hidden_size=4, tolerance=1e-5), (2, 64)),
        (undamped.models.FFJORD(2, hidden_size=8), (6, 2)),
    ],
    ids=["hbnode", "stacked", "rk-net", "conv-node", "ffjord"],
)
def test_the_four_ways_of_whole_models(model, inputs):
    torch.manual_seed(0)
    x = torch.randn(inputs)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    model(x)  # a model that has been used can be copied
    result = compare_gradients(model, x, repetitions=1)
    assert not result.refused
    for (
        way
    ) in result.ways.values():  # rectifiers have kinks, where a gradient is known to fewer digits
        assert way.error < 1e-2 and way.answer_error < 1e-3
    assert result["reversible"].method == "mccallum-foster"
    assert result["checkpoint"].saved_bytes < result["backprop"].saved_bytes
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_wrong_way_would_show(monkeypatch):
    """A gradient that is off by a tenth is seen as such, not compared with itself."""
    model = undamped.models.NODE(2, 2, tolerance=1e-6)
    honest = ode_gradients._gradient

    def off(probe, inputs, measure):
        answer, result, kept = honest(probe, inputs, measure)
        wrong = probe.flow.gradient == "adjoint"
        return answer, [1.1 * g if wrong else g for g in result], kept

    monkeypatch.setattr(ode_gradients, "_gradient", off)
    result = compare_gradients(model, torch.randn(4, 2), repetitions=1)
    assert result["adjoint"].error == pytest.approx(0.1, rel=1e-2)
    assert result["backprop"].error < 1e-4


def test_a_way_that_cannot_go_says_why():
    model = undamped.models.DataControlledNODE(2, 2, adaptive_depth=True)
    result = compare_gradients(model, torch.randn(4, 2), repetitions=1)
    assert [way.name for way in result.ways.values()] == ["checkpoint", "backprop", "adjoint"]
    assert "A step size per sample needs" in result.refused["reversible"]
    with pytest.raises(OptionError, match="no ODE of this library"):
        compare_gradients(torch.nn.Linear(2, 2), torch.randn(4, 2))
