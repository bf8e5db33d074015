"""A trained model as plain values: sizes, options and arrays, from which it is built again.

That is what a pickle of an estimator holds. A live module would drag compiled kernels, hooks and
whatever else hangs on it into the file.
"""

from __future__ import annotations

from typing import Any

import torch

from undamped.networks.sequence_model import SequenceModel

Frozen = dict[str, Any]


def freeze(model: SequenceModel, name: str, options: dict[str, Any]) -> Frozen:
    """Return a model as plain values.

    Args:
        model: The trained model.
        name: The registry name of its network.
        options: The options it was built with.
    """
    return {
        "network": name,
        "input_size": model.input_size,
        "output_size": model.head.out_features,
        "readout": model.readout,
        "options": options,
        # A copy: the arrays must not change when the module is trained on.
        "weights": {key: value.cpu().numpy().copy() for key, value in model.state_dict().items()},
    }


def thaw(frozen: Frozen) -> SequenceModel:
    """Build a model again, ready to predict, without touching anybody's random numbers."""
    with torch.random.fork_rng(devices=[]):
        model = SequenceModel(
            frozen["network"],
            frozen["input_size"],
            frozen["output_size"],
            readout=frozen["readout"],
            **frozen["options"],
        )
    weights = {key: torch.as_tensor(value) for key, value in frozen["weights"].items()}
    model.load_state_dict(weights)
    return model.eval()
