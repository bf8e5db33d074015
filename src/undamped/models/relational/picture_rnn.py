"""Any registered recurrent network over the codes of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import Layers, Units, check
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start
from undamped.nn.recurrent import Recurrent


@models.register("picture-rnn")
class PictureRNN(RelationalModel):
    """A recurrent network that reads the codes of the images one after another.

    Equation:
        h_t = N(z_t, h_{t−1}),  y = W h_T + b

    Symbols:
        z_t normalised code of image t, N a step of the recurrent network.

    Promise:
        None: the network reads the images themselves.

    Args:
        shape: The shape of the task.
        head: The registry name of the recurrent network.
        hidden_size: Number of its units.
        num_layers: Number of its layers.
        head_options: Its further options as strings, such as "dt=0.1".
        sight: See `SightOptions`.

    Example:
        >>> task = undamped.lab.tasks.build("rmts", holdout=95)
        >>> model = undamped.models.PictureRNN(task.task_shape, head="lstm", hidden_size=32)
        >>> model(task.batch("test", 0, 4)).shape
        torch.Size([4, 2])

    Reference:
        With an LSTM: T. W. Webb, I. Sinha, J. D. Cohen. Emergent symbols through binding in
        external memory. ICLR, 2021.
    """

    usual_choice = True
    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 512}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        head: str = "lstm",
        hidden_size: Units = 512,
        num_layers: Layers = 1,
        head_options: Sequence[str] = (),
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        member = models[head]
        if not (isinstance(member, type) and issubclass(member, Recurrent)):
            raise OptionError(
                f"PictureRNN.head must be a recurrent network, such as 'lstm', got '{head}'."
            )
        sizes = {"hidden_size": hidden_size, "num_layers": num_layers}
        pairs = (option.partition("=") for option in head_options)
        options = {name: value for name, _, value in pairs}
        self.network: Recurrent = models.build(
            head,
            input_size=self.features,
            **sizes,
            **check(head, member, options, text=True),
        )
        self.head = start(nn.Linear(self.network.output_size, shape.output_size))
        self.carries_on = self.norm is None and not self.network.bidirectional

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the predictions (batch, output), and the state if there is no normalisation."""
        features, state = self.network.last(self.normalise(self.encode(batch)), state)
        return self.head(features), state if self.carries_on else None

    def decide(self, codes: Tensor) -> Tensor:
        """Return predictions (batch, output) for codes (time, batch, features)."""
        return self.head(self.network.last(self.normalise(codes))[0])

    @property
    def why_no_stream(self) -> str:
        """Why images cannot be streamed as text, as part of an error message."""
        return super().why_no_stream if self.norm is not None else "one that reads images"

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Take one image of a stream (batch, channels, height, width); return prediction and state.

        Args:
            x: The image.
            state: The state that the previous step returned.
        """
        if self.norm is not None:
            return super().step(x, state)
        codes = self.encoder(x)
        features, state = self.network.step(
            codes if self.sparse is None else self.sparse(codes), state
        )
        return self.head(features), state
