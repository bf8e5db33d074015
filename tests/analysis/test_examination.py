"""The doctor: planted defects are named with their place, healthy models have no finding."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import undamped
from undamped._base.errors import OptionError, ShapeError
from undamped.analysis.examination.rules import RULES
from undamped.lab.benchmarks import doctor as benchmark
from undamped.lab.benchmarks.planted import Program, body, healthy, late, noise, planted
from undamped.lab.benchmarks.planted_later import later_defects


def test_planted_defects_are_named_with_their_place():
    torch.manual_seed(0)
    cases = list(planted())
    assert len({case.name for case in cases}) >= 40
    assert len({case.architecture for case in cases}) >= 4
    assert {case.rule for case in cases} == {rule.name for rule in RULES}
    helps = []
    for case in cases[::5]:
        diagnosis = undamped.doctor(case.model, case.inputs, **case.options)
        finding = next((f for f in diagnosis.findings if f.rule == case.rule), None)
        assert finding is not None, (case.architecture, case.name, str(diagnosis))
        assert finding.module in case.modules, (case.architecture, case.name, finding.module)
        helps += [] if finding.trial is None else [finding.trial.helps]
    assert sum(helps) >= 0.8 * len(helps)


def test_healthy_models_have_no_finding():
    torch.manual_seed(0)
    cases = list(healthy())
    assert len(cases) >= 40
    some = [case for case in cases if case.architecture != "undamped"]
    alarms = [
        (case.name, case.architecture, diagnosis)
        for case in some[::2]
        if (diagnosis := undamped.doctor(case.model, case.inputs, **case.options)).findings
    ]
    assert not alarms


def test_the_model_is_not_changed():
    torch.manual_seed(0)
    model = Program(body("gru"), "last").train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    undamped.doctor(model, noise(), targets=torch.randint(3, (6,)), learning_rate=1e-9)
    assert model.training and all(p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert type(model.body.layer) is nn.GRU and not model.body.layer._forward_hooks


class Forgetful(nn.Module):
    """A loop that detaches its state, and a softmax before the cross entropy."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.LSTMCell(2, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = c = torch.zeros(len(x), 8)
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h.detach(), c.detach()))
        return self.head(h).softmax(-1)


def test_a_finding_says_what_where_and_what_helps():
    torch.manual_seed(0)
    x, targets = torch.randn(8, 20, 2), torch.randint(3, (8,))
    diagnosis = undamped.doctor(Forgetful(), x, targets=targets, batch_first=True)
    state, loss = diagnosis.findings
    assert (state.rule, state.module, state.step, state.certain) == ("detached", "cell", 19, True)
    assert state.trial.helps and (state.trial.before, state.trial.after) == (1, 20)
    assert loss.rule == "two softmaxes" and loss.trial.helps
    data = json.loads(json.dumps(diagnosis.to_dict()))
    assert not data["healthy"] and data["findings"][0]["trial"]["change"].startswith("ignore")
    assert "Tried on a copy: ignore detach() and .data helps (1 to 20)." in str(diagnosis)

    def own_loss(output):
        return nn.functional.nll_loss(output.log(), targets)

    rules = [f.rule for f in undamped.doctor(Forgetful(), x, own_loss, batch_first=True).findings]
    assert rules == ["detached"]


def test_two_causes_are_both_reported_and_consequences_are_not():
    torch.manual_seed(0)
    broken = noise()
    broken[0, 3] = torch.inf
    findings = undamped.doctor(Program(body("gru"), "last"), broken).findings
    assert [f.rule for f in findings] == ["not finite"] and findings[0].module == "inputs"


def test_causality_is_required_by_targets_or_by_the_caller():
    torch.manual_seed(0)
    both = nn.GRU(3, 4, bidirectional=True, batch_first=True)
    x = noise()
    assert not undamped.doctor(both, x).findings
    (finding,) = undamped.doctor(both, x, causal=True).findings
    assert finding.rule == "future" and finding.trial.helps


def test_calls_that_cannot_be_examined_are_refused():
    x = noise()
    with pytest.raises(OptionError, match=r"nn\.Module, got function"):
        undamped.doctor(lambda x: x, x)
    with pytest.raises(ShapeError, match="must be sequences"):
        undamped.doctor(nn.Linear(3, 1), torch.randn(3))
    with pytest.raises(OptionError, match="all arguments of its forward as a tuple"):
        undamped.doctor(nn.Bilinear(3, 3, 1), x)
    with pytest.raises(ShapeError, match="scalar tensor, got"):
        undamped.doctor(nn.GRU(3, 4, batch_first=True), x, lambda output: output[0])
    with pytest.raises(OptionError, match="lazy modules"):
        undamped.doctor(nn.Sequential(nn.LazyLinear(3)), x)
    with pytest.raises(ShapeError, match="At least 3 steps"):
        undamped.doctor(nn.GRU(3, 4, batch_first=True), x[:, :2])
    with pytest.raises(ShapeError, match="has no axis of"):
        undamped.doctor(Summed(), x, batch_first=True)
    with pytest.raises(OptionError, match=r"loss of an output of shape .* cannot be computed"):
        undamped.doctor(nn.Linear(3, 2), x, targets=torch.full((6, 24), 5))


class Summed(nn.Module):
    def forward(self, x):
        return x.sum().reshape(1, 1)


class Elman(nn.Module):
    """A loop without biases, which starts with zeros, over (batch, time, features)."""

    def __init__(self, scale=1.0, between=lambda h: h):
        super().__init__()
        self.inner, self.outer = nn.Linear(2, 8), nn.Linear(8, 8, bias=False)
        self.head, self.between = nn.Linear(8, 3), between
        nn.init.orthogonal_(self.outer.weight, gain=scale)

    def forward(self, x):
        h = x.new_zeros(len(x), 8)
        for u in x.unbind(1):
            h = self.inner(u) + self.outer(self.between(h))
        return {"logits": self.head(h), "state": h}


class Shuffled(nn.Module):
    """Sorts sequences by their lengths, or reshapes where it should transpose."""

    def __init__(self, reshape=False):
        super().__init__()
        self.rnn, self.reshape = nn.GRU(3, 8), reshape

    def forward(self, x, lengths):
        order = lengths.argsort(descending=True)
        if self.reshape:
            return self.rnn(x.reshape(x.shape[1], x.shape[0], -1))[0][-1]
        x = x[order].transpose(0, 1)
        return self.rnn(nn.utils.rnn.pack_padded_sequence(x, lengths[order]))[1][-1]


def test_a_first_state_of_zeros_and_outputs_in_a_dictionary_are_read():
    torch.manual_seed(0)
    x, targets = torch.randn(6, 20, 2), torch.randint(3, (6,))

    def loss(output, targets):
        return nn.functional.cross_entropy(output["logits"], targets)

    cases = {"": Elman(), "detached": Elman(between=torch.Tensor.detach), "growing": Elman(3.0)}
    for name, model in cases.items():
        findings = undamped.doctor(model, x, loss, targets=targets).findings
        rules = [finding.rule for finding in findings]
        assert rules == {"": [], "growing": ["exploding gradient"]}.get(name, [name])


class Episodes(nn.Module):
    """Starts anew where an episode is over."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(3, 8)

    def forward(self, x, over):
        h, outputs = x.new_zeros(len(x), 8), []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h * (1 - over[:, t : t + 1]))
            outputs.append(h)
        return torch.stack(outputs, 1)


def test_the_layout_is_that_of_lengths_and_targets_or_a_trial():
    torch.manual_seed(0)
    assert not undamped.doctor(Episodes(), (noise(), torch.zeros(6, 24))).findings
    x, lengths = noise(), torch.tensor([5, 9, 24, 12, 3, 7])
    for model in (Shuffled(), Shuffled(reshape=True)):
        diagnosis = undamped.doctor(model, (x, lengths), lengths=lengths)
        assert diagnosis.findings[0].rule == "batch mates"
        assert diagnosis.read_as == "read as 24 steps of 6 sequences"


def test_layers_and_losses_of_torch_are_looked_into():
    torch.manual_seed(0)
    names = {
        "no_grad around the layer": ("detached", "body.layer"),
        "state of the first layer is read": ("unused module", "body.layer"),
        "sigmoid before the cross entropy": ("two softmaxes", "forward"),
    }
    for case in late():
        if case.name in names:
            diagnosis = undamped.doctor(case.model, case.inputs, **case.options)
            assert names[case.name] in [(f.rule, f.module) for f in diagnosis.findings]
    both = nn.LSTM(3, 4, 2, bidirectional=True, batch_first=True)
    (finding,) = undamped.doctor(both, noise(), causal=True).findings
    assert finding.trial.helps


def test_hooks_quantised_and_accelerated_modules_are_examined():
    torch.manual_seed(0)
    model = Program(body("lstm"), "last")
    model.head.register_forward_hook(lambda module, inputs, output: output * 1.0)
    undamped.accelerate(model)
    assert not undamped.doctor(model, noise()).findings


def test_the_benchmark_counts_what_was_named():
    result = benchmark.run(quick=True)
    data = json.loads(json.dumps(result.to_dict()))
    outcomes = [record for record in data["records"] if record["rule"]]
    rows = data["tables"][0]["rows"]
    assert sum(int(row[1]) for row in rows) == len(outcomes)
    assert sum(int(row[3]) for row in rows) == sum(o["named"] for o in outcomes)
    assert any(o["split"] == "planted after that" for o in outcomes) and len(list(late())) >= 12
    assert all(o["seconds"] < 60 for o in data["records"])
    assert "Healthy models" in result.markdown()


FILE = """
import torch
from torch import nn

def build():
    return nn.Sequential(Last(), nn.Linear(8, 3))

class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(2, 8, batch_first=True)
    def forward(self, x):
        return self.layer(x)[0][:, {index}]

class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.GRU(2, 3, batch_first=True)
    def forward(self, x, lengths, weights):
        steps = torch.arange(x.shape[1]) < lengths[:, None]
        return (self.layer(x)[0] * (steps * weights).unsqueeze(-1)).sum(1)

def number():
    return 3

def broken():
    raise ValueError("no weights")
"""


@pytest.fixture
def doctor(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command on arrays, and returns code, output and errors."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)

    def run(words, index=-1, **arrays):
        (tmp_path / "model.py").write_text(FILE.replace("{index}", str(index)))
        np.savez("batch.npz", **{"inputs": rng.normal(size=(6, 12, 2)), **arrays})
        monkeypatch.setattr("sys.argv", ["undamped", "doctor", *words.split()])
        with pytest.raises(SystemExit) as stop:
            from undamped.lab.cli import main

            main()
        captured = capsys.readouterr()
        return stop.value.code or 0, captured.out, captured.err

    return run


def test_the_command_prints_findings_and_sets_the_exit_code(doctor):
    targets = np.arange(6) % 3
    code, out, _ = doctor("model.py:build --data batch.npz", targets=targets)
    assert (code, out) == (0, "Nothing wrong was measured (read as 12 steps of 6 sequences).\n")
    code, out, _ = doctor("model.py:build --data batch.npz --json", 0, targets=targets)
    (finding,) = json.loads(out)["findings"]
    assert code == 1 and finding["rule"] == "reads first step" and finding["trial"]["helps"]


def test_arrays_are_arguments_by_name_and_the_page_shows_the_findings(doctor, tmp_path):
    arrays = {"lengths": np.array([12, 3, 5, 12, 7, 9]), "weights": np.ones((6, 12))}
    code, out, _ = doctor("model.py:Masked --data batch.npz --out page.html", **arrays)
    assert code == 0 and out.endswith("Page: page.html\n")
    code, _, err = doctor("model.py:build --data batch.npz", weights=np.ones(6))
    assert code == 2 and "The arrays do not fit the forward of Sequential" in err
    assert doctor("model.py:build --data batch.npz --out page.html", 0)[0] == 1
    page = (tmp_path / "page.html").read_text()
    assert "reads first step" in page and "Tried on a copy" in page and "Dark" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nosuch.py:build --data batch.npz", "No such file: nosuch.py"),
        ("model.py:nothing --data batch.npz", "has no function 'nothing'"),
        ("model.py:number --data batch.npz", "must return an nn.Module, got int"),
        ("model.py:broken --data batch.npz", "cannot be built: ValueError: no weights"),
        ("model.py:build --data nosuch.npz", "No such file: nosuch.npz"),
        ("model.py:build --data model.py", "it is damaged or not a NumPy file"),
    ],
)
def test_bad_words_are_refused(doctor, words, message):
    code, _, err = doctor(words)
    assert code == 2 and message in err and "Traceback" not in err


def test_arrays_of_any_number_format_are_read(doctor):
    inputs = np.random.default_rng(0).normal(size=(6, 12, 2))
    for kind in (">f4", np.longdouble, np.float16):
        np.savez("other.npz", inputs=inputs.astype(kind))
        assert doctor("model.py:build --data other.npz")[0] in (0, 1)


def test_arrays_must_be_named(doctor, tmp_path):
    code, _, err = doctor("model.py:build --data other.npz", extra=np.zeros(3))
    assert code == 2
    np.savez("other.npz", x=np.zeros((6, 12, 2)))
    code, _, err = doctor("model.py:build --data other.npz")
    assert code == 2 and "needs an array named inputs, but contains x" in err


WIDENED = (
    "embedding without gradient",
    "functional dropout of 0.95",
    "vectors of zeros normalised",
)


@pytest.mark.parametrize("name", WIDENED)
def test_defects_in_functions_and_frozen_modules_are_named(name):
    torch.manual_seed(0)
    case = next(case for case in later_defects() if case.name == name)
    diagnosis = undamped.doctor(case.model, case.inputs, **case.options)
    assert [(f.rule, f.module in case.modules) for f in diagnosis.findings] == [(case.rule, True)]
