"""Penalties of a model in one call, for those who write their own training loop."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def penalty(model: nn.Module, loss: Tensor | None = None) -> Tensor:
    """Return the sum of all penalties that parts of a model ask for; add it to the loss.

    It is zero where nothing asks for one, so that it may stand in every loop.

    Args:
        model: Any module; networks of this library may be anywhere inside it.
        loss: The loss, for models of continuous depth that keep its gradient (`keep_gradient`);
            others need none.

    Example:
        >>> net = undamped.nn.LSTM(3, 16, orthogonality_penalty=0.01)
        >>> loss = net(torch.randn(50, 4, 3))[0].square().mean() + undamped.nn.penalty(net)
    """
    like = loss if loss is not None else next(model.parameters(), None)
    total = torch.zeros(()) if like is None else like.new_zeros(())
    for module in model.modules():
        own = getattr(module, "penalty", None)
        if callable(own):
            added = own(loss) if getattr(module, "penalty_needs_loss", False) else own()
            assert isinstance(added, Tensor)
            total = total + added
    return total
