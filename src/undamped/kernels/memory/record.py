"""What a pass attended to, and which states it kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from undamped.kernels.memory.plan import TENSORS, Marks, Plan
from undamped.kernels.memory.share import Share
from undamped.kernels.memory.sparse_share import SparseMarks, SparsePlan, SparseShare


@dataclass(frozen=True)
class Record:
    """What was attended to.

    Args:
        weights: (batch, time, time), row t the weights that step t gives to all steps.
        kept: (batch, time, kept), the steps of the kept states after each; −1 where a slot is
            empty or holds a state of before the pass.
    """

    weights: Tensor
    kept: Tensor


def sparse_record(
    plan: SparsePlan, x: Tensor, tensors: dict[str, Tensor], marks: SparseMarks
) -> Record:
    """Run sparse attentive backtracking over (time, batch, input); return what was attended to."""
    named = {name: tensors.get(name, x.new_empty(0)).detach() for name in SparseShare.names}
    steps, batch, _ = x.shape
    share = SparseShare(plan, slice(0, batch), x.detach(), marks, named)
    share.forward()
    # The rows that a pass began with have no step of their own; they go to one column too many.
    times = torch.full((share.slots + len(plan.times),), steps)
    times[share.slots :] = torch.from_numpy(plan.times)
    index = torch.from_numpy(share.index).long()
    rows = torch.where(index >= 0, share.attention, 0)
    weights = x.new_zeros(batch, steps, steps + 1)
    if len(times):
        weights.scatter_add_(2, times[index.clamp_min(0)].transpose(0, 1), rows.transpose(0, 1))
    return Record(weights[:, :, :steps], torch.empty(batch, steps, 0, dtype=torch.long))


def attention_record(plan: Plan, x: Tensor, tensors: dict[str, Tensor], marks: Marks) -> Record:
    """Run over (time, batch, input) as `memory_scan` does; return what was attended to."""
    named = {name: tensors.get(name, x.new_empty(0)).detach() for name in TENSORS}
    steps, batch, _ = x.shape
    share = Share(plan, slice(0, batch), x.detach(), marks, named)
    share.forward()
    weights = x.new_zeros(batch, steps, share.slots + steps)
    if share.grows:
        begin = 0
        for t in range(steps):
            count = share.slots + t + 1
            rows = share.attention[begin : begin + batch * count].view(batch, count)
            alive = torch.from_numpy(share.alive > t).unsqueeze(1)
            weights[:, t, :count] = torch.where(alive, rows, 0)
            begin += batch * count
        return Record(weights[:, :, share.slots :], torch.empty(batch, steps, 0, dtype=torch.long))
    alive = torch.arange(steps).unsqueeze(1) < torch.from_numpy(share.alive)
    index = share.index.view(steps, batch, -1).long().masked_fill(~alive.unsqueeze(-1), -1)
    rows = torch.where(index >= 0, share.attention.view(steps, batch, -1), 0)
    weights.scatter_add_(2, index.clamp_min(0).transpose(0, 1), rows.transpose(0, 1))
    kept = (index[:, :, plan.recent :] - share.slots).clamp_min(-1)
    return Record(weights[:, :, share.slots :], kept.transpose(0, 1))
