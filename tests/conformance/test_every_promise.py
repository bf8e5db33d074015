"""Every promise of every member, measured; and none made in words alone."""

import importlib
import inspect
import pkgutil

import pytest
import torch
from member_groups import CELLS, OF_VECTORS, STAMPED, WHOLE, small_whole

import undamped
import undamped.lab.report
from undamped._base.docstrings import sections
from undamped._base.options import options_of
from undamped._base.promises import Kind, Promise
from undamped._base.registry import models, solvers
from undamped.analysis import measure

OTHERS = [*OF_VECTORS, *WHOLE, *STAMPED]
MOTIONS = [{"hidden_size": 4, "motion": m} for m in ("constant", "bounded", "isospectral")]
VARIANTS = {
    "stable-residual": [
        {"kind": kind}
        for kind in ("antisymmetric", "midpoint", "verlet", "leapfrog", "hamiltonian", "two-layer")
    ],
    "hbnode": [{}, {"general": True}],
    "conv-hbnode": [{}, {"general": True}],
    "depth-variant-node": [{"basis": basis} for basis in ("fourier", "stacked", "piecewise")],
    "data-controlled-node": [{}, {"adaptive_depth": True}],
    "corelnet": [
        {},
        {"matrix": "full", "temperature": 8.0},
        {"similarity": "asymmetric", "scaling": "dimension"},
        {"similarity": "asymmetric-before", "encoder": "frozen"},
        {"rows": "raw", "scaling": "cosine"},
        {"sensory": True},
    ],
    "esbn": [{}, {"sensory": True}, {"l1": 0.1, "normalisation": "segments"}],
    "antisymmetric-node": MOTIONS,
    "linear-antisymmetric-node": [*MOTIONS, {"method": "cayley", "hidden_size": 4}],
    "odetoode": [
        {"form": form, "matrix_method": method, "hidden_size": 4}
        for form, method in (("gated", "rkmk4"), ("isospectral", "cayley"))
    ],
    "ffjord": [{}, {"context_size": 3}, {"bottleneck_size": 1}],
    "modes-rnn": [{}, {"damped": True}],
    "hnn": [
        {},
        {"method": "leapfrog", "step_size": 0.1},
        {"method": "implicit-midpoint", "step_size": 0.1},
    ],
    "lnn": [{}, {"masses": "learned"}],
    "srnn": [{}, {"method": "yoshida4"}, {"method": "rk4"}],
    "symoden": [{}, {"friction": True}],
    "sympnet": [{}, {"kind": "LA"}, {"conditioned": True}],
}


OF_ONE_CLASS = {
    "MomentumRNN": "nn/test_cell_properties.py",
    "MomentumRNNCell": "nn/test_cell_properties.py",
    "IncrementalRNN": "nn/test_cell_properties.py",
    "IncrementalRNNCell": "nn/test_cell_properties.py",
    "RelRNN": "nn/test_cell_properties.py",
    "RelRNNCell": "nn/test_cell_properties.py",
    "RelLSTM": "nn/test_cell_properties.py",
    "RelLSTMCell": "nn/test_cell_properties.py",
    "GRUODEBayes": "models/test_irregular_networks.py",
    "HyperSolver": "ode/test_hypersolver.py",
}
"""Classes that only state properties of their own, and the file that tests these."""


def build(name, **options):
    if name in WHOLE:
        return small_whole(name, **options)
    known = options_of(models[name])
    expected = {"input_size": 9 if "colours" in known else 2, "output_size": 2}
    if name in STAMPED:
        expected["hidden_size"] = 6
    return undamped.build(name, **{k: v for k, v in expected.items() if k in known}, **options)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", [name for name in CELLS if models[name].cell_class.promises])
def test_promises_of_cells_are_kept(name, seed):
    torch.manual_seed(seed)
    net = undamped.build(name, input_size=3, hidden_size=6)
    for result in measure(net.cell(0), seed=seed):
        assert result.holds, result.to_dict()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"), [(name, o) for name in OTHERS for o in VARIANTS.get(name, [{}])]
)
def test_promises_of_other_models_are_kept(name, options):
    torch.manual_seed(0)
    model = build(name, **options)
    result = measure(model)
    assert [m.promise for m in result] == list(model.promises)
    for each in result:
        assert each.holds, each.to_dict()


@pytest.mark.parametrize("name", [name for name in solvers if solvers[name].promises])
def test_promises_of_solvers_are_kept(name):
    options = [{"base": base} for base in ("midpoint", "rk4")] if name == "hyper" else []
    for each in [{}, *options]:
        for result in measure(solvers[name](**each)):
            assert result.holds, result.to_dict()


def test_a_method_that_only_turns_fast_modes_around_would_not_pass():
    method = solvers["gauss4"]()
    method.promises = solvers["radau5"].promises
    assert broken(method) == ["l-stable"]
    method = solvers["rk4"]()
    method.promises = solvers["gauss4"].promises
    assert broken(method) == ["a-stable"]


def classes():
    result = {}
    for module in pkgutil.walk_packages(undamped.__path__, "undamped."):
        if module.name.split(".")[1] in ("nn", "ode", "models"):
            for each in vars(importlib.import_module(module.name)).values():
                if inspect.isclass(each) and each.__module__.startswith("undamped."):
                    result[f"{each.__module__}.{each.__qualname__}"] = each
    return result


def test_a_promise_in_words_is_declared_too():
    in_words = {}
    for name, each in classes().items():
        output = sections(each).get("Promise", "") if vars(each).get("__doc__") else ""
        if output and not output.startswith("None"):
            in_words[name] = getattr(getattr(each, "cell_class", each), "promises", ())
    assert len(in_words) > 30
    undeclared = {name for name, declared in in_words.items() if not declared}
    assert {name.rpartition(".")[2] for name in undeclared} == set(OF_ONE_CLASS)


def test_every_model_says_what_it_promises():
    assert not [name for name in models if not sections(models[name]).get("Promise")]
    for name in models:
        declared = getattr(getattr(models[name], "cell_class", models[name]), "promises", ())
        says_none = sections(models[name])["Promise"].startswith("None")
        stated = bool(declared) or models[name].__name__ in OF_ONE_CLASS
        assert stated != says_none, name


def test_every_kind_is_declared_by_several_classes():
    """A property of one class is a test of that class; see `undamped._base.promises`."""
    owners = {kind: set() for kind in Kind}
    for entry in (*(models[name] for name in models), *(solvers[name] for name in solvers)):
        for promise in getattr(getattr(entry, "cell_class", entry), "promises", ()):
            owners[promise.kind].add(entry)
    for name, variants in VARIANTS.items():  # some promises depend on options
        for options in variants:
            for promise in build(name, **options).promises:
                owners[promise.kind].add(models[name])
    assert not [kind for kind, entries in owners.items() if len(entries) < 2]


def test_whoever_promises_offers_what_is_measured():
    class Boaster(torch.nn.Linear):
        promises = (Promise(Kind.BOUNDED_STATE, "states stay small"),)

    with pytest.raises(TypeError, match=r"Boaster promises bounded-state but lacks state_bound"):
        measure(Boaster(2, 2))


def broken(model):
    return [m.promise.kind.value for m in measure(model) if not m.holds]


def test_a_force_on_the_momentum_would_not_pass(monkeypatch):
    torch.manual_seed(0)
    model = undamped.models.GHBNODE(2, 2)
    plain = type(model.flow.field).forward

    def pushed(self, t, state):
        return plain(self, t, state) + 0.3 * state

    monkeypatch.setattr(type(model.flow.field), "forward", pushed)
    assert broken(model) == ["paired-spectrum", "volume-rate", "bounded-velocity"]


def test_a_flow_that_forgets_would_not_pass(monkeypatch):
    model = undamped.models.NODE(2, 2)
    carry = type(model).carry
    monkeypatch.setattr(
        type(model), "carry", lambda self, state, given=None: carry(self, state).relu()
    )
    assert broken(model) == ["invertible-flow"]


@pytest.mark.parametrize("name", ["corelnet", "corelnet-t", "esbn"])
def test_an_answer_that_peeks_at_the_pictures_would_not_pass(name, monkeypatch):
    torch.manual_seed(0)
    model = build(name)
    plain = type(model).decide

    def peeking(self, codes):
        return plain(self, codes) + 1e-3 * codes.mean((0, 2)).unsqueeze(1)

    monkeypatch.setattr(type(model), "decide", peeking)
    assert broken(model) == ["relations-alone"]
    assert not build(name, sensory=True).promises


def test_large_states_are_measured_as_far_as_their_jacobians_are_small():
    kinds = [m.promise.kind.value for m in measure(undamped.models.HBNODE(200, 2, hidden_size=8))]
    assert kinds == ["invertible-flow"]


def test_a_broken_promise_is_noticed():
    cell = undamped.nn.RNNOrth(3, 6).cell(0)
    cell.weight_hh.data.mul_(1.1)
    kept = {m.promise.kind.value: m.holds for m in measure(cell)}
    assert kept == {"bounded-step-gradient": True, "starts-isometric": False}


def test_a_damped_oscillator_would_not_pass(monkeypatch):
    cell = undamped.nn.UnICORNN(3, 6).cell(0)
    advance = type(cell).advance

    def damped(self, projected, state, constants):
        position, velocity = advance(self, projected, state, constants)
        return position, 0.99 * velocity

    monkeypatch.setattr(type(cell), "advance", damped)
    kept = {m.promise.kind.value: m.holds for m in measure(cell)}
    assert not kept["invertible"] and not kept["volume-preserving"] and not kept["symplectic"]


def test_diagnose_prints_claim_and_measurement_of_a_continuous_model():
    report = undamped.lab.report.diagnose(
        undamped.models.HBNODE(2, 2), torch.randn(4, 2), measured=["promises"]
    )
    rows = report.results["promises"].rows
    assert [row[-1] for row in rows] == ["✓ holds"] * 3
    assert rows[1][0] == "Jacobian eigenvalues come in pairs of sum −γ"
