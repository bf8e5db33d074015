"""Recurrent cells: one step in time, one file per paper."""

from undamped.cells.antisymmetric import AntisymmetricRNNCell, GatedAntisymmetricRNNCell
from undamped.cells.bases.cell import Cell, State
from undamped.cells.cornn import CoRNNCell
from undamped.cells.eurnn import EURNNCell
from undamped.cells.exprnn import ExpRNNCell
from undamped.cells.fastrnn import FastGRNNCell, FastRNNCell
from undamped.cells.full_capacity_urnn import FullCapacityURNNCell
from undamped.cells.goru import GORUCell
from undamped.cells.gru import GRUCell
from undamped.cells.incremental import IncrementalRNNCell
from undamped.cells.indrnn import DenseIndRNNCell, IndRNNCell, ResidualIndRNNCell
from undamped.cells.irnn import IRNNCell
from undamped.cells.lipschitz import LipschitzRNNCell
from undamped.cells.lstm import LSTMCell
from undamped.cells.momentum_lstm import (
    AdamLSTMCell,
    MomentumLSTMCell,
    NesterovLSTMCell,
    RMSPropLSTMCell,
)
from undamped.cells.momentum_rnn import (
    AdamRNNCell,
    MomentumRNNCell,
    NesterovRNNCell,
    RMSPropRNNCell,
)
from undamped.cells.nnrnn import NnRNNCell
from undamped.cells.ornn import ORNNCell
from undamped.cells.residual_unicornn import ResidualUnICORNNCell
from undamped.cells.rnn import RNNCell
from undamped.cells.rnn_orth import RNNOrthCell
from undamped.cells.scornn import ScoRNNCell
from undamped.cells.spectral import SpectralRNNCell
from undamped.cells.sru import SRUCell
from undamped.cells.unicornn import UnICORNNCell
from undamped.cells.urnn import URNNCell

__all__ = [
    "AdamLSTMCell",
    "AdamRNNCell",
    "AntisymmetricRNNCell",
    "Cell",
    "CoRNNCell",
    "DenseIndRNNCell",
    "EURNNCell",
    "ExpRNNCell",
    "FastGRNNCell",
    "FastRNNCell",
    "FullCapacityURNNCell",
    "GORUCell",
    "GRUCell",
    "GatedAntisymmetricRNNCell",
    "IRNNCell",
    "IncrementalRNNCell",
    "IndRNNCell",
    "LSTMCell",
    "LipschitzRNNCell",
    "MomentumLSTMCell",
    "MomentumRNNCell",
    "NesterovLSTMCell",
    "NesterovRNNCell",
    "NnRNNCell",
    "ORNNCell",
    "RMSPropLSTMCell",
    "RMSPropRNNCell",
    "RNNCell",
    "RNNOrthCell",
    "ResidualIndRNNCell",
    "ResidualUnICORNNCell",
    "SRUCell",
    "ScoRNNCell",
    "SpectralRNNCell",
    "State",
    "URNNCell",
    "UnICORNNCell",
]
