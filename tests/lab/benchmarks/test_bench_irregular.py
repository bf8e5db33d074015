"""The benchmark of irregular time: it runs, says what it should, and compares like with like."""

import json

import torch

from undamped.lab.benchmarks.irregular import CDE, OURS, TORCHCDE, TORCHDIFFEQ, UNION, run


def test_it_times_all_candidates_and_they_agree():
    result = run(rounds=1, quick=True)
    assert list(result.numbers["timings"]) == [OURS, UNION, TORCHDIFFEQ, CDE, TORCHCDE]
    assert result.numbers["largest_difference"] < 1e-5
    assert result.numbers["union_over_own"] > 0
    assert json.loads(json.dumps(result.to_dict()))["settings"]["series"] == 4
    assert "one grid differ by at most" in result.markdown()
    assert result.figures()["steps"].axes


def test_torchcde_does_what_ours_does():
    from undamped.lab.benchmarks.irregular import _torch_cde
    from undamped.models.irregular.elapsed_time import NeuralCDE

    torch.manual_seed(0)
    net = NeuralCDE(2, 20).double()
    x, times = torch.randn(5, 3, 2).double(), torch.rand(5, 3).double().cumsum(0)
    # Both of fourth order; the rk4 of torchdiffeq is the 3/8 rule.
    torch.testing.assert_close(_torch_cde(net, x, times), net(x, times)[1][0], rtol=0, atol=2e-2)
