"""Training: options that do what they say, runs that can be read again, failures that explain."""

import json
import math
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import orthogonal

from undamped._base.errors import NonFiniteError, OptionError, RunError
from undamped.kernels.shared.threads import flushes_subnormals
from undamped.lab.files import read_tensors, write_text
from undamped.lab.tasks import Adding
from undamped.lab.training import Run, TrainOptions, fit, resume
from undamped.lab.training.checkpoint import load_checkpoint
from undamped.lab.training.optimizers import (
    Schedule,
    constrained_parameters,
    parameter_groups,
)
from undamped.models.sequence_model import SequenceModel

QUICK = {"steps": 6, "batch_size": 8, "validate_every": 3}


class SmallAdding(Adding):
    """Adding with little to validate on."""

    held_out: ClassVar = {"valid": 16, "test": 16}


def quick(tmp_path, model="gru", train=None, task=None, **options):
    return fit(
        model,
        task or SmallAdding(10),
        model_options={"hidden_size": 8, **options},
        train={**QUICK, **(train or {})},
        out=tmp_path,
        progress=False,
    )


def weights(run):
    return read_tensors(run.path / "model.safetensors")[0]


def test_a_run_folder_holds_everything(tmp_path):
    run = fit(
        "unicornn",
        "adding",
        model_options={"hidden_size": 8, "dt": [0.1, 0.2]},
        task_options={"length": 10},
        train={"steps": 4, "batch_size": 16, "validate_every": 2},
        seed=5,
        out=tmp_path,
        progress=False,
        command="undamped train adding",
    )
    assert run.path == tmp_path / "adding-unicornn-1"
    settings = json.loads((run.path / "run.json").read_text())
    assert settings["status"] == "finished" and settings["seed"] == 5
    assert settings["task"] == {"name": "adding", "options": {"length": 10, "seed": 5}}
    assert settings["model"]["options"]["dt"] == [0.1, 0.2]
    assert {"torch", "python", "lightning"} <= set(settings["versions"])
    assert settings["machine"]["cores"] >= 1
    result = settings["result"]
    assert result["steps"] == 4 and result["chance"]["mse"] == pytest.approx(1 / 6)
    rows = run.metrics()
    assert [row["step"] for row in rows] == [2, 4]
    assert {"train_loss", "valid_mse", "gradient_norm", "learning_rate"} <= set(rows[0])
    assert sorted(p.name for p in run.path.iterdir()) == [
        "checkpoints",
        "metrics.csv",
        "model.safetensors",
        "run.json",
    ]
    model = Run.open(run.path).model()
    assert not model.training
    batch = run.task().batch("test", 0, 16)
    assert model(batch.inputs).shape == (16, 1)
    again = fit("unicornn", "adding", model_options={"hidden_size": 8}, task_options={"length": 10},
                train=QUICK, out=tmp_path, progress=False)  # fmt: skip
    assert again.path.name == "adding-unicornn-2"


def test_the_same_seed_gives_the_same_weights_and_another_does_not(tmp_path):
    one, two = quick(tmp_path), quick(tmp_path)
    for name, tensor in weights(one).items():
        assert torch.equal(tensor, weights(two)[name])
    assert one.result["test"] == two.result["test"]
    other = fit("gru", SmallAdding(10), model_options={"hidden_size": 8}, train=QUICK, seed=1,
                out=tmp_path, progress=False)  # fmt: skip
    assert not torch.equal(weights(one)["head.weight"], weights(other)["head.weight"])


def test_fit_leaves_the_callers_random_numbers_alone(tmp_path):
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    quick(tmp_path, train={"steps": 1})
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "nadam", "rmsprop", "sgd", "adagrad"])
def test_every_optimizer_trains_and_resumes(tmp_path, optimizer):
    train = {"optimizer": optimizer, "steps": 4, "validate_every": 2}
    run = quick(tmp_path, train=train, task=Adding(6))
    checkpoint = load_checkpoint(run.checkpoint)
    assert checkpoint.progress.step == 4
    run.update(status="interrupted")
    assert resume(run.path, progress=False).result["test"] == run.result["test"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        {"learning_rate": 0.1},
        {"weight_decay": 0.5},
        {"clip": 1e-3},
        {"schedule": "cosine"},
        {"schedule": "linear"},
        {"schedule": "step", "schedule_every": 2, "schedule_factor": 0.1},
        {"warmup_steps": 5},
        {"beta1": 0.0},
        {"beta2": 0.5},
        {"optimizer": "rmsprop"},
        {"optimizer": "rmsprop", "momentum": 0.9},
        {"optimizer": "rmsprop", "beta2": 0.5},
        {"truncate": 3},
        {"precision": "64-true"},
        {"precision": "bf16-mixed"},
        {"batch_size": 4},
        {"steps": 5},
    ],
    ids=str,
)
def test_every_option_changes_the_weights(tmp_path, change):
    # Validate at the end only, so that the weights compared are the last ones.
    plain = quick(tmp_path, train={"validate_every": 100})
    changed = quick(tmp_path, train={"validate_every": 100, **change})
    assert not torch.equal(
        weights(plain)["head.weight"].double(), weights(changed)["head.weight"].double()
    )


def test_dropout_is_random_but_repeatable(tmp_path):
    one = quick(tmp_path, num_layers=2, dropout=0.5)
    two = quick(tmp_path, num_layers=2, dropout=0.5)
    assert torch.equal(weights(one)["head.weight"], weights(two)["head.weight"])


def test_constrained_matrices_get_the_second_learning_rate():
    class Says(nn.Module):
        """Says itself what is constrained; its other parametrised matrix is not."""

        def __init__(self):
            super().__init__()
            self.matrix = orthogonal(nn.Linear(4, 4))
            self.listed = nn.Parameter(torch.zeros(3))
            self.decayed = nn.Parameter(torch.zeros(3))
            self.free = nn.Parameter(torch.zeros(3))
            self.frozen = nn.Parameter(torch.zeros(3), requires_grad=False)

        def constrained_parameters(self):
            return [self.listed]

        def decayed_parameters(self):
            return {self.decayed: 0.25}

    class Kept(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = orthogonal(nn.Linear(4, 4))
            self.says = Says()

    whole = Kept()
    model = whole.says
    options = TrainOptions(learning_rate=0.1, constrained_learning_rate=0.003, weight_decay=0.5)
    inside = constrained_parameters(whole)
    assert inside == {whole.plain.parametrizations.weight.original, model.listed}
    groups = parameter_groups(whole, options)
    rates = {p: (g["lr"], g["weight_decay"]) for g in groups for p in g["params"]}
    assert rates[model.listed] == (0.003, 0.0)
    assert rates[model.free] == (0.1, 0.5)
    assert rates[model.decayed] == (0.1, 0.25)
    assert model.frozen not in rates
    default = parameter_groups(model, TrainOptions(learning_rate=0.1))
    assert {g["lr"] for g in default} == {0.1, 0.1 / 10}


def test_penalties_and_hooks_of_modules_are_honoured(tmp_path):
    calls = []

    class Held(SequenceModel):
        def penalty(self):
            return 10 * self.head.weight.square().sum()

        def after_optimizer_step(self, step):
            calls.append(step)

    def trained(kind):
        torch.manual_seed(0)
        model = kind("gru", 2, 1, hidden_size=8)
        run = fit(model, SmallAdding(10), train={**QUICK, "learning_rate": 0.02}, out=tmp_path,
                  progress=False)  # fmt: skip
        return weights(run)["head.weight"].norm()

    free, held = trained(SequenceModel), trained(Held)
    assert held < free and calls == list(range(6))


def test_schedules():
    def factors(**options):
        schedule = Schedule(TrainOptions(**options))
        return [schedule.factor(step, step / 10) for step in range(11)]

    assert factors() == [1.0] * 11
    cosine = factors(schedule="cosine")
    assert cosine[0] == 1 and cosine[5] == pytest.approx(0.5) and cosine[10] == pytest.approx(0)
    assert factors(schedule="linear")[3] == pytest.approx(0.7)
    assert factors(schedule="step", schedule_every=4)[8] == 0.25
    assert factors(warmup_steps=5)[:6] == pytest.approx([0.2, 0.4, 0.6, 0.8, 1, 1])
    plateau = Schedule(TrainOptions(schedule="plateau", schedule_every=2))
    for better in (True, False, False, False):
        plateau.record(better)
    assert plateau.factor(0, 0) == 0.5 and plateau.stalled == 1
    other = Schedule(TrainOptions(schedule="plateau", schedule_every=2))
    other.restore(plateau.state())
    assert other.state() == plateau.state()


def test_early_stopping_and_the_best_weights(tmp_path):
    run = quick(
        tmp_path, train={"steps": 100, "patience": 2, "validate_every": 1, "learning_rate": 0.5}
    )
    assert run.result["stopped_early"] and run.result["steps"] < 100
    rows = run.metrics()
    best = min(row["valid_mse"] for row in rows)
    assert run.result["valid"]["mse"] == best
    at = next(row["step"] for row in rows if row["valid_mse"] == best)
    assert run.result["best_step"] == at == rows[-1]["step"] - 2


def test_a_goal_ends_a_training_and_somebody_may_be_told(tmp_path):
    told = []
    run = fit("gru", "adding", model_options={"hidden_size": 4}, task_options={"length": 8},
              train={"steps": 100, "goal": 1e6, "validate_every": 3}, out=tmp_path,
              progress=told.append)  # fmt: skip
    assert run.result["stopped_early"] and run.result["steps"] == 3
    assert run.result["cpu_seconds"] > 0
    assert "loss" in told[0]


def test_budgets(tmp_path):
    run = fit("gru", "digits", model_options={"hidden_size": 4}, task_options={"length": 8},
              train={"epochs": 2, "batch_size": 300}, out=tmp_path, progress=False)  # fmt: skip
    assert run.result["steps"] == 8
    timed = quick(tmp_path, train={"steps": None, "seconds": 0.5, "validate_every": 1000})
    assert timed.result["seconds"] >= 0.5 and timed.result["steps"] > 1
    with pytest.raises(OptionError, match=r"Only one of train\.steps"):
        TrainOptions(steps=3, epochs=2)
    with pytest.raises(OptionError, match=r"Only one of train\.steps"):
        TrainOptions(seconds=3, minutes=2)
    with pytest.raises(OptionError, match="finite data set"):
        quick(tmp_path, train={"steps": None, "epochs": 1})


def test_options_that_contradict_each_other():
    with pytest.raises(OptionError, match="multiple of the 2 processes"):
        TrainOptions(batch_size=5, devices=2)
    with pytest.raises(OptionError, match=r"train\.beta1"):
        TrainOptions(momentum=0.9)
    with pytest.raises(OptionError, match="schedule_every"):
        TrainOptions(schedule="step")
    with pytest.raises(OptionError, match=r"1 with train\.truncate"):
        TrainOptions(accumulate=2, truncate=10)


def test_an_unknown_device_is_one_sentence(tmp_path):
    with pytest.raises(OptionError, match=r"train\.accelerator"):
        quick(tmp_path, train={"accelerator": "hovercraft"})


def test_truncation_of_one_window_is_no_truncation(tmp_path):
    task = {"text": "hello hello hello", "length": 10}

    def trained(**train):
        run = fit("gru", "characters", model_options={"hidden_size": 8}, task_options=task,
                  train={"steps": 5, "validate_every": 100, **train}, out=tmp_path,
                  progress=False)  # fmt: skip
        return weights(run)["head.weight"]

    whole = trained()
    assert torch.allclose(trained(truncate=10), whole, atol=1e-6)
    assert not torch.allclose(trained(truncate=3), whole, atol=1e-6)
    with pytest.raises(OptionError, match="unidirectional"):
        fit("gru", "characters", model_options={"hidden_size": 8, "bidirectional": True},
            task_options=task, train={"steps": 2, "truncate": 3}, out=tmp_path,
            progress=False)  # fmt: skip


def test_truncation_cuts_the_gradient_but_keeps_the_state(tmp_path):
    """With a last-step readout, only the last window learns; the past still counts."""
    run = quick(tmp_path, train={"truncate": 2})
    assert math.isfinite(run.result["test"]["loss"])


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path):
    with pytest.raises(NonFiniteError) as caught:
        quick(tmp_path, "rnn", nonlinearity="relu", train={"steps": 200, "learning_rate": 1e9})
    message = str(caught.value)
    assert "at step " in message and "learning_rate" in message
    assert "network" in message or "head" in message
    run = Run.open(next(tmp_path.glob("*-rnn-1")))
    assert run.settings["status"] == "failed" and "step" in run.settings["error"]
    kept = weights(run)
    assert all(torch.isfinite(tensor).all() for tensor in kept.values())


def test_a_bad_gradient_names_its_layer(tmp_path):
    class Exploding(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad * math.inf

    class Bad(SequenceModel):
        def run(self, batch, state=None):
            prediction, state = super().run(batch, state)
            return prediction + 0 * Exploding.apply(self.head.bias), state

    model = Bad("gru", 2, 1, hidden_size=4)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    with pytest.raises(NonFiniteError, match=r"gradient of head\.bias"):
        fit(model, SmallAdding(10), train=QUICK, out=tmp_path, progress=False)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), "the bad step was not taken"


def test_bad_data_is_named(tmp_path):
    class Broken(SmallAdding):
        def draw(self, size, generator):
            batch = super().draw(size, generator)
            batch.inputs[3, 0, 0] = math.nan
            return batch

    with pytest.raises(NonFiniteError, match="the input data"):
        quick(tmp_path, task=Broken(10))


def test_nothing_is_left_behind_by_bad_options(tmp_path):
    with pytest.raises(OptionError):
        quick(tmp_path / "runs", train={"learning_rate": -1})
    with pytest.raises(OptionError):
        fit("gru", "copy", model_options={"hidden_size": 0}, out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_damaged_runs_are_refused_with_a_sentence(tmp_path):
    run = fit("gru", "adding", model_options={"hidden_size": 4}, task_options={"length": 6},
              train={"steps": 2, "batch_size": 4}, out=tmp_path, progress=False)  # fmt: skip
    run.update(status="interrupted")
    good = run.checkpoint.read_bytes()
    for damage in (b"", good[: len(good) // 2], b"\x80\x04cos\nsystem\n"):
        run.checkpoint.write_bytes(damage)
        with pytest.raises(RunError, match="safetensors"):
            resume(run.path, progress=False)
    (run.path / "model.safetensors").write_bytes(good)
    with pytest.raises(RunError, match="weights of this model"):
        run.model()
    write_text(run.path / "metrics.csv", "step,loss\n1,x\n")
    with pytest.raises(RunError, match=r"metrics\.csv is damaged"):
        run.metrics()
    write_text(run.path / "run.json", '{"format": 99}')
    with pytest.raises(RunError, match="run format"):
        Run.open(run.path)
    write_text(run.path / "run.json", "{")
    with pytest.raises(RunError, match="damaged"):
        Run.open(run.path)
    with pytest.raises(RunError, match="No such run folder"):
        Run.open(tmp_path / "nowhere")


@pytest.mark.process
def test_a_run_in_use_is_not_trained_twice(tmp_path):
    import subprocess
    import sys

    run = quick(tmp_path, task=Adding(6), train={"steps": 2})
    run.update(status="interrupted")
    with run.locked():
        code = (
            "import sys, undamped.lab.tasks; from undamped.lab.training import resume\n"
            "from undamped._base.errors import RunError\n"
            "try: resume(sys.argv[1], progress=False)\n"
            "except RunError as error: print(error)\n"
        )
        said = subprocess.run(
            [sys.executable, "-c", code, str(run.path)], capture_output=True, text=True, check=True
        )
    assert "Another process is training" in said.stdout


def test_tensorboard_log(tmp_path):
    pytest.importorskip("tensorboard")
    run = quick(tmp_path, train={"tensorboard": True})
    assert list((run.path / "tensorboard").glob("events.out.tfevents.*"))


class Counting(nn.Linear):
    """A head that counts, in a buffer and in an attribute."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.calls = 0
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, input):
        self.calls += 1
        self.seen += 1
        return super().forward(input)


def test_the_trial_batch_leaves_the_model_as_it_was(tmp_path):
    from undamped.lab.training.plan import _run_trial_batch

    model = SequenceModel("gru", 2, 1, hidden_size=4)
    model.head = Counting(4, 1)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for precision in ("32-true", "64-true"):
        model.eval()
        _run_trial_batch(model, SmallAdding(10), TrainOptions(steps=1, precision=precision))
        after = model.state_dict()
        assert all(
            torch.equal(after[k], v) and after[k].dtype == v.dtype for k, v in before.items()
        )
        assert model.head.calls == 0
        assert not model.training
        assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))
        assert all(p.grad is None for p in model.network.parameters())


def test_a_model_in_another_number_format_is_refused_and_left_alone(tmp_path):
    model = SequenceModel("gru", 2, 1, hidden_size=4).double()
    with pytest.raises(OptionError, match=r"train\.precision.*float64.*64-true"):
        fit(model, SmallAdding(10), train=QUICK, out=tmp_path, progress=False)
    assert {p.dtype for p in model.parameters()} == {torch.float64}
    assert list(tmp_path.iterdir()) == []
    train = {**QUICK, "precision": "64-true"}
    run = fit(model, SmallAdding(10), train=train, out=tmp_path, progress=False)
    assert run.result is not None


def test_a_run_builds_its_task_once_and_sees_changes_of_run_json(tmp_path):
    task = SmallAdding(10)
    run = quick(tmp_path, task=task)
    assert run.task() is task
    again = Run.open(run.path)
    again.settings["seed"] = "changed in a copy"
    assert again.settings["seed"] == 0
    run.update(note="from another object")
    assert again.settings["note"] == "from another object"
    assert again == run


def test_training_flushes_subnormal_numbers_and_leaves_the_mode_as_it_was(tmp_path):
    modes = []

    class Small(nn.Linear):
        def forward(self, input):
            modes.append(flushes_subnormals())
            return super().forward(input)

    model = SequenceModel("gru", 2, 1, hidden_size=4)
    model.head = Small(4, 1)
    quick(tmp_path, model=model)
    assert all(modes[: QUICK["steps"]]) and not flushes_subnormals()
