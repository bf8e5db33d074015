"""What a batch may carry goes through fit, evaluate, resume, predict and reports untouched."""

import json

import pytest
import torch
from registries import isolate
from toy_members import (
    BrightQuarter,
    DecayingModel,
    FieldModel,
    LateRamp,
    NumberedQuarter,
    PictureModel,
    Spring,
    SpringSlopes,
)
from typer.testing import CliRunner

from undamped._base.contract import NO_TARGETS, Batch, Clock, StateSpace, TaskShape
from undamped._base.errors import OptionError, ShapeError
from undamped._base.registry import LIBRARY, models, tasks
from undamped.analysis import gradient_flow
from undamped.lab import cli
from undamped.lab.tasks import optional
from undamped.lab.tasks.task import known_answers
from undamped.lab.training import Run, fit
from undamped.lab.training.evaluation import evaluate
from undamped.models import SequenceModel
from undamped.models.for_task import check_options, model_for

QUICK = {"steps": 40, "batch_size": 8, "learning_rate": 0.03, "validate_every": 20}
TOYS = {
    "toy-quarter": BrightQuarter,
    "toy-numbered": NumberedQuarter,
    "toy-ramp": LateRamp,
    "toy-spring": Spring,
    "toy-slopes": SpringSlopes,
}
TOY_MODELS = {
    "toy-pictures": PictureModel,
    "toy-decaying": DecayingModel,
    "toy-field": FieldModel,
}


@pytest.fixture
def toys(monkeypatch):
    """Enter the toys into the registries, for one test."""
    for registry, members in ((tasks, TOYS), (models, TOY_MODELS)):
        isolate(monkeypatch, registry)
        registry._entries.update(members)
        registry._sources.update(dict.fromkeys(members, LIBRARY))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "model"),
    [
        ("toy-quarter", "toy-pictures"),
        ("toy-numbered", "toy-pictures"),
        ("toy-ramp", "toy-decaying"),
        ("toy-ramp", "gru"),
        ("toy-ramp", "unicornn"),
        ("toy-spring", "toy-field"),
        ("toy-slopes", "node"),
    ],
)
def test_every_kind_of_task_is_learnt_loaded_and_predicted(toys, tmp_path, task, model):
    options = {} if model == "toy-field" else {"hidden_size": 8}
    run = fit(model, task, model_options=options, train=QUICK, out=tmp_path, progress=False)
    toy = TOYS[task]()
    assert run.result is not None
    fresh = model_for(toy.task_shape, model, check_options(model, options))
    assert run.result["test"]["loss"] < evaluate(fresh, toy, "test", 8).loss
    # The shape of the task is in the run, so the model can be built again without the data.
    repeated = Run.open(run.path)
    assert TaskShape.from_dict(repeated.settings["model"]["shape"]) == toy.task_shape
    scores = evaluate(repeated.model(), toy, "test", 8)
    assert scores.loss == pytest.approx(run.result["test"]["loss"], rel=1e-6)
    output = CliRunner().invoke(cli.app, ["predict", str(run.path), "--json"])
    assert output.exit_code == 0, output.output
    examples = json.loads(output.stdout)["examples"]
    assert len(examples) == 8 and {"answer", "truth"} == set(examples[0])


@pytest.mark.parametrize(
    ("task", "model", "said"),
    [
        (BrightQuarter, "lstm", r"this task has sequences of pictures"),
        (Spring, "node", r"cannot use the times of the targets"),
        (Spring, "lstm", r"this task has single"),
        (SpringSlopes, "ffjord", r"predicts a density, and this task needs a number"),
        (SpringSlopes, "toy-field", r"predicts a trajectory, and this task needs a number"),
        (LateRamp, "toy-pictures", r"this task has sequences of vectors"),
        (LateRamp, "node", r"reads single vectors, and the input is a sequence"),
    ],
)
def test_a_model_that_does_not_fit_says_so_before_training(toys, tmp_path, task, model, said):
    with pytest.raises(OptionError, match=said):
        fit(model, task(), train=QUICK, out=tmp_path, progress=False)
    assert not list(tmp_path.iterdir())


def test_a_recurrent_network_sees_gaps_and_what_was_measured():
    batch = LateRamp().batch("train", 0, 3)
    model = SequenceModel("lstm", 2, 1, reads=("times", "observed"), hidden_size=4)
    seen = model.encode(batch)
    assert seen.shape == (7, 3, 5) and bool(seen.isfinite().all())
    values, observed, gap = seen[..., :2], seen[..., 2:4], seen[..., 4]
    assert torch.equal(observed.bool(), batch.observed)
    assert torch.equal(values[batch.observed], batch.inputs[batch.observed])
    for t, b, c in (~batch.observed).nonzero().tolist():  # the first ones are all observed
        assert values[t, b, c] == values[t - 1, b, c]
    since = torch.diff(batch.times, dim=0, prepend=batch.times[:1])
    running = torch.arange(7).unsqueeze(1) < batch.lengths
    torch.testing.assert_close(gap, torch.log1p(since * running))
    # One sample at a time gives the same answer.
    state, answer = None, None
    for t in range(7):
        answer, state = model.step(batch.inputs[t], state, since[t], observed=batch.observed[t])
    torch.testing.assert_close(answer, model(batch._replace(lengths=None)))


def test_a_recurrent_network_answers_at_given_times_from_what_it_knew_then():
    batch = LateRamp().batch("train", 0, 3)
    model = SequenceModel(
        "lstm", 2, 1, reads=("times", "observed", "target_times"), hidden_size=4, gap=0.7
    ).double()
    asked = torch.tensor([[0.0] * 3, [1.9] * 3, [99.0] * 3], dtype=torch.float64)
    full = batch._replace(target_times=asked)
    answers = model(full)
    assert answers.shape == (3, 3, 1)
    outputs, _ = model.network(model.encode(batch), None, batch.lengths)
    for b in range(3):
        timestamps = batch.times[: batch.lengths[b], b].double()
        last = int((timestamps <= 1.9).sum()) - 1
        for row, known, since in ((1, last, 1.9 - timestamps[last]), (2, -1, 99 - timestamps[-1])):
            features = outputs[len(timestamps) - 1 if known < 0 else known, b]
            ago = torch.log1p(since / 0.7).view(1)
            hidden = torch.tanh(model.head.hidden(torch.cat([features, ago])))
            torch.testing.assert_close(answers[row, b], model.head.readout(hidden))
    # Before the first sample nothing is known, whoever is asked.
    assert torch.equal(answers[0, 0], answers[0, 1])
    late = full._replace(inputs=torch.where(batch.times.unsqueeze(-1) > 1.9, 7.0, batch.inputs))
    torch.testing.assert_close(model(late)[:2], answers[:2])
    # A stream looks ahead from its last sample.
    state, output = None, None
    for t in range(3):
        since = batch.times[t] - (batch.times[t - 1] if t else batch.times[0])
        output, state = model.step(
            batch.inputs[t].double(),
            state,
            since.double(),
            observed=batch.observed[t],
            offsets=torch.tensor([0.3, 2.0]),
        )
    short = batch.during(slice(0, 3), every=False)._replace(lengths=None)
    ahead = short.times[-1] + torch.tensor([[0.3], [2.0]])
    torch.testing.assert_close(
        output, model(short._replace(target_times=ahead)), rtol=1e-5, atol=1e-6
    )


def test_a_model_without_its_times_is_refused():
    model = SequenceModel("lstm", 2, 1, reads=("times",), hidden_size=4)
    with pytest.raises(ShapeError, match=r"batch\.times is None"):
        model(torch.randn(3, 2, 2))
    plain = SequenceModel("lstm", 2, 1, hidden_size=4)
    with pytest.raises(ShapeError, match=r"does not read batch\.times"):
        plain(Batch(torch.randn(3, 2, 2), times=torch.ones(3, 2)))


def test_instruments_read_batches():
    batch = LateRamp().batch("train", 0, 3)
    model = SequenceModel("lstm", 2, 1, reads=("times", "observed"), hidden_size=4)
    assert gradient_flow(model, batch).length == 7


def test_only_known_answers_count():
    task, batch = Spring(), Spring().batch("train", 0, 4)
    prediction = torch.zeros(5, 4, 2)
    known = batch.targets[batch.target_mask]
    assert torch.equal(known_answers(prediction, batch)[1], known)
    assert task.loss(prediction, batch).item() == pytest.approx(known.square().mean().item())
    assert task.answers(batch) == known.numel() < prediction.numel()


TASKS = [BrightQuarter(), NumberedQuarter(), LateRamp(), Spring(), SpringSlopes()]


@pytest.mark.parametrize("task", TASKS)
def test_a_batch_is_shared_among_processes_sample_by_sample(task):
    batch = task.batch("train", 0, 4)
    parts = [optional.shard(task, batch, rank, 2) for rank in range(2)]
    for name, full in batch._asdict().items():
        if full is None:
            assert all(getattr(part, name) is None for part in parts)
            continue
        if name == "distinct":
            assert all(part.distinct is full for part in parts)
            continue
        axis = full.shape.index(4) if name != "inputs" else int(task.sequential)
        for rank, part in enumerate(parts):
            expected = full.movedim(axis, 0)[rank::2].movedim(0, axis)
            assert torch.equal(getattr(part, name).nan_to_num(7), expected.nan_to_num(7)), name


def test_a_batch_moves_and_casts_as_a_whole():
    batch = Spring().batch("train", 0, 4)
    double = batch.cast(torch.float64)
    assert double.inputs.dtype == double.target_times.dtype == torch.float64
    assert double.targets.dtype == torch.float32 and double.target_mask.dtype == torch.bool
    assert Batch(torch.ones(2)).targets is NO_TARGETS
    assert batch.to(torch.device("meta")).target_times.device.type == "meta"


def test_numbered_inputs_are_the_same_inputs():
    torch.manual_seed(0)
    task = NumberedQuarter()
    model = PictureModel(task.task_shape).double()
    batch = task.batch("train", 0, 7).cast(torch.float64)
    plain = batch.expanded()
    assert plain.inputs.shape == (5, 7, 2, 4, 4) and plain.distinct is None
    gradients = []
    for one in (batch, plain):
        loss = task.loss(model(one), one)
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(model(batch), model(plain))
    torch.testing.assert_close(*gradients)


def test_each_of_the_numbered_inputs_is_seen_once():
    batch, seen = NumberedQuarter().batch("train", 0, 7), []
    numbered = batch._replace(inputs=batch.inputs.clamp_min(4))

    def look(pictures):
        seen.append(len(pictures))
        return pictures.sum((1, 2, 3))

    for one in (batch, numbered, batch.during(slice(1, 2), every=False)):
        torch.testing.assert_close(one.each_input(look), one.expanded().each_input(look))
    assert seen[1::2] == [35, 35, 7] and seen[0] <= 6 and seen[2] == 2 and seen[4] <= 4


def test_a_clock_is_stored_with_the_shape():
    shape = TaskShape(2, 1, clock=Clock(0.05, 5.0), horizon=3)
    assert TaskShape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape
    with pytest.raises(OptionError, match="a gap and a span > 0, got 0 and 1"):
        Clock(gap=0.0)


def test_a_model_may_have_an_objective_of_its_own(toys, tmp_path):
    class Doubtful(DecayingModel):
        def objective(self, batch, loss, state=None):
            aim = super().objective(batch, loss, state)
            return aim._replace(total=aim.total * 0 + self.rate.square().sum())

    task = LateRamp()
    model = Doubtful(task.task_shape)
    with torch.no_grad():
        model.rate.fill_(1.0)
    run = fit(model, task, train=QUICK, out=tmp_path, progress=False)
    # What it wants small is small; what is reported is the task's loss, as for any model.
    assert model.rate.detach().square().sum().item() < 4 < 8
    rows = run.metrics()
    assert rows[-1]["train_loss"] > 0.1 and rows[-1]["valid_loss"] > 0.1


def test_a_state_space_says_what_its_coordinates_are():
    space = StateSpace(("θ", "x", "p"), ("angle", "position", "momentum"), inputs=("u",))
    assert space.indices("angle", "position") == (0, 1) and space.size == 3
    assert StateSpace.from_dict(json.loads(json.dumps(space.to_dict()))) == space
    with pytest.raises(OptionError, match="one kind for each coordinate, got 2 names and 1 kinds"):
        StateSpace(("q", "p"), ("position",))


def test_sequences_that_are_all_alike_say_how_long_they_are():
    shape = NumberedQuarter().task_shape
    assert (shape.segments, shape.length) == ((5,), 5)
    assert TaskShape.from_dict(json.loads(json.dumps(shape.to_dict()))) == shape
    assert BrightQuarter().task_shape.length is None


def test_shapes_of_older_runs_are_read():
    stored = {"input_size": 2, "output_size": 0, "input_kind": "vectors", "readout": "last"}
    assert TaskShape.from_dict({**stored, "sequential": False}).answer == "density"
