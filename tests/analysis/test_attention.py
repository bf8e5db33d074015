"""Sparsity and dependency depth of attention whose answer is known."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from undamped._base.errors import OptionError, ShapeError
from undamped.analysis import attention, attention_of


def test_uniform_attention_reaches_everything_directly():
    weights = np.tril(np.ones((10, 10))) / np.arange(1, 11)[:, None]
    result = attention(weights)
    assert result.sparsity == 10
    assert result.depth == 0
    assert result.reached == 1.0
    json.dumps(result.to_dict(), allow_nan=False)
    assert result.plot().data


def test_attention_to_the_step_before_makes_one_long_chain():
    result = attention(np.diag(np.ones(7), -1))
    assert result.sparsity == 1
    # From step 7 back to step 0 a chain passes six states in between.
    np.testing.assert_array_equal(result.depths, np.arange(6, -1, -1))
    assert result.depth == 6


def test_in_a_recurrent_network_a_chain_goes_on_from_the_step_before():
    """s_7 reads h_6, which is made from s_5, which reads h_4, …"""
    result = attention(np.diag(np.ones(7), -1), recurrent=True)
    np.testing.assert_array_equal(result.depths, [3, -1, 2, -1, 1, -1, 0])
    own = attention(np.eye(5), recurrent=True)  # every step reads its own state
    np.testing.assert_array_equal(own.depths, [4, 3, 2, 1])


def test_chains_that_are_too_weak_do_not_count():
    weights = np.zeros((5, 5))
    weights[4, 3] = weights[3, 1] = 0.3
    weights[1, 0] = 0.3
    result = attention(weights, threshold=0.05)
    np.testing.assert_array_equal(result.depths, [-1, 1, -1, 0])
    assert result.reached == 0.5


def test_attention_layers_are_read_from_a_transformer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    result = attention_of(net, torch.randn(6, 3, 4))
    assert len(result) == 2
    np.testing.assert_allclose(result[0].weights.sum(1), 1, rtol=1e-5)
    assert torch.backends.mha.get_fastpath_enabled()


def test_errors():
    with pytest.raises(OptionError, match="attention"):
        attention_of(nn.Linear(2, 2), torch.randn(3, 2))
    with pytest.raises(ShapeError):
        attention(np.ones((2, 3)))
