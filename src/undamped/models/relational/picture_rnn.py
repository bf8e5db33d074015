"""Any recurrent network of the registry over the codes of pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Unpack

from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError, explain
from undamped._base.options import Layers, Units, check
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start
from undamped.nn.recurrent import Recurrent


@models.register("picture-rnn")
class PictureRNN(RelationalModel):
    """A recurrent network that reads the codes of the pictures one after another.

    Equation:
        h_t = N(z_t, h_{t−1}),  y = W h_T + b

    Symbols:
        z_t normalised code of picture t, N a step of the recurrent network.

    Promise:
        None: the network reads the pictures themselves.

    Args:
        shape: The shape of the task.
        head: The registry name of the recurrent network.
        hidden_size: Its units.
        num_layers: Its layers.
        head_options: Its further options, as words: "dt=0.1".
        sight: How pictures are seen; see `SightOptions`.

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
                explain(
                    "PictureRNN.head",
                    expected="a recurrent network, such as lstm",
                    got=f"'{head}'",
                    remedy="'undamped list' shows all.",
                )
            )
        sizes = {"hidden_size": hidden_size, "num_layers": num_layers}
        words = {word.partition("=")[0]: word.partition("=")[2] for word in head_options}
        self.network: Recurrent = models.build(
            head,
            input_size=self.features,
            **sizes,
            **check(head, member, words, text=True),
        )
        self.head = start(nn.Linear(self.network.output_size, shape.output_size))
        self.carries_on = self.norm is None and not self.network.bidirectional

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the answers (batch, output), and the state where there is no normalisation."""
        features, state = self.network.last(self.normalise(self.encode(batch)), state)
        return self.head(features), state if self.carries_on else None

    def decide(self, codes: Tensor) -> Tensor:
        """Return the answers (batch, output) to codes (time, batch, features)."""
        return self.head(self.network.last(self.normalise(codes))[0])

    @property
    def why_no_stream(self) -> str:
        """Normalisation, or else that pictures do not come as lines of text."""
        return super().why_no_stream if self.norm is not None else "one that reads pictures"

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Take one picture of a stream (batch, channels, height, width); return answer and state.

        Args:
            x: The picture.
            state: What the step before returned.
        """
        if self.norm is not None:
            return super().step(x, state)
        codes = self.encoder(x)
        features, state = self.network.step(
            codes if self.sparse is None else self.sparse(codes), state
        )
        return self.head(features), state
