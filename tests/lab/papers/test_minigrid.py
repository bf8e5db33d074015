"""PPO with a memory: what it lives through, what it learns from, and going on."""

import json

import pytest
import torch

from undamped._base.errors import MissingPackageError, OptionError, UnknownNameError
from undamped.lab.papers import minigrid
from undamped.lab.papers.reinforcement import rollout as worlds
from undamped.lab.papers.reinforcement import training
from undamped.lab.papers.reinforcement.rollout import (
    CHANNELS,
    WORDS,
    Agent,
    Environments,
    Progression,
    View,
    _advantages,
    collect,
    episodes_of,
)
from undamped.lab.papers.reinforcement.training import PPO, ppo_loss

pytest.importorskip("minigrid")


class Flicker:
    """Two environments whose episodes end after three and after five steps; what is seen is
    random, and a reward comes at the end."""

    actions = 3

    def start(self, seed):
        self.random = torch.Generator().manual_seed(0)
        self.ages = torch.zeros(2)
        return self._view()

    def step(self, actions):
        self.ages += 1
        ended = (self.ages >= torch.tensor([3, 5])).float()
        self.ages *= 1 - ended
        return self._view(), ended * 0.5, ended

    def _view(self):
        cells = torch.rand(2, CHANNELS, 7, 7, generator=self.random).double()
        return View(cells, torch.rand(2, WORDS, generator=self.random).double())


@pytest.mark.parametrize("network", ["lstm", "rellstm", "memlstm", "sab"])
def test_whole_episodes_see_what_single_steps_saw(network):
    """Chances computed in one pass over padded episodes are those of the steps, so every ratio
    is one; also for episodes that began in the rollout before."""
    torch.manual_seed(0)
    agent, world = Agent(network, 3, hidden_size=4).double(), Flicker()
    current = Progression.start(agent, world, [0])
    collect(agent, world, current, 4)
    rollout, finished = collect(agent, world, current, 9)
    assert finished == [0.5] * len(finished) and len(finished) == 5
    episodes = episodes_of(rollout.starts, torch.tensor([1, 0]))
    assert episodes.lengths.tolist() == [1, 5, 3, 2, 3, 3, 1]
    assert episodes.fresh.tolist() == [0, 1, 1, 0, 1, 1, 1]
    assert int(episodes.inside.sum()) == 18
    quiet = PPO(entropy=0.0, value=0.0, clip=1e-6)
    loss = ppo_loss(agent, rollout, episodes, quiet)
    assert abs(float(loss.detach())) < 1e-9  # the mean of normalised advantages times one
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in agent.parameters())


def test_advantages_are_discounted_sums_of_errors():
    torch.manual_seed(0)
    values, rewards, last = torch.rand(6, 2), torch.rand(6, 2), torch.rand(2)
    ends = torch.tensor([[0, 0], [1, 0], [0, 0], [0, 1], [0, 0], [0, 0]]).float()
    result = _advantages(values, last, rewards, ends)
    for b in range(2):
        for t in range(6):
            total, factor = 0.0, 1.0
            for k in range(t, 6):
                after = last[b] if k == 5 else values[k + 1, b]
                total += factor * (rewards[k, b] + 0.99 * after * (1 - ends[k, b]) - values[k, b])
                factor *= 0.99 * 0.95
                if ends[k, b]:
                    break
            torch.testing.assert_close(result[t, b], torch.as_tensor(total))


def test_a_training_that_was_stopped_ends_with_the_same_numbers(tmp_path):
    plan = training.Plan("Empty-5x5", "rellstm", {"hidden_size": 4}, 48, 2, 6, PPO(), 0)
    assert plan.rounds == 4
    full = training.train(plan, tmp_path / "whole", checkpoint_every=2)
    told = []

    def stop(line):
        told.append(line)
        if len(told) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training.train(plan, tmp_path / "parts", stop, checkpoint_every=2)
    repeated = training.train(plan, tmp_path / "parts", told.append, checkpoint_every=2)
    assert told[-1].startswith("100 %") and len(told) == 5
    assert repeated.returns == full.returns
    for one, other in zip(full.agent.parameters(), repeated.agent.parameters(), strict=True):
        assert torch.equal(one, other)
    assert training.train(plan, tmp_path / "parts", told.append).returns == full.returns
    assert len(told) == 5  # nothing was left to do


def test_the_experiment_and_its_sentences(tmp_path, monkeypatch):
    result = minigrid.run(
        environment="Empty-5x5", networks=("rellstm", "lstm"), frames=32, units=4, copies=2,
        rollout=8, tests=2, out=str(tmp_path),
    )  # fmt: skip
    assert set(result.records[0].returns) == {"Empty-5x5"}
    assert "| rellstm |" in result.markdown() and json.dumps(result.to_dict())
    assert len(result.figures()["minigrid-Empty-5x5"].axes[0].lines) == 2
    with pytest.raises(UnknownNameError, match="DoorKey-5x5"):
        minigrid.run(environment="DorKey-5x5")
    with pytest.raises(OptionError, match="must be recurrent networks"):
        minigrid.run(networks=("ffjord",))
    with pytest.raises(UnknownNameError, match="rellstm"):
        minigrid.run(networks=("relstm",))
    monkeypatch.setattr(worlds, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"undamped\[minigrid\]"):
        Environments("DoorKey-5x5", 1)
