"""Modules that are told when an optimiser changes their parameters, whoever wrote the loop.

torch calls hooks before and after the step of every optimiser. So a clamp, a step along the unitary
matrices or a moving base point happens by itself in anybody's training loop, with any optimiser of
`torch.optim` or derived from it. A loop that writes to parameters by other means is on its own;
`may_look` is for those who want to notice.
"""

from __future__ import annotations

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

# Every watched module that is alive: the hooks must find them, and must not keep them.
_WATCHED: WeakSet[Watched] = WeakSet()
_HOOKS: list[Any] = []


class Watched(nn.Module):
    """A module that is told about updates, once `watch` was called."""

    _is_watched = False
    _at_work: tuple[int, ...] = ()
    """The optimisers that are inside a step, by id; one may call the step of another."""

    @property
    def updating(self) -> bool:
        """Whether an optimiser is at it: some try out parameters that they do not keep."""
        return bool(self._at_work)

    def watch(self) -> None:
        """Listen to the optimisers of this process from now on; copies and pickles do too."""
        if not _HOOKS:
            _HOOKS.append(register_optimizer_step_pre_hook(_before))
            _HOOKS.append(register_optimizer_step_post_hook(_after))
        self._is_watched = True
        _WATCHED.add(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self.watch_again()

    def watch_again(self) -> None:
        """Listen, if the module of which this one is a copy did."""
        if self._is_watched:
            self.watch()

    def watched_parameters(self) -> Iterable[nn.Parameter]:
        """Return the parameters whose updates count; all unless overridden."""
        return self.parameters()

    def before_update(self) -> None:
        """Do what has to be done right before an update, without gradients."""

    def after_update(self) -> None:
        """Do what has to be done right after an update, be it part of another, without gradients.

        Optimisers around others, such as those that look ahead, move parameters after the inner
        one has.
        """

    def after_whole_update(self) -> None:
        """Do what has to be done once for every update, without gradients."""

    def begin_update(self, optimizer: int) -> None:
        """Note that an optimiser begins; if it had begun already, that step never ended."""
        at_work = self._at_work
        if optimizer in at_work:
            at_work = at_work[: at_work.index(optimizer)]
        self._at_work = (*at_work, optimizer)
        self.before_update()

    def end_update(self, optimizer: int) -> None:
        """Note that an optimiser is done."""
        if optimizer in self._at_work:
            self._at_work = self._at_work[: self._at_work.index(optimizer)]
        self.after_update()
        if not self._at_work:
            self.after_whole_update()


class Counted(Watched):
    """A watched module that knows how many updates there have been, in its files too."""

    updates: Tensor

    def count_updates(self) -> None:
        """Begin to count, and to listen."""
        self.register_buffer("updates", torch.tensor(0))
        self.register_load_state_dict_pre_hook(_files_without_count)
        self.watch()

    def after_whole_update(self) -> None:
        """Count."""
        super().after_whole_update()
        self.updates += 1


def may_look(tensor: Tensor) -> bool:
    """Say whether the numbers of a tensor can be looked at here and now."""
    return not (
        torch.compiler.is_compiling()
        or inside_transform()
        or type(tensor) not in (Tensor, nn.Parameter)
        or tensor.device.type == "meta"
    )


@torch.no_grad()
def _before(optimizer: Optimizer, *unused: Any) -> None:
    for module in _touched(optimizer):
        module.begin_update(id(optimizer))


@torch.no_grad()
def _after(optimizer: Optimizer, *unused: Any) -> None:
    for module in _touched(optimizer):
        module.end_update(id(optimizer))


def _touched(optimizer: Optimizer) -> list[Watched]:
    if not _WATCHED:
        return []
    touched = {id(one) for group in optimizer.param_groups for one in group["params"]}
    return [
        module
        for module in list(_WATCHED)
        if any(id(one) in touched for one in module.watched_parameters())
    ]


def _files_without_count(
    module: nn.Module, weights: dict[str, Any], prefix: str, *unused: object
) -> None:
    weights.setdefault(f"{prefix}updates", torch.tensor(0))
