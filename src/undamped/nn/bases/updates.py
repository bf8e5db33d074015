"""Modules with hooks around the steps of any optimiser, and penalties for the loss.

torch calls global hooks before and after the step of every optimiser. So a clamp, a step along the
unitary matrices or a moving base point happens automatically in any training loop, with any
optimiser of `torch.optim` or derived from it. Other ways of writing to parameters are not noticed;
`values_readable` is for modules that check their parameters instead.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from undamped.kernels.dispatch import inside_transform

# All modules with hooks that are alive. Weak references, so that this does not keep them alive.
_MODULES: WeakSet[UpdateHooks] = WeakSet()
_HANDLES: list[Any] = []


class UpdateHooks(nn.Module):
    """A module with methods that are called around updates, once `add_update_hooks` was called."""

    _has_update_hooks = False
    _active_optimizers: tuple[int, ...] = ()
    """The optimisers that are inside a step, by id; one may call the step of another."""

    @property
    def updating(self) -> bool:
        """Whether an optimiser is inside a step; some try parameters that they do not keep."""
        return bool(self._active_optimizers)

    def add_update_hooks(self) -> None:
        """Call the hooks of this module, and of its copies, around updates from now on."""
        if not _HANDLES:
            _HANDLES.append(register_optimizer_step_pre_hook(_before))
            _HANDLES.append(register_optimizer_step_post_hook(_after))
        self._has_update_hooks = True
        _MODULES.add(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.restore_update_hooks()

    def restore_update_hooks(self) -> None:
        """Add the hooks if the module of which this one is a copy had them."""
        if self._has_update_hooks:
            self.add_update_hooks()

    def updated_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters whose updates call the hooks; all unless overridden."""
        return self.parameters()

    def before_update(self) -> None:
        """Hook right before an update, without gradients."""

    def after_update(self) -> None:
        """Hook right after an update, without gradients, also of an optimiser inside another.

        Optimisers that contain others, such as lookahead, change parameters after the inner one.
        """

    def after_outer_update(self) -> None:
        """Hook called once for every update of the outermost optimiser, without gradients."""

    def begin_update(self, optimizer: int) -> None:
        """Note that an optimiser begins a step; one that had begun did not end that step."""
        active = self._active_optimizers
        if optimizer in active:
            active = active[: active.index(optimizer)]
        self._active_optimizers = (*active, optimizer)
        self.before_update()

    def end_update(self, optimizer: int) -> None:
        """Note that an optimiser ends its step."""
        active = self._active_optimizers
        if optimizer in active:
            self._active_optimizers = active[: active.index(optimizer)]
        self.after_update()
        if not self._active_optimizers:
            self.after_outer_update()


class UpdateCounter(UpdateHooks):
    """A module that counts its updates in a buffer, which is saved with the weights."""

    updates: Tensor

    def count_updates(self) -> None:
        """Start to count."""
        self.register_buffer("updates", torch.tensor(0))
        self.register_load_state_dict_pre_hook(_add_missing_count)
        self.add_update_hooks()

    def after_outer_update(self) -> None:
        """Count an update."""
        super().after_outer_update()
        self.updates += 1


class Penalised(UpdateHooks):
    """A module whose `penalty` should be part of the loss; warns once if a loop leaves it out."""

    _penalty_used = False
    _penalty_warned = False

    def penalty_option(self) -> str:
        """Return the option that enables the penalty with its value; "" if it is disabled."""
        return ""

    def penalty(self) -> Tensor:
        """Return the penalty, and note that it was used."""
        self._penalty_used = True
        return self.penalty_value()

    def penalty_value(self) -> Tensor:
        """Compute the penalty."""
        raise NotImplementedError

    def after_outer_update(self) -> None:
        """Warn if the penalty was not computed since the last update."""
        option = self.penalty_option()
        if option and not (self._penalty_used or self._penalty_warned):
            self._penalty_warned = True
            name = type(self).__name__.removeprefix("Parametrized")
            warnings.warn(
                f"{name}: {option} sets a penalty, and an optimiser made an update without it. "
                "Add `undamped.nn.penalty(model)` to the loss, or set the option to 0.",
                stacklevel=2,
            )
        self._penalty_used = False
        super().after_outer_update()


def penalty(model: nn.Module, loss: Tensor | None = None) -> Tensor:
    """Return the sum of all penalties of a model and its submodules, to be added to the loss.

    It is zero for a model without penalties, so that any training loop may add it.

    Args:
        model: Any module; networks of this library may be anywhere inside it.
        loss: The loss, for models of continuous depth that preserve its gradient
            (`keep_gradient`); others need none.

    Example:
        >>> net = undamped.nn.LSTM(3, 16, orthogonality_penalty=0.01)
        >>> loss = net(torch.randn(50, 4, 3))[0].square().mean() + undamped.nn.penalty(net)
    """
    like = loss if loss is not None else next(model.parameters(), None)
    total = torch.zeros(()) if like is None else like.new_zeros(())
    for module in model.modules():
        function = getattr(module, "penalty", None)
        if callable(function):
            needs_loss = getattr(module, "penalty_needs_loss", False)
            term = function(loss) if needs_loss else function()
            assert isinstance(term, Tensor)
            total = total + term
    return total


def values_readable(tensor: Tensor) -> bool:
    """Return whether Python may read the values of a tensor, which a compiler cannot trace."""
    return not (
        torch.compiler.is_compiling()
        or inside_transform()
        or type(tensor) not in (Tensor, nn.Parameter)
        or tensor.device.type == "meta"
    )


@torch.no_grad()
def _before(optimizer: Optimizer, *unused: Any) -> None:
    for module in _updated_modules(optimizer):
        module.begin_update(id(optimizer))


@torch.no_grad()
def _after(optimizer: Optimizer, *unused: Any) -> None:
    for module in _updated_modules(optimizer):
        module.end_update(id(optimizer))


def _updated_modules(optimizer: Optimizer) -> list[UpdateHooks]:
    if not _MODULES:
        return []
    updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    return [
        module
        for module in list(_MODULES)
        if any(id(parameter) in updated for parameter in module.updated_parameters())
    ]


def _add_missing_count(
    module: nn.Module, weights: dict[str, Any], prefix: str, *unused: object
) -> None:
    """Load files that were written before updates were counted."""
    weights.setdefault(f"{prefix}updates", torch.tensor(0))
