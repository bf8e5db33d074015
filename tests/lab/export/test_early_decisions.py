"""Early decisions: the stopping rule, the stream that follows it, and what is refused."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from undamped._base.errors import DataError, OptionError, RunError, UndampedError
from undamped.lab import cli
from undamped.lab.benchmarks.early_decisions import cylinder_bell_funnel_task, measure
from undamped.lab.data.recordings.series import SeriesSet
from undamped.lab.export import subject_of
from undamped.lab.export.live import LiveModel
from undamped.lab.tasks.series import SeriesTask
from undamped.lab.training import Run, fit
from undamped.lab.training.early_answers import FILE, labelled_series, stopping_rule
from undamped.lab.training.stopping import (
    MOST_LOSS,
    Decisions,
    EarlyAnswers,
    StoppingRule,
    choose_rule,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    task = cylinder_bell_funnel_task(120, 150, seed=0, noise=0.3)
    return fit(
        "bank",
        task,
        model_options={"oscillators": 100},
        out=tmp_path_factory.mktemp("runs"),
        progress=False,
    )


def stream(path, text, *words):
    result = CliRunner().invoke(cli.app, ["stream", str(path), "--decide", *words], input=text)
    if isinstance(result.exception, UndampedError):
        return 2, "", str(result.exception)
    return result.exit_code, result.stdout, result.stderr


def lines(samples):
    return "".join(f"{value!r}\n" for value in np.asarray(samples)[:, 0].tolist())


def by_hand(rule, probabilities):
    """The index of the checkpoint that decides, one after the other."""
    for index, row in enumerate(probabilities):
        repeated = index > 0 and row.argmax() == probabilities[index - 1].argmax()
        speaks = index >= rule.first and row.max() >= rule.threshold
        if speaks and (rule.repeats == 1 or repeated):
            return index
    return len(probabilities) - 1


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_rule_decides_at_the_same_checkpoint_at_once_and_step_by_step(repeats):
    probabilities = np.random.default_rng(0).dirichlet(np.ones(3), size=(50, 5))
    rule = StoppingRule((2, 4, 6, 8, 10), 1, 0.7, repeats)
    indices = rule.decided_at(probabilities)
    for row, index in zip(probabilities, indices.tolist(), strict=True):
        assert index == by_hand(rule, row)
        decisions = Decisions(rule)
        for samples, values in zip(rule.checkpoints, row, strict=True):
            if decisions.remaining(samples - 1) == 1:
                decisions.take(samples, values)
        assert decisions.sample == rule.checkpoints[index]
        assert decisions.label == row[index].argmax()


def test_the_rule_is_the_earliest_that_costs_no_accuracy():
    """Half of the series are clear at the second checkpoint, the others at the fourth."""
    probabilities = np.full((100, 5, 2), 0.5)
    targets = np.arange(100) % 2
    for row, target in enumerate(targets):
        clear = 1 if row < 50 else 3
        probabilities[row, :clear] = (0.55, 0.45)
        probabilities[row, clear:] = np.eye(2)[target] * 0.8 + 0.1
    lengths = np.full(100, 10)
    answers = EarlyAnswers(np.arange(2, 11, 2), probabilities, targets, targets, lengths)
    rule = choose_rule(answers)
    scores = rule.score(answers)
    assert scores.accuracy == scores.full_accuracy == 1 and 0.55 < rule.threshold <= 0.9
    assert scores.fraction == pytest.approx((4 + 8) / 2 / 10)
    assert scores.harmonic_mean == pytest.approx(2 * 0.4 / 1.4)


def test_accuracy_and_share_on_new_series(run):
    result = measure("cylinder-bell-funnel", run)
    assert result.decided >= result.accuracy - MOST_LOSS and result.accuracy > 0.9
    assert result.fraction <= 0.6 and result.met
    stored = stopping_rule(run)
    assert stored.scores.fraction <= 0.6 and stored.scores.series == 120
    assert [round(fraction, 1) for fraction, _, _ in stored.calibration()] == [0.1, 0.2, 0.5, 1.0]


def test_the_decision_is_null_and_then_stays(run, tmp_path):
    rule = stopping_rule(run).rule
    samples = labelled_series(run.task(), "test")[0].samples
    live, block = (LiveModel(subject_of(run), rule) for _ in range(2))
    decisions = []
    for count, row in enumerate(samples, start=1):
        live.push(row)
        decisions.append(live.answer()["decision"])
        if count == 20:  # a stored state continues
            live.save_state(tmp_path / "state")
            live = LiveModel(subject_of(run), rule)
            live.load_state(tmp_path / "state")
    index = next(at for at, decision in enumerate(decisions) if decision is not None)
    assert 0 < index < len(samples) - 1 and decisions[index]["sample"] == index + 1
    assert all(decision == decisions[index] for decision in decisions[index:])
    block.push(samples)
    assert block.answer()["decision"] == decisions[index]
    block.reset()
    block.push(samples[:1])
    assert not block.decided and block.answer()["decision"] is None and block.steps == 1


def test_on_the_command_line(run):
    rule = stopping_rule(run).rule
    first, second = (row.samples for row in labelled_series(run.task(), "test")[:2])
    code, out, message = stream(run.path, lines(first) + "\n" + lines(second))
    assert code == 0 and f"of {rule.checkpoints[-1]} samples" in message
    answers = out.splitlines()
    assert len(answers) == 2 * len(first)
    for part, name in ((answers[: len(first)], "cylinder"), (answers[len(first) :], "bell")):
        early = part.count("too early")
        assert part[:early] == ["too early"] * early and 0 < early < len(first)
        assert len(set(part[early:])) == 1 and part[-1].startswith(name)
        assert part[-1].endswith(f" {early + 1}")
    code, out, _ = stream(run.path, lines(first), "--json", "--every", "1000")
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["step"] for row in rows] == [rows[0]["decision"]["sample"], len(first)]
    assert rows[0]["decision"] == rows[1]["decision"]


def test_a_damaged_rule_is_refused(run):
    stopping_rule(run)
    path = run.path / FILE
    content = path.read_bytes()
    try:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(RunError, match="checksum"):
            stopping_rule(run)
        code, _, message = stream(run.path, "1\n")
        assert code == 2 and FILE in message
    finally:
        path.write_bytes(content)


def test_a_network_is_examined_on_the_validation_split(tmp_path):
    options = {"steps": 2, "batch_size": 8}
    trained = fit(
        "gru",
        cylinder_bell_funnel_task(60, 6, seed=0, steps=32),
        model_options={"hidden_size": 4},
        train=options,
        out=tmp_path,
        progress=False,
    )
    messages = []
    chosen = stopping_rule(trained, messages.append)
    assert len(messages) == 1 and chosen.rule.checkpoints[-1] == 32
    assert chosen.scores.accuracy >= chosen.scores.full_accuracy - MOST_LOSS
    assert stopping_rule(Run.open(trained.path), messages.append).rule == chosen.rule
    assert len(messages) == 1  # it was stored


def test_what_cannot_decide_is_refused(tmp_path):
    random = np.random.default_rng(0)
    series = [random.normal(size=(20, 1)) for _ in range(24)]
    numbers = SeriesTask(SeriesSet.of(series, [float(row.mean()) for row in series]))
    classes = SeriesTask(SeriesSet.of(series, ["a", "b"] * 12))
    small = {"oscillators": 20}
    regression = fit("bank", numbers, model_options=small, out=tmp_path, progress=False)
    with pytest.raises(OptionError, match="one class per series"):
        stopping_rule(regression)
    whole = fit("dtw", classes, out=tmp_path, progress=False)
    with pytest.raises(OptionError, match="reads whole sequences"):
        stopping_rule(whole)
    for refused in (regression, whole):
        code, out, message = stream(refused.path, "1\n")
        assert code == 2 and not out and message.count("\n") == 0
    assert not list(tmp_path.glob(f"*/{FILE}"))
    few = SeriesTask(SeriesSet.of(series[:6], ["a", "b"] * 3))
    with pytest.raises(DataError, match="validation series"):
        stopping_rule(fit("bank", few, model_options=small, out=tmp_path, progress=False))
