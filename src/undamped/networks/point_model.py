"""A whole model for single vectors: what `SequenceModel` is for sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from undamped.errors import OptionError, explain
from undamped.flows.continuous_flow import ContinuousFlow
from undamped.networks.recurrent import Recurrent
from undamped.options import NonNegativeInt, PositiveInt
from undamped.registry import models


class PointModel(nn.Module):
    """A model of the registry that reads vectors, with the interface training expects.

    Args:
        network: The registry name of the model.
        input_size: Features of the input.
        output_size: Features of the answer: classes, or regression targets; 0 where the answer is
            the log-density of the input, which takes a flow.
        network_options: The options of the model.

    Example:
        >>> model = PointModel("hbnode", input_size=2, output_size=2, hidden_size=16)
        >>> model(torch.randn(8, 2)).shape
        torch.Size([8, 2])
    """

    def __init__(
        self,
        network: str,
        input_size: PositiveInt,
        output_size: NonNegativeInt,
        **network_options: Any,
    ) -> None:
        super().__init__()
        member = models[network]
        if isinstance(member, type) and issubclass(member, Recurrent):
            raise OptionError(
                explain(
                    network,
                    expected="a model that reads single vectors, as this task has no sequences",
                    got="a recurrent one",
                    remedy="Choose another; 'undamped list' shows all.",
                )
            )
        gives_densities = isinstance(member, type) and issubclass(member, ContinuousFlow)
        if gives_densities != (output_size == 0):
            raise OptionError(
                explain(
                    network,
                    expected="a model that answers"
                    if output_size
                    else "a model of densities, as this task asks for nothing else",
                    got="one of densities" if gives_densities else "one that answers",
                    remedy="Take 'ffjord' for 'density' and 'point-cloud', and only for them.",
                )
            )
        refuse_condition(network, network_options)
        sizes = {"input_size": input_size}
        if output_size:
            sizes["output_size"] = output_size
        self.network: nn.Module = models.build(network, **sizes, **network_options)

    def forward(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return answers (batch, output) to inputs (batch, input), or log-densities (batch,)."""
        if isinstance(self.network, ContinuousFlow):
            return self.network.log_prob(x)
        return self.network(x)

    def run(
        self, x: Tensor, lengths: Tensor | None = None, state: Any = None
    ) -> tuple[Tensor, None]:
        """Return the answers, and no state."""
        return self(x), None


def refuse_condition(network: str, options: Mapping[str, Any]) -> None:
    """Refuse a conditional flow where there are points alone.

    Args:
        network: The registry name of the model.
        options: Its options.
    """
    if options.get("context_size"):
        raise OptionError(
            explain(
                f"{network}.context_size",
                expected="0, as there is nothing here to condition on",
                got=options["context_size"],
                remedy="Leave it out, or call the flow from Python: flow.log_prob(x, context).",
            )
        )
