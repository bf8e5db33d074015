"""Penalties of a model in one call, for those who write their own training loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def penalty(model: nn.Module) -> Tensor:
    """Return the sum of all penalties that parts of a model ask for; add it to the loss.

    It is zero where nothing asks for one, so that it may stand in every loop.

    Args:
        model: Any module; networks of this library may be anywhere inside it.

    Example:
        >>> net = undamped.LSTM(3, 16, orthogonality_penalty=0.01)
        >>> loss = net(torch.randn(50, 4, 3))[0].square().mean() + undamped.penalty(net)
    """
    parameter = next(model.parameters(), None)
    total = torch.zeros(()) if parameter is None else parameter.new_zeros(())
    for module in model.modules():
        own = getattr(module, "penalty", None)
        if callable(own):
            added = own()
            assert isinstance(added, Tensor)
            total = total + added
    return total
