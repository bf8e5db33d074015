"""Recurrent cells: one step in time, one file per paper."""

from undamped.cells.cell import Cell, State
from undamped.cells.gru import GRUCell
from undamped.cells.irnn import IRNNCell
from undamped.cells.lstm import LSTMCell
from undamped.cells.residual_unicornn import ResidualUnICORNNCell
from undamped.cells.rnn import RNNCell
from undamped.cells.rnn_orth import RNNOrthCell
from undamped.cells.unicornn import UnICORNNCell

__all__ = [
    "Cell",
    "GRUCell",
    "IRNNCell",
    "LSTMCell",
    "RNNCell",
    "RNNOrthCell",
    "ResidualUnICORNNCell",
    "State",
    "UnICORNNCell",
]
