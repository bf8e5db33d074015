"""Arrays whose sizes the data decide, among the weights of a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class LearntArrays(nn.Module):
    """Named arrays that are not there before something was learnt.

    They are saved with the weights, and are taken from a file as they come: how many series or
    features there were is not known to whoever builds the model again.

    Example:
        >>> arrays = LearntArrays()
        >>> arrays.keep(biases=np.zeros(84))
        >>> arrays["biases"].shape
        torch.Size([84])
    """

    def keep(self, **arrays: Tensor | np.ndarray | float) -> None:
        """Remember arrays, in place of those of the same names."""
        for name, array in arrays.items():
            self.register_buffer(name, torch.as_tensor(array))

    def __getitem__(self, name: str) -> Tensor:
        """Return an array."""
        return self.get_buffer(name)

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(1 for _ in self.named_buffers(recurse=False))

    def numpy(self, *names: str) -> tuple[np.ndarray, ...]:
        """Return some of them as NumPy arrays."""
        return tuple(self[name].detach().cpu().numpy() for name in names)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        for name, _ in list(self.named_buffers(recurse=False)):
            delattr(self, name)
        for name, array in state_dict.items():
            if name.startswith(prefix):
                self.keep(**{name.removeprefix(prefix): array.detach().clone()})
