"""What rules without the relation reach, and false cases that they do not tell."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from undamped._base.errors import OptionError
from undamped._base.registry import tasks
from undamped.lab import cli
from undamped.lab.tasks.relations.games.objects import BLANK
from undamped.lab.tasks.relations.games.rules import LINES
from undamped.lab.tasks.relations.trivial import best_rule, distinct

pytestmark = pytest.mark.usefixtures("all_held_out")


def game(name, **options):
    return tasks["relational-games"](game=name, **options)


def counts(task, size=2400):
    """Return the number of distinct objects on each grid of the test, and the answers."""
    grids, answers = task.trials("test", 0, size)
    numbers = [len(set(row) - {BLANK}) for row in grids.tolist()]
    return np.array(numbers), answers.numpy()


def counting(task):
    """Return how often the number of distinct objects, at its best, tells the answer."""
    numbers, answers = counts(task)
    right = [max(np.bincount(answers[numbers == n], minlength=2)) for n in np.unique(numbers)]
    return sum(right) / len(answers)


@pytest.mark.parametrize(
    ("name", "options", "reached", "rule"),
    [
        ("rmts", {}, 0.5, ""),
        ("rmts-3", {}, 0.5, ""),
        ("same-different", {}, 0.5, "ink"),
        ("same-different-6", {}, 2 / 3, "images 1 and 4"),
        ("distribution-of-n", {}, 0.5, "not in the second row"),
        ("identity-rules", {}, 2 / 3, "image 1 of the second row"),
        ("identity-rules", {"colours": "separated"}, 2 / 3, "image 1 of the second row"),
        ("identity-rules-4", {}, 1 / 3, "of the second row"),
        ("comparison", {}, 1.0, "ink"),
        ("comparison", {"transitive": True}, 1.0, "ink"),
        ("relational-games", {"game": "same"}, 1.0, "distinct objects"),
        ("relational-games", {"game": "between"}, 1.0, "distinct objects"),
        ("relational-games", {"game": "occurs"}, 1.0, "distinct objects"),
        ("relational-games", {"game": "xoccurs"}, 1.0, "distinct objects"),
        ("relational-games", {"game": "row-matching"}, 0.81, "distinct objects"),
        ("relational-games", {"game": "colour-shape"}, 0.5, "distinct objects"),
        ("relational-games", {"game": "left-of"}, 0.51, ""),
    ],
)
def test_every_relation_task_states_its_best_trivial_rule(name, options, reached, rule):
    task = tasks[name](**options)
    assert task.baseline.metric == pytest.approx(reached, abs=0.015)
    assert rule in task.baseline.rule
    assert task.baseline == tasks[name](**options).baseline


@pytest.mark.parametrize(("name", "most"), [("between", 0.6), ("occurs", 0.56), ("xoccurs", 0.76)])
def test_hard_false_cases_are_not_told_by_counting(name, most):
    assert counting(game(name)) > 0.99
    hard = game(name, negatives="hard")
    assert counting(hard) <= most
    for part in hard.test_tasks().values():
        assert part.baseline.metric <= most
    answers = counts(hard)[1]
    assert answers.mean() == pytest.approx(0.5, abs=0.01)


def test_hard_rows_have_two_objects_each():
    hard = game("row-matching", negatives="hard")
    assert hard.baseline.metric == pytest.approx(0.5, abs=0.01)
    grids, answers = hard.trials("test", 0, 960)
    for row, answer in zip(grids.tolist(), answers.tolist(), strict=True):
        patterns = [tuple(part.index(item) for item in part) for part in (row[:3], row[6:])]
        assert [len(set(p)) for p in patterns] == [2, 2]
        assert (patterns[0] == patterns[1]) == answer


@pytest.mark.parametrize("name", ["between", "occurs", "xoccurs"])
def test_hard_cases_keep_the_relation(name):
    grids, answers = game(name, negatives="hard").trials("train", 0, 960)
    lines = [set(line) for line in LINES.tolist()]
    for row, answer in zip(grids.tolist(), answers.tolist(), strict=True):
        cells = [at for at, item in enumerate(row) if item != BLANK]
        if name == "between":
            a, b, c = (row[at] for at in cells)
            holds = set(cells) in lines and a == c != b
        else:
            (above,) = (item for item in row[:3] if item != BLANK)
            others = [item for item in row[3:] if item != BLANK]
            assert len(others) == (6 if name == "occurs" else 3)
            holds = above in others
            if holds and name == "xoccurs":
                others.remove(above)
                holds = others[0] != others[1]
        assert holds == answer


def test_published_cases_stay_as_they_were():
    for name in ("between", "occurs", "xoccurs", "row-matching"):
        plain, published = game(name), game(name, negatives="published")
        for a, b in zip(plain.trials("test", 0, 96), published.trials("test", 0, 96), strict=True):
            assert torch.equal(a, b)
    with pytest.raises(OptionError, match="counting is the relation"):
        game("same", negatives="hard")


def test_numbers_that_training_lacks_get_the_commonest_answer():
    train = torch.tensor([[0, 0, 1, 1, 1]]), torch.tensor([0, 0, 1, 1, 1])
    test = torch.tensor([[0, 1, 7]]), torch.tensor([0, 1, 1])
    assert best_rule({"it": lambda objects: objects[0]}, train, test).metric == 1.0
    assert best_rule({}, train, test) is None
    assert distinct(torch.tensor([[0, 1], [2, 1], [2, 0]]), 0).tolist() == [1, 1]


def test_the_rule_is_shown():
    result = CliRunner().invoke(cli.app, ["show", "identity-rules"])
    assert result.exit_code == 0 and "trivial rule" in result.output and "66.7%" in result.output
