"""Tasks of events: what models without memory can know, shown for every task."""

import math

import numpy as np
import pytest
import torch

import undamped
from undamped._base.errors import OptionError
from undamped.lab.baselines import linear_memory
from undamped.lab.tasks import build

EVENTS = [
    "last-event",
    "first-event",
    "event-before-last",
    "event-order",
    "flags",
    "cups",
    "event-at-position",
    "next-event",
    "first-is-last",
    "last-value",
    "prefix-depth",
]
every = pytest.mark.parametrize("name", EVENTS)


def events_of(task, batch):
    """Return the marked symbols in their order (events, sequences), and their times."""
    symbols, marks = batch.inputs[..., : task.symbols].argmax(-1), batch.inputs[..., task.symbols]
    times = marks.T.nonzero()[:, 1].view(batch.inputs.shape[1], -1).T
    return symbols.gather(0, times), times


@every
def test_answers_depend_on_the_order_alone(name):
    """Every sequence has the same events, so order-free features are alike in all classes."""
    task = build(name)
    batch = task.test_tasks()["256 steps"].batch("test", 0, 200)
    events, _ = events_of(task, batch)
    assert (events.sort(0).values == task.multiset.sort().values.unsqueeze(1)).all()
    assert len(batch.targets.unique()) == task.output_size


@every
def test_the_second_half_does_not_know_the_answer(name):
    """Symbols after the events are drawn independently of them: a window there has chance."""
    task = build(name)
    batch = task.test_tasks()["1024 steps"].batch("test", 0, 384)
    _, times = events_of(task, batch)
    assert times.max() < 512
    symbols = batch.inputs[512:, :, : task.symbols]
    for answer in batch.targets.unique():
        own = symbols[:, batch.targets == answer]
        count = own.shape[0] * own.shape[1]
        error = 5 * (1 / task.symbols / count) ** 0.5
        assert (own.mean((0, 1)) - 1 / task.symbols).abs().max() < error


@every
def test_chance_is_the_commonest_answer(name):
    task = build(name)
    batch = task.test_tasks()["256 steps"].batch("test", 0, 384)
    queries = (
        batch.inputs[-1, :, task.symbols + 1 :].argmax(-1) if task.queries else torch.zeros(384)
    )
    best = sum(torch.bincount(batch.targets[queries == q]).max() for q in queries.unique()) / 384
    assert abs(best - task.chance.metric) < 0.1
    assert task.frequencies().sum(1).tolist() == pytest.approx([1] * max(1, task.queries))


def test_chance_of_unequal_answers():
    """Of the 20 orders of three brackets each, 5 never have more closing than opening ones."""
    chance = build("prefix-depth").chance
    assert chance.metric == pytest.approx(0.75)
    assert chance.loss == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    task, random = build("last-value"), torch.Generator().manual_seed(0)
    orders = torch.rand(9, 30_000, generator=random).argsort(0)
    values = task.answers_of(orders, torch.zeros(30_000, dtype=torch.long))
    assert (torch.bincount(values) / 30_000 - task.frequencies()[0]).abs().max() < 0.015
    # The symbol after another one is not that one: a third, not a quarter.
    assert build("next-event").chance.metric == pytest.approx(1 / 3)


@pytest.mark.parametrize("name", ["last-value", "last-digit"])
def test_tests_that_are_too_short_are_refused(name):
    with pytest.raises(OptionError, match="test_lengths"):
        build(name, test_lengths=(16,))


def test_answers_of_known_orders():
    events = torch.tensor([[0], [3], [1], [2]])
    none = torch.zeros(1, dtype=torch.long)
    answers = {
        name: build(name).answers_of(events, none).item()
        for name in ("last-event", "first-event", "event-before-last", "event-order")
    }
    assert list(answers.values()) == [2, 0, 1, 1]
    assert build("event-at-position").answers_of(events, torch.tensor([1])).item() == 3
    following = [build("next-event").answers_of(events, torch.tensor([q])).item() for q in range(4)]
    assert following == [3, 2, 0, 1]
    same = torch.tensor([[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 1, 0]])
    assert build("first-is-last").answers_of(same, none).tolist() == [1, 0, 0]
    flags = torch.tensor([[1], [0], [2], [3], [5], [4]])  # set 0, reset 1, set 2
    assert build("flags").answers_of(flags, none).item() == 0b101
    swaps = torch.tensor([[0], [1], [2], [0], [1], [2]])  # cups 1→2→3→1→2→3→1
    assert build("cups").answers_of(swaps, none).item() == 0
    written = torch.tensor([[0], [3], [1], [6], [2], [4], [7], [8], [5]])
    last = [build("last-value").answers_of(written, torch.tensor([key])).item() for key in range(3)]
    assert last == [2, 2, 2]
    brackets = torch.tensor([[0, 0, 1], [1, 0, 0], [1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 1, 1]])
    assert build("prefix-depth").answers_of(brackets, none).tolist() == [1, 0, 1]


def test_training_sequences_are_short_and_of_random_length():
    task = build("flags", length=96)
    steps = {len(task.batch("train", index, 2).inputs) for index in range(40)}
    assert len(steps) > 15 and min(steps) >= 32 and max(steps) <= 96
    assert len(task.batch("valid", 0, 2).inputs) == 96


def test_a_window_model_reads_only_its_window():
    model = undamped.build("window", shape=undamped.models.TaskShape(5, 4), window=64)
    batch = build("last-event").test_tasks()["1024 steps"].batch("test", 0, 8)
    answers = model(batch)
    batch.inputs[: 1024 - 64] = torch.randn(1024 - 64, 8, 5)
    assert torch.equal(model(batch), answers)
    short = torch.randn(10, 8, 5)
    lengths = torch.tensor([10, 3, 1, 10, 10, 10, 10, 10])
    padded = model(short, lengths=lengths)
    short[3:, 1] = 9.0
    assert torch.equal(model(short, lengths=lengths), padded)
    with pytest.raises(OptionError, match="answers once, after the last step"):
        undamped.build("window", shape=undamped.models.TaskShape(5, 4, readout="every"))


def test_last_digits_are_in_the_first_half_of_tests():
    task = build("last-digit", noise=0.0, test_lengths=(100, 400))
    batch = task.test_tasks()["400 steps"].batch("test", 0, 50)
    assert batch.inputs.shape == (400, 50, 8) and not batch.inputs[200:].any()
    assert batch.inputs[:200].abs().amax((0, 2)).min() > 0.5
    repeated = task.test_tasks()["400 steps"].batch("test", 1, 25)
    assert torch.equal(batch.inputs[:, 25:], repeated.inputs)


@pytest.mark.parametrize("name", ["linear-memory", "transformer", "window"])
def test_padding_and_bytes_do_not_change_the_answers_of_baselines(name):
    shape = undamped.models.TaskShape(3, 2)
    model = undamped.build(name, shape=shape)
    x, lengths = torch.randint(0, 256, (50, 4, 3)), torch.tensor([50, 20, 50, 7])
    answers = model(x / 255, lengths=lengths)
    x[20:, 1], x[7:, 3] = 9, 200
    assert torch.allclose(model(x.to(torch.uint8), lengths=lengths), answers, atol=1e-6)
    assert torch.allclose(model(x[:7, 3:] / 255), answers[3:], atol=1e-5)


def test_linear_memories_are_what_they_are_called():
    """NumPy's Legendre polynomials, and oscillators that are exponentials of the age."""
    functions = linear_memory.basis_functions("legendre", 8, 100).numpy()
    times = (2 * np.arange(100) + 1) / 100 - 1
    expected = np.polynomial.legendre.legvander(times, 7).T
    assert np.allclose(functions, expected / np.linalg.norm(expected, axis=1, keepdims=True))
    waves = linear_memory.basis_functions("oscillators", 6, 2000)
    assert torch.allclose(waves.norm(dim=1), torch.ones(6, dtype=torch.float64))
    # Each solves y'' = 2 a y' − b y for some a and b: three steps determine the fourth.
    for wave in waves:
        past = torch.stack((wave[:-2], wave[1:-1]), 1)
        step = torch.linalg.lstsq(past, wave[2:].unsqueeze(1)).solution
        assert torch.allclose(past @ step, wave[2:].unsqueeze(1), atol=1e-6)


def test_a_transformer_is_causal_and_checks_its_heads():
    shape = undamped.models.TaskShape(3, 2, readout="every")
    model, x = undamped.build("transformer", shape=shape), torch.randn(30, 4, 3)
    answers = model(x)
    x[20:] = 0
    assert torch.allclose(model(x)[:20], answers[:20], atol=1e-6)
    with pytest.raises(OptionError, match="multiple of heads"):
        undamped.build("transformer", shape=shape, hidden_size=10)
