"""Tasks of irregular time: what guesses have there, which steps are dropped, and an experiment."""

import json

import numpy as np
import pytest
import torch

from canonical_files import ucr
from undamped import tasks
from undamped.experiments.irregular_series import run
from undamped.tasks.irregular.rotating_digits import turned
from undamped.tasks.ucr import archive_set, with_steps_dropped


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    ucr(tmp_path / "ucr" / "Waves", unequal=True)
    return tmp_path


def test_steps_are_dropped_and_what_is_left_keeps_its_time(data):
    whole = archive_set("Waves", str(data / "ucr" / "Waves"))
    found = with_steps_dropped(whole, 0.5)
    for one, left, times in zip(whole.series, found.series, found.times, strict=True):
        assert len(left) == max(2, round(0.5 * len(one)))
        assert (np.diff(times) > 0).all()
        np.testing.assert_array_equal(left, one[times.astype(int)])
    again = with_steps_dropped(whole, 0.5)
    assert all(np.array_equal(a, b) for a, b in zip(found.times, again.times, strict=True))
    assert len({tuple(times) for times in found.times}) > 1
    task = tasks.build("ucr", file=str(data / "ucr" / "Waves"), dropped=0.3)
    assert "times" in task.needs
    assert any("30% of the steps" in note for note in task.notes())


def test_the_experiment_trains_all_and_has_a_table(data, monkeypatch):
    monkeypatch.setattr("undamped.data.published.cache.folder", lambda name: data / name)
    monkeypatch.setattr("undamped.tasks.ucr.folder", lambda name: data / name)
    result = run(
        sets=("Waves",),
        dropped=(0.5,),
        networks=("decay-rnn", "gru"),
        steps=2,
        hidden_size=4,
        out=str(data / "runs"),
    )
    assert result.networks == ["decay-rnn", "gru"]
    assert "Waves, 50%" in result.markdown()
    assert json.loads(json.dumps(result.to_dict()))["steps"] == 2
    assert result.figures()["irregular-series"].axes


def test_guesses_have_what_they_had_elsewhere():
    assert tasks.build("periodic").chance.metric == pytest.approx(0.106, rel=0.1)
    assert tasks.build("periodic", ask="second-half").chance.metric == pytest.approx(0.53, rel=0.1)
    assert tasks.build("double-ou").chance.metric == pytest.approx(0.0176, rel=0.15)


def test_digits_turn():
    pictures = torch.rand(2, 28, 28)
    still = turned(pictures, torch.zeros(2))
    torch.testing.assert_close(still, torch.nn.functional.avg_pool2d(pictures, 2))
    quarter = turned(pictures, torch.full((2,), torch.pi / 2))
    torch.testing.assert_close(quarter, torch.rot90(still, 1, (1, 2)), rtol=0, atol=1e-4)
