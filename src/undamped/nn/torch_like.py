"""The networks that torch has too: weights go both ways, under torch's names.

Inside, a layer's parameters are called `cells.0.weight_ih`; torch.nn.LSTM calls them `weight_ih_l0`
and `weight_ih_l0_reverse`. Files of either kind load here, `net.weight_ih_l0` is the parameter, and
`to_torch` gives torch's module with the same weights.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from undamped._base.errors import OptionError
from undamped.nn.recurrent import Recurrent


class TorchLike(Recurrent):
    """A network that is one of torch's: Elman RNNs, LSTMs and GRUs.

    Args:
        input_size: Number of features of the input at each step.
        hidden_size: Number of hidden units of each layer.
        options: The other options of a recurrent network and of the cell.
    """

    def __init__(self, input_size: int, hidden_size: int, *sizes: int, **options: Any) -> None:
        super().__init__(input_size, hidden_size, *sizes, **options)
        self.register_load_state_dict_pre_hook(_from_torch_names)

    def torch_names(self) -> dict[str, str]:
        """Return torch's name of every parameter, and the name here."""
        names = {}
        for index in range(len(self.cells)):
            layer, direction = divmod(index, self.directions)
            suffix = f"_l{layer}" + ("_reverse" if direction else "")
            for name, _ in self.cells[index].named_parameters():
                names[name + suffix] = f"cells.{index}.{name}"
        return names

    def torch_state_dict(self) -> dict[str, Tensor]:
        """Return the `state_dict` under the names of torch, for `torch.nn.LSTM` and its kin."""
        weights = self.state_dict()
        return {name: weights[local] for name, local in self.torch_names().items()}

    def to_torch(self) -> nn.RNNBase:
        """Return torch's module with a copy of these weights: it gives the same answers."""
        cell = self.cell(0)
        torch_class = getattr(cell, "torch_class", None)
        if torch_class is None or getattr(cell, "thresholds", False):
            raise OptionError(
                "torch.nn.RNN has no modrelu. Use nonlinearity='tanh' or 'relu' to convert a "
                "network to torch."
            )
        weight = self.cell(0).get_parameter("weight_hh")
        options: dict[str, Any] = {
            "num_layers": self.num_layers,
            "bias": cell.bias_ih is not None,
            "batch_first": self.batch_first,
            "dropout": self.dropout if self.num_layers > 1 else 0.0,
            "bidirectional": self.bidirectional,
            "device": weight.device,
            "dtype": weight.dtype,
        }
        if self.proj_size:
            options["proj_size"] = self.proj_size
        if torch_class is nn.RNN:
            options["nonlinearity"] = cell.nonlinearity
        module = torch_class(self.input_size, self.hidden_size, **options)
        module.load_state_dict(self.torch_state_dict())
        return module.train(self.training)

    @property
    def all_weights(self) -> list[list[nn.Parameter]]:
        """The parameters of each layer and direction, in torch's order."""
        return [list(cell.parameters()) for cell in self.cells]

    @property
    def bias(self) -> bool:
        """Whether there are biases."""
        return self.cell(0).bias_ih is not None

    @property
    def proj_size(self) -> int:
        """Number of features of a projected hidden state; 0 where it is not."""
        return getattr(self.cell(0), "proj_size", 0)

    def __getattr__(self, name: str) -> Any:
        local = self._named_by_torch(name)
        return super().__getattr__(name) if local is None else self.get_parameter(local)

    def __setattr__(self, name: str, value: Any) -> None:
        local = self._named_by_torch(name)
        if local is None:
            super().__setattr__(name, value)
        else:
            owner, _, parameter = local.rpartition(".")
            setattr(self.get_submodule(owner), parameter, value)

    def _named_by_torch(self, name: str) -> str | None:
        if "_l" not in name or not name.startswith(("weight_", "bias_")):
            return None
        return self.torch_names().get(name)


def _from_torch_names(
    network: nn.Module, weights: dict[str, Any], prefix: str, *unused: object
) -> None:
    assert isinstance(network, TorchLike)
    for name, local in network.torch_names().items():
        if prefix + name in weights:
            weights[prefix + local] = weights.pop(prefix + name)
