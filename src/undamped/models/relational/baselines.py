"""Baselines of relational networks: recurrent, pairwise and attention-based models of images.

PictureRNN is any recurrent network over the codes of images, RelationNet (Santoro and others, 2017)
a sum over all pairs of images. PrediNet (Shanahan and others, 2020) compares images that several
heads select, and PictureTransformer is a transformer encoder. All are as in the programs of
T. W. Webb and others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Unpack

import torch
from torch import Tensor, nn

from undamped._base.checked import checked
from undamped._base.contract import Batch, TaskShape
from undamped._base.errors import OptionError
from undamped._base.options import Layers, PositiveInt, Range, Units, check
from undamped._base.registry import models
from undamped.models.relational.base import RelationalModel, SightOptions, start
from undamped.models.task_model import is_kind
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
        if not is_kind(head, Recurrent):
            raise OptionError(
                f"PictureRNN.head must be a recurrent network, such as 'lstm', got '{head}'."
            )
        sizes = {"hidden_size": hidden_size, "num_layers": num_layers}
        pairs = (option.partition("=") for option in head_options)
        options = {name: value for name, _, value in pairs}
        self.network: Recurrent = models.build(
            head, input_size=self.features, **sizes, **check(head, models[head], options, text=True)
        )
        self.head = start(nn.Linear(self.network.output_size, shape.output_size))
        self.carries_on = self.norm is None and not self.network.bidirectional

    def run(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        """Return the predictions (batch, output), and the state if there is no normalisation."""
        features, state = self.network.last(self.normalise(self.encode(batch)), state)
        return self.head(features), state if self.carries_on else None

    def decide(self, codes: Tensor) -> Tensor:
        return self.head(self.network.last(self.normalise(codes))[0])

    @property
    def why_no_stream(self) -> str:
        """Why images cannot be streamed as text, as part of an error message."""
        return super().why_no_stream if self.norm is not None else "one that reads images"

    def step(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Process one image of a stream (batch, …); return prediction and state."""
        if self.norm is not None:
            return super().step(x, state)
        codes = self.encoder(x)
        features, state = self.network.step(
            codes if self.sparse is None else self.sparse(codes), state
        )
        return self.head(features), state


def tagged(codes: Tensor) -> Tensor:
    """Return codes (time, batch, features) with their step as a further feature."""
    steps = torch.arange(len(codes), device=codes.device, dtype=codes.dtype)
    return torch.cat([codes, steps[:, None, None].expand(-1, codes.shape[1], 1)], -1)


@models.register("relation-net")
class RelationNet(RelationalModel):
    """A perceptron reads every pair of images, and another the sum of its outputs.

    Equation:
        y = f(Σ_i Σ_j g([z_i, i, z_j, j]))

    Symbols:
        z_i normalised code of image i, g and f perceptrons.

    Promise:
        None: predictions depend on the images themselves.

    Args:
        pair_size: Units of the first layer of g.
        hidden_size: Units of the second layer of g, and of f.
        sight: See `SightOptions`.

    Reference:
        A. Santoro, D. Raposo, D. Barrett, M. Malinowski, R. Pascanu, P. Battaglia, T. Lillicrap. A
        simple neural network module for relational reasoning. NeurIPS, 2017; as in the
        program of T. W. Webb and others.
    """

    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        pair_size: Units = 512,
        hidden_size: Units = 256,
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        self.pair = start(nn.Linear(2 * (self.features + 1), pair_size), "relu")
        self.pair_out = start(nn.Linear(pair_size, hidden_size), "relu")
        self.hidden = start(nn.Linear(hidden_size, hidden_size), "relu")
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def decide(self, codes: Tensor) -> Tensor:
        z = tagged(self.normalise(codes)).transpose(0, 1)
        # The first layer is linear in both images of a pair, so it is applied to each image once.
        of_first, of_second = self.pair.weight.split(z.shape[-1], 1)
        first = (z @ of_first.T + self.pair.bias).unsqueeze(2)
        pairs = torch.relu(first + (z @ of_second.T).unsqueeze(1))
        summed = torch.relu(self.pair_out(pairs)).sum((1, 2))
        return self.head(torch.relu(self.hidden(summed)))


@models.register("predinet")
class PrediNet(RelationalModel):
    """Each head attends to two images and compares them along learned relations.

    Equation:
        E¹ = softmax_i(Q¹ · K z_i) z,  E² = softmax_i(Q² · K z_i) z,  D = W_s E¹ − W_s E²
        y = W₂ ReLU(W₁ [D, t¹, t²] + b₁) + b₂

    Symbols:
        z_i normalised code of image i with its step, Q¹ and Q² queries of a head from the whole
        sequence, K keys that all heads share, W_s relations, t steps that were attended to.

    Promise:
        None: queries and attention depend on the images themselves.

    Args:
        heads: Number of pairs that are compared.
        key_size: Units of keys and queries.
        relations: Relations of a head.
        hidden_size: Units of the perceptron at the end.
        sight: See `SightOptions`.

    Reference:
        M. Shanahan, K. Nikiforou, A. Creswell, C. Kaplanis, D. Barrett, M. Garnelo. An explicitly
        relational neural network architecture. ICML, 2020; as in the program of T. W. Webb and
        others.
    """

    recipe: ClassVar = {"model": {"hidden_size": 8}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        heads: Units = 32,
        key_size: Units = 16,
        relations: Units = 16,
        hidden_size: Units = 8,
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        assert self.length is not None
        size = self.features + 1
        self.heads = heads
        self.key = start(nn.Linear(size, key_size, bias=False))
        self.queries = nn.ModuleList(
            [start(nn.Linear(self.length * size, heads * key_size, bias=False)) for _ in range(2)]
        )
        self.relation = start(nn.Linear(size, relations, bias=False))
        self.hidden = start(nn.Linear(heads * (relations + 2), hidden_size), "relu")
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def decide(self, codes: Tensor) -> Tensor:
        z = tagged(self.normalise(codes)).transpose(0, 1)
        keys = self.key(z)
        attended = []
        for to_query in self.queries:
            queries = to_query(z.flatten(1)).unflatten(1, (self.heads, -1))
            attended.append(torch.softmax(queries @ keys.transpose(1, 2), -1) @ z)
        first, second = attended
        compared = self.relation(first - second)
        steps = torch.stack([first[..., -1], second[..., -1]], -1)
        return self.head(torch.relu(self.hidden(torch.cat([compared, steps], -1).flatten(1))))


def sinusoids(length: int, like: Tensor) -> Tensor:
    """Return sines and cosines of the step, (length, features), of wave lengths to 10,000 · 2π."""
    size = like.shape[-1]
    steps = torch.arange(length, device=like.device, dtype=like.dtype).unsqueeze(1)
    pair = torch.arange(0, size, 2, device=like.device, dtype=like.dtype)
    angles = steps * torch.exp(-math.log(10_000) / size * pair)
    table = like.new_empty(length, size)
    table[:, 0::2], table[:, 1::2] = angles.sin(), angles.cos()[:, : size // 2]
    return table


@models.register("picture-transformer")
class PictureTransformer(RelationalModel):
    """A transformer encoder over the codes of the images; their mean gives the prediction.

    Equation:
        a_h = softmax(Q_h z K_hᵀ zᵀ / √d) V_h z,  u = norm(z + W_o [a_1 … a_H])
        v = norm(u + W₂ ReLU(W₁ u)),  y = MLP(mean_i norm(v_i))

    Symbols:
        z normalised codes of the images plus sinusoids of their steps, Q, K and V maps of each
        head h, d size of a head.

    Promise:
        None: attention mixes the images themselves.

    Args:
        heads: Heads of the attention.
        feed_forward_size: Units between attention layers.
        layers: Number of layers.
        hidden_size: Units of the perceptron at the end.
        sight: See `SightOptions`.

    Reference:
        A. Vaswani and others. Attention is all you need. NeurIPS, 2017; as in the program of
        T. W. Webb and others.
    """

    usual_choice = True
    fixed_length = False
    recipe: ClassVar = {"model": {"hidden_size": 256}}

    @checked
    def __init__(
        self,
        shape: TaskShape,
        *,
        heads: PositiveInt = 8,
        feed_forward_size: Units = 512,
        layers: Annotated[int, Range(low=1, high=100)] = 1,
        hidden_size: Units = 256,
        **sight: Unpack[SightOptions],
    ) -> None:
        super().__init__(shape, **sight)
        if self.features % heads:
            raise OptionError(
                f"PictureTransformer.heads must divide features={self.features}, got {heads}."
            )
        layer = nn.TransformerEncoderLayer(
            self.features, heads, dim_feedforward=feed_forward_size, dropout=0.0
        )
        self.transformer = nn.TransformerEncoder(
            layer, layers, nn.LayerNorm(self.features), enable_nested_tensor=False
        )
        for name, parameter in self.transformer.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif "self_attn" in name:
                nn.init.xavier_normal_(parameter)
            elif "linear" in name:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
        self.hidden = start(nn.Linear(self.features, hidden_size), "relu")
        self.head = start(nn.Linear(hidden_size, shape.output_size))

    def decide(self, codes: Tensor) -> Tensor:
        z = self.normalise(codes)
        mixed = self.transformer(z + sinusoids(len(z), z).unsqueeze(1))
        return self.head(torch.relu(self.hidden(mixed.mean(0))))
