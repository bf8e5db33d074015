"""The benchmark of networks with memory runs, and its plain version is the same network."""

import io

import pytest
import torch
from rich.console import Console

import undamped
from undamped.lab.benchmarks.memory import PlainRelLSTM, run


@pytest.mark.process
def test_it_runs_and_says_what_it_found():
    result = run(quick=True, rounds=1)
    first, last = result.numbers["state_bytes"]
    assert first == last
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(result.summary())
    assert "rellstm in plain PyTorch" in console.export_text()
    assert "| rellstm |" in result.markdown()
    assert result.to_dict()["rellstm_over_lstm"] > 0


def test_the_plain_version_is_the_same_network():
    torch.manual_seed(0)
    net = undamped.nn.RelLSTM(3, 5, recent=3, relevant=2).double()
    plain, cell = PlainRelLSTM(3, 5, recent=3, relevant=2).double(), net.cell(0)
    inner, attention = cell.recurrence, cell.attention
    with torch.no_grad():
        plain.drive.weight.copy_(inner.weight_ih)
        plain.drive.bias.copy_(inner.bias_ih + inner.bias_hh)
        plain.read.weight.copy_(torch.cat((inner.weight_hh, attention.query)))
        plain.key.weight.copy_(attention.key)
        plain.score.weight.copy_(attention.score.unsqueeze(0))
    x = torch.randn(30, 2, 3, dtype=torch.float64)
    torch.testing.assert_close(plain(x)[0], net(x)[0])
