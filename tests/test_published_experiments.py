"""The experiments run from end to end on next to nothing."""

import pytest

from canonical_files import everything, record, ucr
from undamped.errors import DataError, UnknownNameError
from undamped.experiments import lorenz96
from undamped.experiments import ucr as archive
from undamped.tasks import build


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("UNDAMPED_DATA", str(tmp_path))
    everything(tmp_path)
    ucr(tmp_path / "ucr" / "JapaneseVowels", unequal=True)
    record(tmp_path / "ucr" / "JapaneseVowels")
    return tmp_path


def test_archive_sets_beside_the_nearest_neighbour(data):
    done = []
    result = archive.run(
        sets=("GunPoint",),
        networks=("unicornn", "cornn"),
        steps=2,
        hidden_size=4,
        out=str(data / "runs"),
        tick=done.append,
    )
    assert done == ["GunPoint"]
    (outcome,) = result.outcomes
    assert outcome.distance == "Euclidean" and outcome.nearest == 1
    assert 0 <= outcome.accuracy["cornn"] <= 1
    assert "| GunPoint | 11 + 8, 20, 2 |" in result.markdown()
    assert set(result.figures()) == {"ucr"} and result.to_dict()["sets"][0]["test"] == 8
    with pytest.raises(DataError, match="undamped data fetch Coffee"):
        archive.run(sets=("GunPoint", "Coffee"))


def test_unequal_lengths_are_warped(data, monkeypatch):
    seen = []

    def warped(test, train):
        import numpy as np

        seen.append((len(test), len(train)))
        return np.abs(np.array([len(one) for one in test])[:, None] - [len(one) for one in train])

    monkeypatch.setattr(archive, "_warped", warped)
    accuracy, name = archive.nearest_neighbour(build("ucr", dataset="JapaneseVowels"))
    assert name == "DTW" and seen == [(8, 11)] and 0 <= accuracy <= 1


def test_lorenz_table_and_picture(monkeypatch, tmp_path):
    original = lorenz96._linear_map
    monkeypatch.setattr("undamped.tasks.lorenz96.SEQUENCES", 4)
    from undamped.tasks import Lorenz96

    monkeypatch.setitem(Lorenz96.recipes, "lstm", {"model": {"hidden_size": 3}})
    monkeypatch.setattr(lorenz96, "WINDOW", 1000)
    result = lorenz96.run(
        epochs=1, forces=(0.9,), networks=("lstm",), batch_size=4, out=str(tmp_path)
    )
    (one,) = result.forecasts
    assert 0 < one.nrmse < 5 and result.linear[0.9] < result.mean_state[0.9]
    assert "| lstm |" in result.markdown() and "2.0e-02" in result.markdown()
    assert set(result.figures()) == {"lorenz96"}
    assert original is lorenz96._linear_map
    with pytest.raises(UnknownNameError, match="network of this experiment"):
        lorenz96.run(networks=("gru",))
