"""What every instrument returns: a small frozen record that can be drawn and written as JSON."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True)
class Result:
    """Base of the instruments' results."""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain numbers, lists and text, ready for JSON."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}

    def plot(self) -> Any:
        """Draw the result; return a plotly figure."""
        raise NotImplementedError


def plain(value: Any) -> Any:
    """Turn a value into what JSON knows; complex numbers become [real, imaginary].

    A number that is not finite becomes null, since JSON has no word for it.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray | np.generic):
        if np.iscomplexobj(value):
            value = np.stack([value.real, value.imag], axis=-1)
        value = value.tolist()
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value
