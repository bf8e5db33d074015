"""MomentumRNN (Nguyen et al., 2020) and its Adam, RMSProp and Nesterov variants."""

from __future__ import annotations

from undamped._base.registry import models
from undamped.nn.bases.momentum import (
    AdamDriven,
    MomentumDriven,
    NesterovDriven,
    RMSPropDriven,
)
from undamped.nn.recurrent import Recurrent


class MomentumRNNCell(MomentumDriven):
    """MomentumRNN: the input enters through a velocity, as in the heavy-ball method.

    Equation:
        v' = μ v + s (W x + b),  h' = tanh(U h + v')

    Symbols:
        h hidden state, v velocity, x input, U recurrent matrix, W input matrix, b bias, μ
        momentum, s step.

    Promise:
        Written in h alone, ∂h'/∂h = D (U + μΣ) with Σ the slope of arctanh, at least one: the
        gradient vanishes more slowly than the RNN's D U.

    Example:
        >>> net = undamped.nn.MomentumRNN(3, 16)
        >>> output, (h, v) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "velocity")


class NesterovRNNCell(NesterovDriven):
    """Nesterov RNN: momentum that grows from step to step, and starts again now and then.

    Equation:
        v' = k/(k + 3) v + s (W x + b),  h' = tanh(U h + v'),  k = t mod F

    Symbols:
        As in momentum-rnn; t steps so far, F steps between restarts.

    Promise:
        None strict; within a cycle as momentum-rnn.

    Example:
        >>> net = undamped.nn.NesterovRNN(3, 16, restart=40)
        >>> output, (h, v, count) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "velocity", "count")


class RMSPropRNNCell(RMSPropDriven):
    """RMSProp RNN: the input enters divided by its running size.

    Equation:
        u = W x + b,  m' = β m + (1 − β) u²,  h' = tanh(U h + s u/√(m' + δ))

    Symbols:
        As in momentum-rnn; m running mean of squares, β its decay, δ against zero.

    Promise:
        None strict.

    Example:
        >>> net = undamped.nn.RMSPropRNN(3, 16)
        >>> output, (h, m) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "moment")


class AdamRNNCell(AdamDriven):
    """Adam RNN: a velocity divided by the running size of the input.

    Equation:
        u = W x + b,  v' = μ v + s u,  m' = β m + (1 − β) u²,  h' = tanh(U h + v'/√(m' + δ))

    Symbols:
        As in momentum-rnn and rmsprop-rnn.

    Promise:
        None strict.

    Example:
        >>> net = undamped.nn.AdamRNN(3, 16)
        >>> output, (h, v, m) = net(torch.randn(50, 4, 3))

    Reference:
        T. M. Nguyen, R. G. Baraniuk, A. L. Bertozzi, S. J. Osher, B. Wang. MomentumRNN: integrating
        momentum into recurrent neural networks. NeurIPS, 2020.
    """

    state_names = ("hidden", "velocity", "moment")


@models.register("momentum-rnn")
class MomentumRNN(Recurrent):
    """Stacked layers of `MomentumRNNCell`, which has the equation and the options."""

    cell_class = MomentumRNNCell


@models.register("nesterov-rnn")
class NesterovRNN(Recurrent):
    """Stacked layers of `NesterovRNNCell`, which has the equation and the options."""

    cell_class = NesterovRNNCell


@models.register("rmsprop-rnn")
class RMSPropRNN(Recurrent):
    """Stacked layers of `RMSPropRNNCell`, which has the equation and the options."""

    cell_class = RMSPropRNNCell


@models.register("adam-rnn")
class AdamRNN(Recurrent):
    """Stacked layers of `AdamRNNCell`, which has the equation and the options."""

    cell_class = AdamRNNCell
